"""Disks that are too small or full, on a real file system of a few MB where one can be mounted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import disk, runner, training
from harness.grid import Cell
from harness.plan import estimate
from harness.protocol import load_protocol
from harness.runner import CellFailedError, CellJob, Places
from methods.errors import UserError
from reuse_bench.main import app
from tests import small_disk as disks

SMOKE = load_protocol("smoke")
CELL = Cell("smoke", "tiny-qwen3", 2, "respo", 0)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    with disks.small_disk(tmp_path / "small", "4m") as folder:
        yield folder


@pytest.fixture
def job(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CellJob:
    monkeypatch.setattr(runner, "resolve_model", lambda spec: tmp_path)
    return CellJob(SMOKE, CELL, Places(small / "runs", small / "results"))


def fill(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        while True:
            stream.write(b"x" * 10_000)
            stream.flush()


def other_process(path: Path) -> None:
    """A full disk as it is seen from outside: an exit code, and a log without a word."""
    try:
        fill(path)
    except OSError:
        raise training.TrainingError("training ended with exit code 1: no output (log: log.txt)") from None


@pytest.mark.parametrize("step", [fill, other_process])
def test_the_cell_fails_with_the_folder_and_goes_on_when_there_is_room(
    job: CellJob, small: Path, monkeypatch: pytest.MonkeyPatch, step: object
) -> None:
    folder = job.run.checkpoints / "_actor"
    (folder / "global_step2").mkdir(parents=True)
    (folder / "latest").write_text("global_step2")
    half = folder / "global_step4" / "states.pt"
    monkeypatch.setattr(training, "train_cell", lambda *_, **__: step(half))  # type: ignore[operator]
    with pytest.raises(UserError, match=rf"{small}.*: the disk is full: make room"):
        runner.train_only(job, "")
    state = job.run.read_state()
    assert state
    assert state.status == "failed"
    assert "the disk is full" in str(state.detail)
    assert [path.name for path in folder.glob("global_step*")] == ["global_step2"]  # the half-written one is gone
    assert not list(job.run.root.rglob(".*.tmp"))

    def trains(*_: object, **__: object) -> training.TrainingResult:
        assert training.resume_point(job.run, CELL) == 4
        return training.TrainingResult(8, None, "digest")

    monkeypatch.setattr(training, "train_cell", trains)
    assert runner.train_only(job, "").updates == 8
    state = job.run.read_state()
    assert state
    assert [(attempt.outcome, attempt.first_update) for attempt in state.attempts] == [("failed", 5), ("completed", 5)]


def test_another_failure_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "resolve_model", lambda spec: tmp_path)
    job = CellJob(SMOKE, CELL, Places(tmp_path / "runs", tmp_path / "results"))

    def fails(*_: object, **__: object) -> None:
        raise training.TrainingError("no luck")

    monkeypatch.setattr(training, "train_cell", fails)
    with pytest.raises(CellFailedError, match="no luck"):
        runner.train_only(job, "")


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("OSError: [Errno 28] No space left on device: '/elsewhere/ray'", "/elsewhere/ray"),
        ("RuntimeError: No space left on device", tempfile.gettempdir()),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/me'", "/home/me"),
    ],
)
def test_the_log_says_which_disk(said: str, where: str, tmp_path: Path) -> None:
    found = disk.full_disk(training.TrainingError(said), tmp_path)
    assert found
    assert where in str(found).partition(": the disk is full")[0]


class TestBefore:
    def test_what_is_missing_is_said_with_the_arithmetic(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        protocol = load_protocol("qwen3-1.7b")
        estimates = [estimate(protocol, Cell(protocol.id, protocol.models[0].name, 8, "grpo", seed)) for seed in (0, 1)]
        one = estimates[0]
        needed = 2 * one.disk_kept + (one.disk_peak - one.disk_kept)
        monkeypatch.setattr(disk, "free_bytes", lambda folder: needed)
        disk.check_disk(estimates, tmp_path, at_once=1)
        monkeypatch.setattr(disk, "free_bytes", lambda folder: needed - 1e9)
        with pytest.raises(
            UserError, match=rf"2 cells, at most 1 of them at once, need about {needed / 1e9:,.1f} GB more"
        ):
            disk.check_disk(estimates, tmp_path, at_once=1)

        # what they have written already is not needed again
        part = tmp_path / one.cell.path / "training" / "checkpoints" / "states"
        part.parent.mkdir(parents=True)
        with part.open("wb") as stream:
            stream.truncate(10**9)
        disk.check_disk(estimates, tmp_path, at_once=1)

    def test_nothing_is_started(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disk, "free_bytes", lambda folder: 0)
        places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        for command in ("run", "train"):
            done = CliRunner().invoke(app, [command, "--protocol", "smoke", *places])
            assert isinstance(done.exception, UserError)
            assert "--ignore-disk" in str(done.exception)
        assert not (tmp_path / "runs").exists()
