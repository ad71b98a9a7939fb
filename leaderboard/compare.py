"""Two methods, two records, or a method against what was published: what differs, by how much, how sure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.records import Record, read_record
from leaderboard import published, statistics, tables
from methods.errors import UserError

PUBLISHED = "published"
MAJORITY = 0.5
_RECORD_ID = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the records of one cell, or printed numbers (no records)."""

    name: str
    method: str
    records: tuple[Record, ...]

    @property
    def printed(self) -> bool:
        """The side is what the paper printed."""
        return not self.records


@dataclass(frozen=True)
class Flip:
    """A problem that most samples of one side solve and most of the other do not; shares of right samples."""

    problem: str
    first: float
    second: float


@dataclass(frozen=True)
class Row:
    """One benchmark (or macro average). Differences are first minus second, in [-1, 1].

    ``verdict``: "first", "second" (ahead, sure), "undecided"; against printed numbers "reproduced", "contradicted",
    "inconclusive".
    """

    task: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float
    detectable: float
    verdict: str
    words: str
    flips: tuple[Flip, ...] = ()


@dataclass(frozen=True)
class Block:
    """All benchmarks of one model and N."""

    model: str
    reuse: int
    first: str
    second: str
    seeds: tuple[int, int]
    rows: tuple[Row, ...]
    words: str


