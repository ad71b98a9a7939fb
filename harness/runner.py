"""The steps of a cell, from its protocol to its record: each keeps the cell's state true, and is skipped when done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from harness import evaluation, training
from harness.disk import full_disk
from harness.evaluation import EvaluationError
from harness.grid import Cell
from harness.models import resolve_model
from harness.protocol import Protocol
from harness.recording import record_cell
from harness.records import Attempt, Record, read_record
from harness.run_directory import CellState, CellStatus, RunDirectory, now
from harness.training import TrainingError, TrainingResult
from methods.errors import UserError

Step = Literal["training", "evaluating"]
Report = Callable[[Cell, Step, int, int, str], None]
"""Called with the cell, the step, what is done of it, what there is in all, and a word to it."""


class CellFailedError(RuntimeError):
    """A cell could not be completed; its state says why."""


@dataclass(frozen=True)
class Places:
    """Where runs are kept and where records go."""

    runs: Path
    results: Path


@dataclass(frozen=True)
class CellJob:
    """A cell with what it is run under."""

    protocol: Protocol
    cell: Cell
    places: Places
    command: Sequence[str] | None = None

    @property
    def run(self) -> RunDirectory:
        """The cell's folder."""
        return RunDirectory.of(self.places.runs, self.cell)

    @property
    def record_path(self) -> Path:
        """Where the cell's record is, or will be."""
        return self.places.results / f"{self.cell.id}.json"

    @property
    def has_record(self) -> bool:
        """Whether something is there, a symbolic link that leads nowhere included: then the record is elsewhere."""
        return os.path.lexists(self.record_path)


def existing_record(job: CellJob) -> Record | None:
    """The cell's record, if it is there and was made under this very protocol.

    A failed cell counts as not run: the next call tries again.

    Raises:
        UserError: the record is damaged, or of another version of the protocol.
    """
    if not job.has_record:
        return None
    record = read_record(job.record_path)
    if record.protocol.digest != job.protocol.digest:
        raise UserError(
            f"{job.record_path}: field protocol.digest: {record.protocol.digest[:12]} is not that of "
            f"{job.protocol.id} ({job.protocol.digest[:12]}); choose another folder with --results, or remove it"
        )
    return None if record.status == "failed" else record


def check_inputs(jobs: Sequence[CellJob], evaluating: bool = True) -> None:
    """Look for what the cells need besides a base model, before minutes or days go into them.

    Raises:
        UserError: a method, its hyperparameters, the training set or a held-out task cannot be used, or the loss of a
            training that would be continued has changed since.
    """
    for job in {(job.protocol.id, job.cell.method): job for job in jobs}.values():
        training.build_method(job.protocol, job.cell.method)
    for job in jobs:
        training.check_same_loss(job.protocol, job.cell, job.run)
    for protocol in {job.protocol.id: job.protocol for job in jobs}.values():
        training.training_problems(protocol.data.train)
        if evaluating:
            evaluation.problems_of(evaluation.plans_from_protocol(protocol))


def train_only(job: CellJob, ray_address: str, report: Report | None = None) -> TrainingResult:
    """Train the cell, if it is not trained.

    Raises:
        CellFailedError: training failed; the cell's state says why.
        KeyboardInterrupt: the state is ``interrupted``; the same call continues.
    """
    with job.run.locked():
        return _train(job, ray_address, report)


def evaluate_only(job: CellJob, report: Report | None = None) -> Record:
    """Evaluate and record a cell that is trained.

    Raises:
        UserError: it is not trained yet.
        CellFailedError: the evaluation failed; the cell's state says why.
        KeyboardInterrupt: the state is ``interrupted``; the same call continues.
    """
    with job.run.locked():
        done = existing_record(job)
        if done is not None:
            return done
        if not job.run.trained.exists():
            raise UserError(
                f"cell {job.cell.id} is not trained in {job.places.runs}: run `reuse-bench train` for it first"
            )
        result = training.read_result(job.run)
        if result.collapse:
            return _record(job, "collapsed", result)
        return _record(job, "done", result, _evaluate(job, report))


def _state(job: CellJob) -> CellState:
    """The cell's state, new when it was never started.

    Raises:
        UserError: the folder holds a run under another version of the protocol.
    """
    state = job.run.read_state()
    if state is None:
        return CellState(cell=job.cell.id, protocol_digest=job.protocol.digest)
    if state.protocol_digest != job.protocol.digest:
        raise UserError(
            f"{job.run.state_file}: field protocol_digest: {state.protocol_digest[:12]} is not that of "
            f"{job.protocol.id} ({job.protocol.digest[:12]}); choose another folder with --runs, or remove the cell's"
        )
    return state


def _train(job: CellJob, ray_address: str, report: Report | None) -> TrainingResult:
    if job.run.trained.exists():
        return training.read_result(job.run)
    total = job.protocol.update.updates

    def progress(done: int, _: int, score: float | None) -> None:
        if report:
            report(job.cell, "training", done, total, "" if score is None else f"score {score:.3f}")

    if report:
        report(job.cell, "training", 0, total, "starting")
    model = resolve_model(job.protocol.model(job.cell.model))
    with _step(job, "training", "trained") as attempt:
        result = training.train_cell(
            job.protocol,
            job.cell,
            job.run,
            model,
            ray_address,
            progress=progress,
        )
        if result.collapse:
            attempt["outcome"], attempt["reason"] = "collapsed", result.collapse
        return result


