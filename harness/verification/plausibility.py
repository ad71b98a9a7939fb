"""What a record says of itself, held against what it says elsewhere: contradictions that need no other file.

A record that was made by hand can be sealed like any other. These checks make it hard to change one statement without
all the others that follow from it; what cannot be found so is listed in ``docs/records.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import methods
from harness.records import Attempt, Record
from methods.errors import UserError

SLACK = timedelta(minutes=1)
"""What clocks that are read one after the other may be apart."""
ENDS = {
    "done": {"completed", "interrupted"},
    "collapsed": {"collapsed", "interrupted"},
    "failed": {"completed", "failed", "interrupted"},
}
"""Status of a record -> how its last attempt to train can have ended. A process that was killed after its last update
left an attempt that was interrupted; where the evaluation failed, the training was completed."""

Contradiction = tuple[str, str]
"""Field and message."""


def contradictions(record: Record) -> Iterator[Contradiction]:
    """Everything in a record that cannot be true together with the rest of it."""
    yield from _kind(record)
    yield from _method(record)
    yield from _numbers(record)
    yield from _attempts(record)
    yield from _times(record)


def from_the_future(record: Record) -> Iterator[Contradiction]:
    """Times that this machine's clock has not reached; the clock may be the one that is wrong."""
    ended = moment(record.provenance.ended)
    if ended is not None and ended > datetime.now(UTC) + timedelta(days=1):
        yield "provenance.ended", f"{record.provenance.ended} is in the future by this machine's clock"


def moment(text: str | None) -> datetime | None:
    """A time with its zone; None where the text is none (`verify` reports that)."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _kind(record: Record) -> Iterator[Contradiction]:
    if record.kind == "external" and record.division == "closed":
        yield "division", "a checkpoint that was trained elsewhere is of the open division"
    if record.kind != "trained":
        for name, value in (("training", record.training), ("checkpoint", record.checkpoint)):
            if value is not None:
                yield name, f"a record of kind {record.kind} has none: nothing was trained here"
        if record.attempts:
            yield "attempts", f"a record of kind {record.kind} has none: nothing was trained here"


def _method(record: Record) -> Iterator[Contradiction]:
    """A name of this package means the loss of this package, under its own title."""
    if record.method is None:
        return
    try:
        known = methods.lookup(record.method.name)
    except UserError:
        return
    if known.origin != "built-in":
        return
    if record.method.origin != "built-in":
        yield "method.origin", f"{record.method.name} is built in, and {record.method.origin!r} may not take its name"
    elif record.method.title != known.card.title:
        yield "method.title", f"{record.method.title!r} instead of {known.card.title!r}"


def _numbers(record: Record) -> Iterator[Contradiction]:
    for name in ("gpu_hours", "training_seconds", "evaluation_seconds"):
        if getattr(record.cost, name) < 0:
            yield f"cost.{name}", f"{getattr(record.cost, name)} is negative"
    if record.training is not None and record.training.updates_per_rollout < 1:
        yield "training.updates_per_rollout", f"{record.training.updates_per_rollout} is not at least 1"
    if record.seeds.run < 0:
        yield "seeds.run", f"{record.seeds.run} is negative"


def _attempts(record: Record) -> Iterator[Contradiction]:
    if record.kind != "trained" or (record.status == "failed" and not record.attempts):
        return
    if not record.attempts:
        yield "attempts", "a trained record names every start"
        return
    for number, attempt in enumerate(record.attempts):
        if not 1 <= attempt.first_update <= attempt.last_update + 1:
            yield (
                f"attempts.{number}.first_update",
                f"{attempt.first_update} does not go with last_update {attempt.last_update}",
            )
    last = record.attempts[-1]
    if last.outcome not in ENDS[record.status]:
        yield f"attempts.{len(record.attempts) - 1}.outcome", f"{last.outcome}, but the status is {record.status}"
    if record.training is not None and record.status != "failed" and last.last_update != record.training.updates:
        yield (
            f"attempts.{len(record.attempts) - 1}.last_update",
            f"{last.last_update}, but training made {record.training.updates} updates",
        )


def _times(record: Record) -> Iterator[Contradiction]:
    started, ended = moment(record.provenance.started), moment(record.provenance.ended)
    if started is None or ended is None:
        return
    before: Attempt | None = None
    for number, attempt in enumerate(record.attempts):
        for name, text in (("started", attempt.started), ("ended", attempt.ended)):
            found = moment(text)
            if found is not None and not started - SLACK <= found <= ended + SLACK:
                yield f"attempts.{number}.{name}", f"{text} is not between the start and the end of the record"
        first, previous = moment(attempt.started), moment(before.ended or before.started) if before else None
        if first is not None and previous is not None and first < previous - SLACK:
            yield f"attempts.{number}.started", "is before the end of the attempt before it"
        before = attempt
    spent = max(0.0, record.cost.training_seconds) + max(0.0, record.cost.evaluation_seconds)
    span = (ended - started).total_seconds()
    if spent > span + SLACK.total_seconds():
        yield "cost", f"{spent:.0f} s of training and evaluation, in {span:.0f} s from start to end"
