"""What `updates.jsonl` says about a training run: the scores that the paper reports, from one line a policy update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.records import FileRef, TrainingSummary, load_json, regular
from methods.errors import UserError

Line = Mapping[str, Any]
Window = tuple[int, int]
"""First and last policy update, both included."""
LARGEST = 1e100
"""No number of a line is larger: sums over lines stay finite."""
MOST_FIELDS = 500
_NUMBERS = ("mini_batch", "loss", "reward", "learning_rate", "gradient_norm", "truncated", "seconds", "responses")


def read_updates(path: Path, stated: TrainingSummary | None = None) -> list[dict[str, Any]]:
    """The lines of ``updates.jsonl``, in file order.

    Args:
        path: the file.
        stated: what a record says of it, where the lines must be as many as that.

    Raises:
        UserError: the file cannot be read, a line is no JSON object with whole ``update`` and ``rollout`` and a finite
            ``score``, a field that is a number in ours is none, the updates are not 1, 2, 3, ..., or there are others
            than stated.
    """
    try:
        text = regular(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}): restore it or run the cell again") from error
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            document = load_json(line)
        except (ValueError, RecursionError) as error:
            raise _damaged(path, number, f"no JSON ({getattr(error, 'msg', error)})") from error
        if not isinstance(document, dict):
            raise _damaged(path, number, "no JSON object")
        if document.get("update") != number:
            raise _damaged(path, number, f"field update is {document.get('update')!r} instead of {number}")
        if not isinstance(document.get("rollout"), int) or isinstance(document["rollout"], bool):
            raise _damaged(path, number, f"field rollout is {document.get('rollout')!r}, no whole number")
        score = document.get("score")
        if not is_number(score):
            raise _damaged(path, number, f"field score is {score!r}, no finite number")
        for name in _NUMBERS:
            if not (document.get(name) is None or is_number(document[name])):
                raise _damaged(path, number, f"field {name} is {document[name]!r}, no number")
        if len(document) > MOST_FIELDS:
            raise _damaged(path, number, f"it has {len(document)} fields, more than {MOST_FIELDS}")
        for name, value in document.items():
            if isinstance(value, float) and abs(value) > LARGEST:
                raise _damaged(path, number, f"field {name} is {value!r}, beyond all measure")
        lines.append(document)
    if stated is not None and len(lines) != stated.updates:
        raise UserError(
            f"{path}: it has {len(lines)} policy updates, and its record says {stated.updates}: restore the file or "
            "run the cell again"
        )
    return lines


def is_number(value: Any) -> bool:
    """A number of JSON: in Python, true and false would be some too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _damaged(path: Path, number: int, what: str) -> UserError:
    return UserError(f"{path}: line {number}: {what}: restore the file or run the cell again")


def check_diagnostics(line: Line, path: Path) -> None:
    """Refuse a line whose diagnostics are missing, or of another form than ours.

    Raises:
        UserError: naming the file and the line.
    """
    from methods.diagnostics import LOG_WEIGHT_EDGES, over_updates  # which wants torch

    bins = len(LOG_WEIGHT_EDGES) + 1
    try:
        for sign in ("positive", "negative"):
            part = line["log_weight"][sign]
            if len(part["counts"]) != bins or len(part["mass"] or part["counts"]) != bins:
                raise ValueError
            if any(value > LARGEST for value in part["mass"] or ()):
                raise ValueError
        over_updates([line])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, line["update"], "field log_weight or another diagnostic is missing or damaged") from error


def early_score(lines: Sequence[Line], window: Window) -> float | None:
    """Highest score of a rollout batch that was used in the window; None when no update fell into it."""
    scores = _inside(lines, window)
    return max(scores, default=None)


def late_score(lines: Sequence[Line], window: Window) -> float | None:
    """Mean score over the updates of the window; None when the run ended before the window did.

    Each line carries the score of its rollout batch, so that the plain mean over lines weights a batch by the policy
    updates that it fed, as the paper does.
    """
    scores = _inside(lines, window)
    if not scores or lines[-1]["update"] < window[1]:
        return None
    return math.fsum(scores) / len(scores)


def mean_score(lines: Sequence[Line]) -> float | None:
    """Mean score over all updates: the area under the training curve divided by its length."""
    return math.fsum(line["score"] for line in lines) / len(lines) if lines else None


def final_score(lines: Sequence[Line]) -> float | None:
    """Score of the last rollout batch."""
    return float(lines[-1]["score"]) if lines else None


def _inside(lines: Sequence[Line], window: Window) -> list[float]:
    first, last = window
    return [float(line["score"]) for line in lines if first <= line["update"] <= last]


def training_summary(
    lines: Sequence[Line],
    *,
    early: Window,
    late: Window,
    reuse: int,
    curve: FileRef,
    collapse: str | None = None,
) -> TrainingSummary:
    """Everything that a record says about training, from the lines of its curve file.

    ``response_tokens`` is the sum over updates of mean response length times responses, rounded.

    Args:
        lines: as `read_updates` returns them.
        early: window whose highest score is the early score.
        late: window whose mean score is the late score.
        reuse: N, policy updates per rollout batch.
        curve: the file that the lines come from.
        collapse: why the run counts as collapsed, if it does.
    """
    return TrainingSummary(
        updates=len(lines),
        rollouts=lines[-1]["rollout"] if lines else 0,
        updates_per_rollout=reuse,
        response_tokens=round(math.fsum((line.get("mean_length") or 0) * line.get("responses", 0) for line in lines)),
        early_score=early_score(lines, early),
        late_score=late_score(lines, late),
        mean_score=mean_score(lines),
        final_score=final_score(lines),
        curve=curve,
        collapse=collapse,
    )
