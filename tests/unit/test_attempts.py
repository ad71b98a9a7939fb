"""What a cell's state says of its attempts, also of one whose process was killed."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest

from harness import runner, training
from harness.grid import Cell
from harness.protocol import load_protocol
from harness.records import canonical_json, write_atomically
from harness.run_directory import CellState
from harness.runner import CellJob, Places
from harness.scheduler import items_of

SMOKE = load_protocol("smoke")
STARTED = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CellJob:
    monkeypatch.setattr(runner, "resolve_model", lambda spec: tmp_path)
    monkeypatch.setattr(training, "train_cell", lambda *_, **__: training.TrainingResult(8, None, "digest"))
    return CellJob(SMOKE, Cell("smoke", "tiny-qwen3", 2, "respo", 0), Places(tmp_path / "runs", tmp_path / "results"))


@pytest.mark.parametrize("reason", ["its process was killed", "NodeDiedError: the node is dead"])
def test_one_that_was_killed_is_written_down(job: CellJob, reason: str) -> None:
    """By the driver that saw it, or by the next attempt where the driver was killed too."""
    run = job.run
    (run.checkpoints / "_actor" / "global_step2").mkdir(parents=True)
    (run.checkpoints / "_actor" / "latest").write_text("global_step2")
    run.updates.write_text("".join(f'{{"update": {number}, "score": 0.5}}\n' for number in range(1, 7)))
    written = datetime.fromisoformat(STARTED).timestamp() + 60
    os.utime(run.updates, (written, written))
    state = CellState(
        cell=job.cell.id,
        protocol_digest=SMOKE.digest,
        status="training",
        began=STARTED,
        began_at_update=2,
        training_seconds=5.0,
    )
    run.write_state(state)
    if reason.startswith("NodeDiedError"):
        (item,) = items_of([job])
        item.work.wait_again(reason)
    runner.train_only(job, "")
    found = run.read_state()
    assert found
    assert [(one.first_update, one.last_update, one.outcome) for one in found.attempts] == [
        (3, 6, "interrupted"),
        (5, 6, "completed"),
    ]
    assert (found.attempts[0].started, found.attempts[0].ended) == (STARTED, None)
    assert found.attempts[0].reason == reason
    assert 65.0 <= found.training_seconds < 125.0  # what it is known to have taken is counted


def test_an_attempt_that_has_ended_is_not_written_twice(job: CellJob) -> None:
    runner.train_only(job, "")
    job.run.trained.unlink(missing_ok=True)
    runner.train_only(job, "")
    found = job.run.read_state()
    assert found
    assert [one.outcome for one in found.attempts] == ["completed", "completed"]


def test_the_time_of_an_evaluation_that_was_killed_is_counted(job: CellJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.evaluation, "evaluate_checkpoint", lambda *_, **__: {})
    monkeypatch.setattr(runner, "_record", lambda *_: None)
    runner.train_only(job, "")
    state = job.run.read_state()
    assert state
    killed = {"status": "evaluating", "began": STARTED, "evaluation_seconds": 5.0}
    job.run.write_state(state.model_copy(update=killed))
    write_atomically(job.run.trained, canonical_json(asdict(training.TrainingResult(8, None, "digest"))))
    journal = job.run.evaluation / ".work" / "journal-0.jsonl"
    journal.parent.mkdir(parents=True)
    journal.touch()
    written = datetime.fromisoformat(STARTED).timestamp() + 60
    os.utime(journal, (written, written))
    runner.evaluate_only(job)
    found = job.run.read_state()
    assert found
    assert 65.0 <= found.evaluation_seconds < 125.0
    assert len(found.attempts) == 1
