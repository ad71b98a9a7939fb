"""What a record says of itself: its shape, its times, its parts of sets, and that it contradicts itself nowhere."""

from __future__ import annotations

from datetime import datetime

from harness.records import Record
from harness.verification import plausibility
from harness.verification.checked import Checked
from harness.verification.closed import check_closed
from harness.verification.samples import MATH_VERIFY
from methods.errors import UserError
from tasks import datasets


def check_statements(one: Checked, record: Record) -> None:
    """What a record says of itself: protocol, division, seeds, method, provenance, status."""
    if record.division == "open" and not record.deviations:
        one.error("deviations", "a record of the open division must say how it deviates")
    if record.division == "closed":
        check_closed(one, record)
    _check_shape(one, record)
    for name, message in plausibility.contradictions(record):
        one.error(name, message)
    for name, message in plausibility.from_the_future(record):
        one.note(name, message)
    _check_subsets(one, record)
    _check_times(one, record)
    if record.provenance.dirty and record.provenance.diff_sha256 is None:
        one.error("provenance.diff_sha256", "a dirty tree needs the digest of its difference")
    if record.evaluation and MATH_VERIFY not in record.provenance.packages:
        one.error(f"provenance.packages.{MATH_VERIFY}", "the version of the grader is missing")


def _check_shape(one: Checked, record: Record) -> None:
    trained = record.kind == "trained"
    for name, value in (("method", record.method), ("reuse", record.reuse)):
        if trained and value is None:
            one.error(name, "a trained record needs it")
        if record.kind == "base" and value is not None:
            one.error(name, "a base model has none")
    if record.kind == "base" and record.training is not None:
        one.error("training", "a base model has none")
    if record.status == "failed" and not record.failure:
        one.error("failure", "a failed record needs the reason")
    if record.status != "failed" and record.failure:
        one.error("failure", f"stated, but the status is {record.status}")
    if record.status == "done" and not record.evaluation:
        one.error("evaluation", "a record that is done needs it")
    for task, result in record.evaluation.items():
        if result.task != task:
            one.error(f"evaluation.{task}.task", f"{result.task!r} instead of {task!r}")
    if trained and record.training and record.checkpoint and record.checkpoint.update != record.training.updates:
        one.error(
            "checkpoint.update", f"{record.checkpoint.update}, but training made {record.training.updates} updates"
        )
    if trained and record.status == "done" and record.checkpoint is None:
        one.error("checkpoint", "a record that is done needs it")
    rows = {data.name: data.rows for data in record.data if data.role == "evaluation"}
    for task, result in record.evaluation.items():
        if task in rows and rows[task] != result.problems:
            one.error(f"evaluation.{task}.problems", f"{result.problems}, but the data set has {rows[task]} rows")


def _check_subsets(one: Checked, record: Record) -> None:
    """A task that asks a part of a set must have asked the part that its name says, where the set is at hand."""
    for task in sorted(set(record.evaluation) & set(datasets.subsets())):
        part = datasets.subsets()[task]
        try:
            asked = datasets.evaluation_problems(task)
        except UserError:
            one.note(f"evaluation.{task}.problem_ids", f"not compared with {part.of}, which is not in the data folder")
            continue
        if record.evaluation[task].problem_ids != [problem.id for problem in asked.problems]:
            one.error(f"evaluation.{task}.problem_ids", f"are not the first {part.problems} of {part.of} by id")
        if any(data.digest != asked.digest for data in record.data if data.name == task):
            one.error(f"data.{task}.digest", f"is not that of the first {part.problems} of {part.of} by id")


def _check_times(one: Checked, record: Record) -> None:
    moments = [("provenance.started", record.provenance.started), ("provenance.ended", record.provenance.ended)]
    for number, attempt in enumerate(record.attempts):
        moments.append((f"attempts.{number}.started", attempt.started))
        if attempt.ended is not None:
            moments.append((f"attempts.{number}.ended", attempt.ended))
    parsed = {}
    for name, text in moments:
        try:
            parsed[name] = datetime.fromisoformat(text)
        except ValueError:
            one.error(name, f"{text!r} is no ISO 8601 time")
            continue
        if parsed[name].tzinfo is None:
            one.error(name, f"{text!r} has no time zone")
            del parsed[name]
    for name, moment in parsed.items():
        start = name.removesuffix("ended") + "started"
        if name.endswith("ended") and start in parsed and moment < parsed[start]:
            one.error(name, "is before the start")