def _evaluate(job: CellJob, report: Report | None) -> dict[str, Path]:
    def progress(done: int, total: int, what: str) -> None:
        if report:
            report(job.cell, "evaluating", done, total, what)

    with _step(job, "evaluating", "evaluating"):
        return evaluation.evaluate_checkpoint(
            job.run.final,
            evaluation.plans_from_protocol(job.protocol),
            job.run.evaluation,
            seed=job.cell.seeds.evaluation,
            engine=evaluation.engine_from_protocol(job.protocol),
            progress=progress,
        )


@contextmanager
def _step(job: CellJob, during: CellStatus, after: CellStatus) -> Iterator[dict[str, Any]]:
    """Keep the state true around a step, however the step ends. Yields facts of a training attempt to fill in."""
    state = _with_killed_attempt(job, _state(job))
    started, clock = now(), time.monotonic()
    at = training.resume_point(job.run, job.cell)
    attempt: dict[str, Any] = {"outcome": "completed", "reason": None}
    running: dict[str, Any] = {"status": during, "detail": None, "began": started, "began_at_update": at}
    status: CellStatus = after
    try:
        job.run.write_state(state.model_copy(update=running))
        yield attempt
        if attempt["outcome"] == "collapsed":
            status = "collapsed"
    except (KeyboardInterrupt, SystemExit):
        status, attempt["outcome"], attempt["reason"] = "interrupted", "interrupted", "stopped by its user"
        raise
    except BaseException as error:
        full = full_disk(error, job.run.root)
        if full:
            training.drop_incomplete_checkpoints(job.run)  # of no use, and the state needs a place too
        known = isinstance(error, TrainingError | EvaluationError | UserError)
        reason = str(full or error) if full or known else f"{type(error).__name__}: {error}"
        status, attempt["outcome"], attempt["reason"] = "failed", "failed", reason
        if full:
            raise full from error
        if isinstance(error, TrainingError | EvaluationError):
            raise CellFailedError(f"{job.cell.id}: {error}") from error
        raise
    finally:
        seconds = time.monotonic() - clock
        changes: dict[str, Any] = running | {"status": status, "detail": attempt["reason"]}
        if during == "training":
            changes["training_seconds"] = state.training_seconds + seconds
            changes["attempts"] = [
                *state.attempts,
                Attempt(
                    started=started,
                    ended=now(),
                    first_update=at + 1,
                    last_update=len(job.run.read_updates()),
                    outcome=attempt["outcome"],
                    reason=attempt["reason"],
                ),
            ]
        else:
            changes["evaluation_seconds"] = state.evaluation_seconds + seconds
        try:
            job.run.write_state(state.model_copy(update=changes))
        except OSError:
            if status != "failed":  # otherwise the disk may be full, and what has failed is said already
                raise


def note_failure(job: CellJob, status: Literal["waiting", "failed"], reason: str) -> None:
    """Write down that the latest step has failed, for a process that may have died without a word."""
    state = job.run.read_state()
    if state:
        state = _with_killed_attempt(job, state, reason)
        job.run.write_state(state.model_copy(update={"status": status, "detail": reason}))


def _with_killed_attempt(job: CellJob, state: CellState, reason: str = "its process was killed") -> CellState:
    """The state with a step that could not write itself down, because its process was killed: what it took at least."""
    if state.status not in ("training", "evaluating") or state.began is None:
        return state
    updates, began = job.run.read_updates(), datetime.fromisoformat(state.began).timestamp()
    if state.status == "evaluating":
        written = [path.stat().st_mtime for path in job.run.evaluation.rglob("*") if path.is_file()]
        seconds = max(0.0, max(written, default=began) - began)
        return state.model_copy(update={"evaluation_seconds": state.evaluation_seconds + seconds})
    seconds = max(0.0, job.run.updates.stat().st_mtime - began) if updates else 0.0
    attempt = Attempt(
        started=state.began,
        ended=None,
        first_update=state.began_at_update + 1,
        last_update=len(updates),
        outcome="interrupted",
        reason=reason,
    )
    changes = {"attempts": [*state.attempts, attempt], "training_seconds": state.training_seconds + seconds}
    return state.model_copy(update=changes)


def record_failure(job: CellJob) -> Record | None:
    """A record of a cell that is given up: with the curve as far as it got. None when it never reached training."""
    with job.run.locked():
        return _record(job, "failed", None) if job.run.prompts.exists() else None


def _record(
    job: CellJob,
    status: Literal["done", "collapsed", "failed"],
    result: TrainingResult | None,
    samples: Mapping[str, Path] | None = None,
) -> Record:
    state = _state(job)
    path = record_cell(
        job.protocol,
        job.cell,
        job.run,
        resolve_model(job.protocol.model(job.cell.model)),
        training.worker_spec(job.protocol, job.cell, job.run),
        state,
        job.places.results,
        status=status,
        result=result,
        plans=evaluation.plans_from_protocol(job.protocol) if samples else (),
        samples=samples,
        command=job.command,
    )
    record = read_record(path)
    job.run.write_state(state.model_copy(update={"status": status, "record": record.id}))
    return record