@dataclass(frozen=True)
class Comparison:
    """Everything that `reuse-bench compare` prints."""

    first: str
    second: str
    kind: Literal["methods", "records", "published"]
    grader: str
    blocks: tuple[Block, ...]

    def as_json(self) -> dict[str, Any]:
        """The same as plain values; NaN becomes null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def compare(
    first: str,
    second: str,
    results: tables.Results,
    *,
    reuse: int | None = None,
    model: str | None = None,
    grader: tables.Grader = "published",
) -> Comparison:
    """Compare two things by name.

    Args:
        first: a method, ``published`` or ``published:METHOD``, the path of a record, or the first characters of its id.
        second: the same.
        results: the records to look in, of one protocol.
        reuse: only this N.
        model: only this model.
        grader: whose verdicts count.

    Raises:
        UserError: a side names nothing, or the two cannot be compared.
    """
    if _is_printed(first) and _is_printed(second):
        raise UserError(f"{first} and {second}: both are printed numbers: `reuse-bench claims` compares those")
    one, two = _record_named(first, results), _record_named(second, results)
    if one is not None and two is not None:
        return _records(first, second, one, two, grader)
    if one is not None or two is not None:
        record, other = (one, second) if one is not None else (two, first)
        assert record is not None
        if not _is_printed(other):
            raise UserError(f"{first} and {second}: one is a record and one is a method: name two of a kind")
        single = tables.Results(results.store, ((results.store, record),))
        return _against_printed(
            first, second, single, _method_of(record), None, None, grader, printed_first=two is not None
        )
    if _is_printed(first) or _is_printed(second):
        own, printed = (second, first) if _is_printed(first) else (first, second)
        asked = printed.partition(":")[2] or own
        if asked != own:
            raise UserError(f"{first} and {second}: a method is compared with its own printed numbers: use {PUBLISHED}")
        _require_method(own, results)
        return _against_printed(first, second, results, own, reuse, model, grader, printed_first=_is_printed(first))
    return _methods(first, second, results, reuse, model, grader)


def _is_printed(name: str) -> bool:
    return name == PUBLISHED or name.startswith(f"{PUBLISHED}:")


def _method_of(record: Record) -> str:
    return record.method.name if record.method else tables.BASE


def _record_named(name: str, results: tables.Results) -> Record | None:
    """The record that a path or the start of an id names; None where the name is neither."""
    if name.endswith(".json"):
        for path in (Path(name), results.store / name):
            if path.is_file():
                return read_record(path)
        raise UserError(f"{name}: there is no such record: `reuse-bench status` lists them")
    methods = {key[-1] for key in results.cells()}
    if name in methods or not _RECORD_ID.fullmatch(name):
        return None
    found = [record for _, record in results.records if record.id.startswith(name)]
    if len(found) > 1:
        raise UserError(f"{name}: {len(found)} records have ids that start so: give more characters")
    return found[0] if found else None


def _require_method(name: str, results: tables.Results) -> None:
    known = sorted({key[-1] for key in results.cells()})
    if name not in known:
        listed = ", ".join(known) or "none"
        raise UserError(f"{name}: {results.store} has no results of that method: there are results of {listed}")


def _records(first: str, second: str, one: Record, two: Record, grader: tables.Grader) -> Comparison:
    shared = [task for task in tables.task_order(one.evaluation) if task in two.evaluation]
    if not shared:
        raise UserError(f"{first} and {second}: the records have no benchmark in common: evaluate both on one")
    sides = (Side(first, _method_of(one), (one,)), Side(second, _method_of(two), (two,)))
    block = _block(*sides, shared, grader, _rows_together([shared]))
    # Two runs are asked about, not two methods: how other seeds would do is no part of the question.
    rows = tuple(replace(row, words=row.words.replace(statistics.ONE_SEED, "").strip("; ")) for row in block.rows)
    (judged,) = _with_holm([replace(block, rows=rows)])
    judged = replace(judged, words=f"{judged.words}. This is about these two runs; other seeds may differ")
    return Comparison(first, second, "records", grader, (judged,))


def _methods(
    first: str,
    second: str,
    results: tables.Results,
    reuse: int | None,
    model: str | None,
    grader: tables.Grader,
) -> Comparison:
    for name in (first, second):
        _require_method(name, results)
    if first == second:
        raise UserError(f"{first}: is compared with itself: name two methods")
    cells = results.cells()
    found = []
    for key, records in cells.items():
        other = cells.get((*key[:-1], second))
        if key[-1] != first or other is None or (reuse not in (None, key[3])) or (model not in (None, key[2])):
            continue
        tasks = results.tasks[key[0]]
        usable = [
            task
            for task in tasks
            if any(task in record.evaluation for record in records) and any(task in r.evaluation for r in other)
        ]
        if usable:
            found.append((Side(first, first, tuple(records)), Side(second, second, tuple(other)), usable))
    if not found:
        where = "".join(
            f" with {name} {value}" for name, value in (("N =", reuse), ("model", model)) if value is not None
        )
        raise UserError(f"{first} and {second}: {results.store} has no evaluated cells of both{where}: run them first")
    among = _rows_together(usable for _, _, usable in found)
    blocks = [_block(one, two, usable, grader, among) for one, two, usable in found]
    return Comparison(first, second, "methods", grader, _with_holm(blocks))


def _rows_together(blocks: Iterable[Sequence[str]]) -> Mapping[bool, int]:
    """The rows of all blocks: single benchmarks (False), and macro averages (True), which `_with_holm` keeps apart."""
    return Counter(task == published.MACRO for tasks in blocks for task in tables.columns_of(tasks))


def _block(one: Side, two: Side, tasks: Sequence[str], grader: tables.Grader, among: Mapping[bool, int]) -> Block:
    """``among``: how many rows are judged together, of single benchmarks (False) and of macro averages (True)."""
    found = []
    for task in tables.columns_of(tasks):
        names = tasks if task == published.MACRO else (task,)
        first, second = (tables.matrices(side.records, names, grader=grader) for side in (one, two))
        if first is None or second is None:
            continue
        result = tables.compare_cells(
            one.records, two.records, names, grader=grader, among=among[task == published.MACRO]
        )
        assert result is not None
        flips = _flips(one, first[0].mean(axis=0), second[0].mean(axis=0), task) if len(names) == 1 else ()
        found.append(
            Row(
                task,
                float(statistics.seed_scores(first).mean()),
                float(statistics.seed_scores(second).mean()),
                result.difference,
                result.low,
                result.high,
                result.p_value,
                float("nan"),
                result.detectable,
                "",
                result.leaves_out,
                flips,
            )
        )
    record = one.records[0]
    seeds = (_evaluated(one), _evaluated(two))
    return Block(record.model.name, record.reuse or 0, one.name, two.name, seeds, tuple(found), "")


def _evaluated(side: Side) -> int:
    return sum(bool(record.evaluation) for record in side.records)


def _flips(side: Side, first: statistics.Floats, second: statistics.Floats, task: str) -> tuple[Flip, ...]:
    """Problems solved by a majority on one side only, the largest change first."""
    ids = sorted(next(r for r in side.records if task in r.evaluation).evaluation[task].problem_ids)
    changed = np.flatnonzero((first > MAJORITY) != (second > MAJORITY))
    order = sorted(changed, key=lambda index: (-abs(first[index] - second[index]), ids[index]))
    return tuple(Flip(ids[index], float(first[index]), float(second[index])) for index in order)


def _with_holm(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Adjust for all benchmarks and blocks that are shown, the macro averages apart, and say it in words."""
    every = [(row.task == published.MACRO, row.p_value) for block in blocks for row in block.rows]
    adjusted = np.full(len(every), np.nan)
    for macro in (False, True):
        places = [place for place, (kind, _) in enumerate(every) if kind == macro]
        adjusted[places] = statistics.holm([every[place][1] for place in places])
    values = iter(adjusted)
    finished = []
    for block in blocks:
        rows = tuple(_judged(row, float(next(values)), block) for row in block.rows)
        finished.append(
            Block(block.model, block.reuse, block.first, block.second, block.seeds, rows, _summary(rows, block))
        )
    return tuple(finished)


