"""Entries of tables: how numbers, shares, statuses and verdicts are written, in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from harness.records import Record
from leaderboard.charts import clean, number, total
from leaderboard.pages import figures
from leaderboard.pages.boards import Arm, Board
from leaderboard.pages.tables import Cell, Tone

VERDICT_TONES: dict[str, Tone] = {
    "reproduced": "good",
    "holds": "good",
    "contradicted": "bad",
    "fails": "bad",
    "inconclusive": "warn",
    "no data": "quiet",
}
STATUS_TONES: dict[str, Tone] = {"done": "quiet", "collapsed": "bad", "failed": "bad"}


def interval(low: object, high: object, digits: int = 1, scale: float = 100) -> str:
    """An interval as text; empty when a bound is not known."""
    a, b = clean(low), clean(high)
    if a is None or b is None:
        return ""
    between = "–" if a >= 0 else " to "
    return f"{number(scale * a, digits)}{between}{number(scale * b, digits)}"


def typeset(text: str) -> str:
    """Plain text with the signs that it stands for: "+-" is ±, "-0.5" has a minus, "inf" is ∞."""
    for plain, sign in (("+-", "±"), (">=", "≥"), ("<=", "≤"), (" - ", " – "), ("inf)", "∞)")):
        text = text.replace(plain, sign)
    return re.sub(r"(?<![\w-])-(?=\d)", "−", text)


def brief(reasons: str) -> str:
    """Reasons without what each explains after its colon: "one seed: the interval leaves out ..." is "one seed"."""
    return "; ".join(dict.fromkeys(part.partition(":")[0] for part in reasons.split("; ") if part))


def as_float(value: object) -> float | None:
    """A finite float, or None."""
    return clean(float(value)) if isinstance(value, int | float) else None


def status_cell(arm: Arm) -> Cell:
    """How the runs of an arm ended."""
    worst = next((s for s in ("failed", "collapsed") if s in arm.status), "done")
    reasons = {
        reason
        for run in arm.runs
        for reason in (run.record.failure, run.record.training.collapse if run.record.training else None)
        if reason
    }
    return Cell(arm.status, tone=STATUS_TONES[worst], tip="; ".join(sorted(reasons)))


def as_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table of `leaderboard.tables` as mappings."""
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def signed(value: object, digits: int = 1) -> str:
    """A number with its sign always shown."""
    text = number(value, digits)
    known = clean(value)
    return f"+{text}" if known is not None and known > 0 and text.strip("0.") else text


def p_value(value: object) -> str:
    """A p-value with two digits, and never as zero."""
    known = clean(value)
    if known is None:
        return "–"
    return "< 0.0001" if known < 1e-4 else f"{known:.4f}" if known < 0.01 else f"{known:.2f}"


def in_percent(value: object) -> float | None:
    """A share in percent, or None."""
    known = clean(value)
    return None if known is None else 100 * known


@lru_cache(maxsize=4096)  # solve rates of a few samples are the same few numbers, a hundred thousand times
def percent_cell(value: float | None, digits: int = 1) -> Cell:
    """A share in [0, 1], in percent."""
    known = clean(value)
    return Cell("–") if known is None else Cell(number(100 * known, digits), 100 * known)


def share_cell(part: int, whole: int) -> Cell:
    """``part`` of ``whole``, in percent."""
    return Cell(number(100 * part / whole, 2), 100 * part / whole) if whole else Cell("–")


def macro_average(record: Record, tasks: Sequence[str], grader: str) -> float | None:
    """Plain mean of pass@1 over ``tasks``; None where one is missing."""
    if not tasks or any(task not in record.evaluation for task in tasks):
        return None
    return total(record.evaluation[t].scores[grader].pass_at_1 for t in tasks) / len(tasks)  # type: ignore[index]


def board_label(board: Board) -> str:
    """A board in one line, marked when it is small."""
    mark = "small-scale results · " if board.small else ""
    return f"{mark}{board.title}, protocol {board.protocol} version {board.version}"


def hours_label(board: Board) -> str:
    """What `hours_cell` counts."""
    return "GPU-hours" if any(run.record.cost.gpu_hours > 0 for run in board.runs) else "Hours, no GPU"


def hours_cell(arm: Arm) -> Cell:
    """What all runs of an arm took together."""
    whole = total(figures.hours(run) for run in arm.runs)
    return Cell(number(whole, 1 if whole >= 10 else 2), whole)


def seeds_cell(arm: Arm, href: str, of: str = "evaluation") -> Cell:
    """How many runs of an arm have a score."""
    if of == "evaluation":
        count = len(arm.evaluated)
    else:
        count = sum(bool(r.record.training and r.record.training.late_score is not None) for r in arm.runs)
    text = str(count) if count == len(arm.runs) else f"{count} of {len(arm.runs)}"
    return Cell(text, count, href=href)


def paper_cells(row: Mapping[str, Any]) -> list[Cell]:
    """The published value and how it stands against ours."""
    printed = clean(row.get("published"))
    if printed is None:
        return [Cell("–"), Cell("–")]
    verdict = str(row["verdict"])
    return [
        Cell(number(100 * printed), 100 * printed),
        Cell(
            verdict,
            spread=brief(str(row["verdict_reason"])),
            tone=VERDICT_TONES.get(verdict, ""),
            tip=str(row["verdict_reason"]),
        ),
    ]


def where(board: Board) -> str:
    """A board in the caption of a table."""
    return f"{board.title}, protocol {board.protocol} version {board.version}"


def plural(count: int, word: str) -> str:
    """The word for one or for several."""
    return word if count == 1 else f"{word}s"


def some(names: Sequence[str], most: int = 6) -> str:
    """The names, or the first of them and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
