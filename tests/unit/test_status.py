"""`status`: what it says of a cell in each state, once and with --watch."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from harness.run_directory import CellState, RunDirectory
from harness.runner import CellJob, existing_record
from methods.errors import UserError
from reuse_bench.commands import status
from reuse_bench.commands.options import Choice
from reuse_bench.commands.runs import jobs_of
from reuse_bench.main import app
from tests.synthetic import synthetic_store

STARTED = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def job(tmp_path: Path) -> CellJob:
    (job,) = jobs_of(chosen(tmp_path))
    return job


def chosen(folder: Path) -> Choice:
    return Choice("smoke", ["respo"], [2], seed=[0], runs=folder / "runs", results=folder / "results")


def write(job: CellJob, status: Any, updates: int = 0, **more: Any) -> RunDirectory:
    run = job.run
    run.training.mkdir(parents=True, exist_ok=True)
    run.log.write_text("output\n")
    lines = [json.dumps({"update": number, "score": number / 8}) for number in range(1, updates + 1)]
    run.updates.write_text("".join(f"{line}\n" for line in lines))
    state = CellState(cell=job.cell.id, protocol_digest=job.protocol.digest, status=status, **more)
    run.write_state(state)
    return run


def text_of(job: CellJob) -> str:
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(status.table([status.cell_facts(job)]))
    return console.export_text()


def test_waiting(job: CellJob) -> None:
    assert "waiting" in text_of(job)
    write(job, "waiting", detail="the node died")
    assert "the node died" in text_of(job)


def test_training_says_how_far_it_is_and_when_it_ends(job: CellJob) -> None:
    run = write(job, "training", updates=5, began=STARTED, began_at_update=1)
    written = datetime.fromisoformat(STARTED).astimezone(UTC).timestamp() + 120
    os.utime(run.updates, (written, written))
    with run.locked():
        facts = status.cell_facts(job)
        said = text_of(job)
    assert (facts["updates"], facts["updates_in_all"], facts["score"]) == (5, 8, 0.625)
    assert facts["seconds_left"] == 90.0  # 4 updates took 120 s, and 3 are left
    assert all(part in said for part in ("training", "5/8 updates", "0.625", "0:01:30"))


def test_no_guess_before_the_first_update_of_an_attempt(job: CellJob) -> None:
    run = write(job, "training", updates=4, began=datetime.now(UTC).isoformat(), began_at_update=4)
    with run.locked():
        assert status.cell_facts(job)["seconds_left"] is None


def test_evaluating_counts_responses(job: CellJob) -> None:
    run = write(job, "evaluating", updates=8)
    journal = run.evaluation / ".work" / "journal-0.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text("header\n" + "response\n" * 20)
    (run.evaluation / "log.txt").touch()
    with run.locked():
        facts = status.cell_facts(job)
        assert "20/128 responses" in text_of(job)
    assert (facts["responses"], facts["responses_in_all"]) == (20, 128)
    assert facts["log"] == str(run.evaluation / "log.txt")


@pytest.mark.parametrize("name", ["training", "evaluating"])
def test_a_step_whose_process_was_killed_is_not_running(job: CellJob, name: str) -> None:
    write(job, name, updates=2)
    facts = status.cell_facts(job)
    assert facts["status"] == "interrupted"
    assert name in facts["detail"]


def test_failed_says_why_and_where_the_log_is(job: CellJob) -> None:
    run = write(job, "failed", updates=3, detail="ValueError: no luck [/red]")
    said = text_of(job)
    assert "ValueError: no luck [/red]" in said
    assert str(run.log) in said


def test_collapsed_says_why(job: CellJob) -> None:
    write(job, "collapsed", updates=3, detail="the loss is not finite")
    assert "the loss is not finite" in text_of(job)


class Clock:
    """In the place of sleeping: the cell goes on by one entry."""

    def __init__(self, *entries: Callable[[], object]) -> None:
        self.entries = list(entries)

    def sleep(self, _: float) -> None:
        if not self.entries:
            raise AssertionError("it went on looking")
        self.entries.pop(0)()


def watch(folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, *options: str) -> list[str]:
    monkeypatch.setattr(time, "sleep", clock.sleep)
    cells = ["--protocol", "smoke", "--method", "respo", "--reuse", "2", "--seed", "0"]
    places = ["--runs", str(folder / "runs"), "--results", str(folder / "results")]
    done = CliRunner().invoke(app, ["status", "--watch", *cells, *places, *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def test_without_a_terminal_lines_that_have_changed(
    job: CellJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(
        lambda: write(job, "waiting"),
        lambda: write(job, "trained", updates=8),
        lambda: None,
        lambda: write(job, "failed", updates=8, detail="once"),
        lambda: write(job, "waiting", updates=8, detail="once"),  # it is tried again
        lambda: write(job, "done", updates=8),
        lambda: None,
    )
    lines = watch(tmp_path, monkeypatch, clock)
    words = [line.split("  ")[1] for line in lines]
    assert words == ["waiting", "waiting", "trained", "failed", "waiting", "done"]
    assert clock.entries == []


def test_json_lines(job: CellJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(job, "waiting")
    clock = Clock(lambda: write(job, "done", updates=8), lambda: None)
    facts = [json.loads(line) for line in watch(tmp_path, monkeypatch, clock, "--json")]
    assert [fact["status"] for fact in facts] == ["waiting", "done"]


def test_interrupting_ends_it(job: CellJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert len(watch(tmp_path, monkeypatch, Clock(interrupt))) == 1


def test_a_table_on_a_terminal(job: CellJob, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=200, force_terminal=True, record=True, file=io.StringIO())
    write(job, "waiting")
    clock = Clock(lambda: write(job, "done", updates=8), lambda: None)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    status._draw(console, status._looks([job], 1.0))
    said = console.export_text()
    assert "waiting" in said
    assert "8/8 updates" in said


def test_a_cell_that_was_run_elsewhere_is_what_its_record_says(tmp_path: Path) -> None:
    """As in a fresh clone, where records are and runs are not."""
    store = synthetic_store(tmp_path / "results", reuses=(32,), statuses={("respo", 32, 1): "collapsed"})
    options = [
        "--protocol",
        "tiny",
        "--reuse",
        "32",
        "--runs",
        str(tmp_path / "runs"),
        "--results",
        str(store),
        "--json",
    ]
    found = {one["cell"]: one for one in json.loads(CliRunner().invoke(app, ["status", *options]).stdout)}
    done, collapsed = (found[f"tiny/tiny-qwen3/n32/respo/seed{seed}"] for seed in (0, 1))
    assert (done["status"], done["updates"]) == ("done", 256)
    assert 0 < done["score"] <= 1
    assert (collapsed["status"], collapsed["updates"] < 256) == ("collapsed", True)
    assert collapsed["detail"]
    assert found["tiny/tiny-qwen3/n32/reinforce/seed0"]["status"] == "waiting"


def test_a_record_that_is_a_link_to_nothing_is_not_the_same_as_none(job: CellJob) -> None:
    """Its store is not mounted, or was not fetched: running the cell again would put another record in its place."""
    job.record_path.parent.mkdir(parents=True)
    job.record_path.symlink_to("elsewhere.json")
    for look in (status.cell_facts, existing_record):
        with pytest.raises(UserError, match=r"seed0\.json: the record cannot be read"):
            look(job)