def _judged(row: Row, p_holm: float, block: Block) -> Row:
    sure = p_holm < tables.SIGNIFICANCE and not row.words
    verdict = ("first" if row.difference > 0 else "second") if sure else "undecided"
    leader, trailer = (block.first, block.second) if row.difference > 0 else (block.second, block.first)
    gap = f"{100 * abs(row.difference):.1f} points"
    if sure:
        low, high = sorted((abs(row.low), abs(row.high)))
        words = f"{leader} is ahead of {trailer} by {gap} ({100 * low:.1f} to {100 * high:.1f})"
    elif row.words:
        words = f"undecided: {gap} apart, but {row.words}"
    elif row.detectable >= 1:
        words = f"undecided: {gap} apart; the data are too few to find a difference of any size"
    else:
        words = f"undecided: {gap} apart; a difference of {100 * row.detectable:.1f} points would have been found"
        words += " with 80 % probability"
    return replace(row, p_holm=p_holm, verdict=verdict, words=words)


def _summary(rows: Sequence[Row], block: Block) -> str:
    """The macro average's sentence where there is one, and how many benchmarks agree with it."""
    single = [row for row in rows if row.task != published.MACRO]
    macro = next((row for row in rows if row.task == published.MACRO), rows[0])
    ahead = {
        name: sum(row.verdict == side for row in single)
        for side, name in (("first", block.first), ("second", block.second))
    }
    counts = ", ".join(f"{name} on {count}" for name, count in ahead.items())
    return f"{macro.words}. Of {len(single)} benchmarks, surely ahead: {counts}"


def _against_printed(
    first: str,
    second: str,
    results: tables.Results,
    method: str,
    reuse: int | None,
    model: str | None,
    grader: tables.Grader,
    *,
    printed_first: bool,
) -> Comparison:
    table = tables.heldout(results, grader=grader)
    table = table[(table["method"] == method) & table["published"].notna() & table["score"].notna()]
    blocks = []
    for key, group in tables.groups(table, ["model", "reuse"]):
        found_model, found_reuse = str(key[0]), int(key[1])
        if (reuse not in (None, found_reuse)) or (model not in (None, found_model)):
            continue
        rows = tuple(_printed_row(row, printed_first=printed_first) for row in tables.as_rows(group))
        seeds = int(group["seeds"].max())
        counts = group["verdict"].value_counts()
        words = ", ".join(f"{counts.get(name, 0)} {name}" for name in ("reproduced", "contradicted", "inconclusive"))
        blocks.append(
            Block(
                found_model, int(found_reuse), first, second, (1, seeds) if printed_first else (seeds, 1), rows, words
            )
        )
    if not blocks:
        raise UserError(
            f"{first} and {second}: no printed number belongs to these results: the paper's models are "
            f"{', '.join(dict.fromkeys(published.heldout()['model']))}"
        )
    return Comparison(first, second, "published", grader, tuple(blocks))


def _printed_row(row: dict[str, Any], *, printed_first: bool) -> Row:
    """Ours less the printed number (or the reverse), with the bounds of one further run of ours."""
    ours, theirs = float(row["score"]), float(row["published"])
    gaps = [ours - theirs, row["check_low"] - theirs, row["check_high"] - theirs]
    difference, low, high = (-gaps[0], -gaps[2], -gaps[1]) if printed_first else gaps
    words = f"{row['verdict']}: {100 * ours:.1f} against {100 * theirs:.1f} printed"
    if row["verdict_reason"]:
        words = f"{words} ({row['verdict_reason']})"
    nan = float("nan")
    scores = (theirs, ours) if printed_first else (ours, theirs)
    return Row(row["task"], *scores, difference, low, high, nan, nan, nan, row["verdict"], words)
