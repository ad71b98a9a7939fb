"""What `updates.jsonl` says about a training run: the scores that the paper reports, from one line a policy update."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from methods.errors import UserError

EARLY_SHARE = 1 / 4
"""The early window ends here: update 256 of 1,024."""

LATE_SHARE = 7 / 8
"""The late window starts here: update 896 of 1,024."""


def read_updates(path: Path) -> list[dict[str, Any]]:
    """The lines of ``updates.jsonl``, in file order.

    Raises:
        UserError: the file is missing, or a line is not a JSON object with an ``update``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run the cell again") from error
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            document = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}: line {number} is no JSON ({error.msg}); restore the file or rerun") from error
        if not isinstance(document, dict) or not isinstance(document.get("update"), int):
            raise UserError(f"{path}: line {number}: field update is missing; restore the file or rerun the cell")
        lines.append(document)
    return lines


def early_score(lines: Sequence[Mapping[str, Any]], planned: int) -> float | None:
    """Highest score of a rollout batch among updates 1..planned/4; None when no such update was made."""
    window: list[float] = [line["score"] for line in lines if line["update"] <= planned * EARLY_SHARE]
    return max(window, default=None)


def late_score(lines: Sequence[Mapping[str, Any]], planned: int) -> float | None:
    """Mean score over updates 7/8 planned..planned; None when the run ended before its last update.

    Each line carries the score of its rollout batch, so that the plain mean over lines weights a batch by the policy
    updates that it fed, as the paper does.
    """
    if not lines or lines[-1]["update"] < planned:
        return None
    window: list[float] = [line["score"] for line in lines if line["update"] >= planned * LATE_SHARE]
    return sum(window) / len(window)


def mean_score(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean score over all updates: the area under the curve divided by its length."""
    return float(sum(line["score"] for line in lines)) / len(lines) if lines else None


def final_score(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Score of the last rollout batch."""
    return float(lines[-1]["score"]) if lines else None
