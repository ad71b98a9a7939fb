"""When the scheduler tries again, and when it gives up; its lock and its journal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.grid import cells
from harness.protocol import load_protocol
from harness.run_directory import CellState
from harness.runner import CellJob, Places
from harness.scheduler import (
    JOURNAL,
    MAX_ATTEMPTS,
    STOP_FILE,
    Failures,
    driver_lock,
    items_of,
    read_journal,
    request_stop,
    signature_of,
)
from methods.errors import UserError


class TestFailures:
    def test_twice_the_same_way(self) -> None:
        failures = Failures()
        assert not failures.add("CUDA error at 0x7f31 on worker 12", 256, "work")
        assert failures.add("CUDA error at 0x7e00 on worker 3", 256, "work")

    def test_progress_in_between(self) -> None:
        failures = Failures()
        assert [failures.add("lost", updates, "work") for updates in (0, 256, 512)] == [False, False, False]
        assert failures.add("lost", 512, "work")

    def test_failures_without_progress_are_counted_from_the_last_progress(self) -> None:
        failures = Failures()
        counts = []
        for reason, updates in (("lost", 0), ("disk full", 0), ("lost", 256), ("lost", 512), ("disk full", 512)):
            failures.add(reason, updates, "machine")
            counts.append(failures.in_vain())
        assert counts == [1, 2, 1, 1, 2]

    def test_other_reasons(self) -> None:
        failures = Failures()
        assert not failures.add("lost", 0, "work")
        assert not failures.add("disk full", 0, "work")
        assert failures.add("lost", 0, "work")

    def test_machines_are_forgiven_more(self) -> None:
        failures = Failures()
        assert [failures.add("NodeDiedError", 0, "machine") for _ in range(4)] == [False, False, False, True]

    def test_bounded_in_any_case(self) -> None:
        failures = Failures()
        assert [failures.add("lost", updates, "work") for updates in range(MAX_ATTEMPTS)][-2:] == [False, True]

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("exit code 1 (log: /a/b/log.txt)", "exit code 9 (log: /c/log.txt)", True),
            ("ActorDiedError: actor 4fd21a0c9b7e4d11aa00", "ActorDiedError: actor 0123456789abcdef0123", True),
            ("out of memory", "no space left", False),
        ],
    )
    def test_signature(self, one: str, other: str, same: bool) -> None:
        assert (signature_of(one) == signature_of(other)) is same


class TestLock:
    def test_one_driver_at_a_time(self, tmp_path: Path) -> None:
        with (
            driver_lock(tmp_path),
            pytest.raises(UserError, match=rf"another reuse-bench run \(process {os.getpid()}\)"),
            driver_lock(tmp_path),
        ):
            pass
        with driver_lock(tmp_path):
            pass

    def test_stop(self, tmp_path: Path) -> None:
        assert not request_stop(tmp_path)
        with driver_lock(tmp_path):
            assert request_stop(tmp_path)
            assert (tmp_path / STOP_FILE).exists()
        with driver_lock(tmp_path):
            assert not (tmp_path / STOP_FILE).exists()  # an old request does not stop a new run


def test_journal_with_a_cut_line(tmp_path: Path) -> None:
    assert read_journal(tmp_path) == []
    (tmp_path / JOURNAL).write_text('{"event": "started"}\n{"event": "en')
    assert read_journal(tmp_path) == [{"event": "started"}]


class TestCells:
    def item(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CellJob, object]:
        monkeypatch.chdir(tmp_path)
        protocol = load_protocol("smoke")
        job = CellJob(protocol, cells(protocol)[0], Places(Path("runs"), Path("results")))
        return job, items_of([job])[0]

    def test_paths_mean_the_same_everywhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job, _ = self.item(tmp_path, monkeypatch)
        work = items_of([job])[0].work
        monkeypatch.chdir("/")
        assert getattr(work, "job").places == Places(tmp_path / "runs", tmp_path / "results")  # noqa: B009

    def test_needs_and_order(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job, _ = self.item(tmp_path, monkeypatch)
        item = items_of([job])[0]
        assert item.job("training").need.total == job.protocol.runtime.gpus == 2
        assert item.job("evaluation").need.total == 1
        assert item.training_seconds > item.evaluation_seconds > 0

    def test_new_cell(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job, _ = self.item(tmp_path, monkeypatch)
        work = items_of([job])[0].work
        assert (work.ending(), work.is_trained(), work.updates()) == (None, False, 0)

    def test_progress_is_what_is_safe_on_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job, _ = self.item(tmp_path, monkeypatch)
        work = items_of([job])[0].work
        latest = job.run.checkpoints / "_actor" / "latest"
        latest.parent.mkdir(parents=True)
        latest.write_text("global_step3")
        assert work.updates() == 3 * job.cell.reuse

    def test_waiting_says_why(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job, _ = self.item(tmp_path, monkeypatch)
        work = items_of([job])[0].work
        job.run.root.mkdir(parents=True)
        job.run.write_state(CellState(cell=job.cell.id, protocol_digest=job.protocol.digest, status="failed"))
        work.wait_again("the node died")
        state = job.run.read_state()
        assert state
        assert (state.status, state.detail) == ("waiting", "the node died")
