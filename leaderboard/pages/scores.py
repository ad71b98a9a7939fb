"""The tables of a board: held-out, training, against the paper, and the short one of a crowded front page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from harness.records import GRADERS
from leaderboard import published, tables
from leaderboard.charts import clean, number
from leaderboard.pages.addresses import Addresses
from leaderboard.pages.boards import Arm, Board, method_sort, task_title
from leaderboard.pages.cells import (
    VERDICT_TONES,
    as_rows,
    hours_cell,
    hours_label,
    in_percent,
    interval,
    paper_cells,
    seeds_cell,
    status_cell,
)
from leaderboard.pages.tables import VIEWS, Cell, Column, Group, Row, Table

MACRO = published.MACRO
MARKS = (
    "★ best, and distinguishable from every other method at its N (paired by problem, Holm-adjusted). ≈ cannot be told "
    "apart from the highest. No mark: the data separate nothing, or another is better."
)
PRINTED, RULE = "index.html#published", "how.html#published"
"""Where the published numbers stand, and how ours are held against them."""
NAMES = 6
"""A sentence names so many methods, and counts the others."""


@dataclass(frozen=True)
class BoardScores:
    """What figures ask for: the score of an arm in a view, with its interval.

    ``frames``: view -> (method, N) -> task -> row of `leaderboard.tables.heldout`.
    """

    frames: Mapping[str, Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]]]

    def __call__(self, arm: Arm, view: str, task: str) -> tuple[float, float, float] | None:
        """Value and bounds in [0, 1]; None without any. ``task`` may be "macro"."""
        rows = self.frames.get(view, {}).get((arm.method, arm.reuse or 0), {})
        row = rows.get(MACRO if task == "macro" else task)
        if row is None and task == "macro" and len(rows) == 1:
            row = next(iter(rows.values()))
        if row is None or clean(row["score"]) is None:
            return None
        return row["score"], row["low"], row["high"]


@dataclass(frozen=True)
class BoardView:
    """A board with its tables and the scores that figures ask for."""

    board: Board
    heldout: Table | None
    training: Table | None
    check: Table | None
    short: Table | None
    words: Sequence[tuple[str, Mapping[str, Markup]]]
    scores: BoardScores
    comparisons: Mapping[tuple[str, str], list[dict[str, Any]]]
    k: int


def make_view(board: Board, addresses: Addresses) -> BoardView:
    """All tables of a board, from the records."""
    samples = [t.sampling.samples_per_problem for run in board.runs for t in run.record.evaluation.values()]
    k = min(samples, default=1)
    pairs = tables.comparisons(board.results)
    frames: dict[str, dict[tuple[str, int], dict[str, dict[str, Any]]]] = {}
    blocks: dict[str, dict[tuple[int, str], list[dict[str, Any]]]] = {}
    for view in VIEWS if samples else ():
        grader, measure = view.split("-")
        if measure == "k" and k == 1:
            continue
        frame = tables.heldout(
            board.results,
            grader=grader,  # type: ignore[arg-type]
            k=1 if measure == "1" else k,
            pairs=pairs if view == VIEWS[0] else None,
        )
        by_arm = frames.setdefault(view, {})
        by_block = blocks.setdefault(view, {})
        for row in as_rows(frame):
            by_arm.setdefault((row["method"], row["reuse"]), {})[row["task"]] = row
            by_block.setdefault((row["reuse"], row["task"]), []).append(row)
    if samples and k == 1:
        # The page's switch offers pass@k, which is then the same number.
        for grader in GRADERS:
            frames[f"{grader}-k"], blocks[f"{grader}-k"] = frames[f"{grader}-1"], blocks[f"{grader}-1"]
    heldout = _heldout(board, frames, blocks, k, addresses) if samples else None
    short = _short(board, frames, blocks, addresses) if samples else None
    return BoardView(
        board,
        heldout,
        _training(board, addresses),
        _check(board, frames.get(VIEWS[0], {}), addresses),
        short,
        _words(board, blocks),
        BoardScores(frames),
        _comparisons(pairs),
        k,
    )


def _comparisons(pairs: pd.DataFrame) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Pair in the order of the pages -> rows of `leaderboard.tables.comparisons`, the second minus the first."""
    by_pair: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in as_rows(pairs):
        if method_sort(row["first"]) < method_sort(row["second"]):
            row |= {
                "first": row["second"],
                "second": row["first"],
                "difference": -row["difference"],
                "low": -row["high"],
                "high": -row["low"],
                "improvement": 1 - row["improvement"],
            }
        by_pair.setdefault((row["second"], row["first"]), []).append(row)
    return by_pair


def _score_cell(
    row: Mapping[str, Any] | None, block: Sequence[Mapping[str, Any]], href: str = "", note: str = ""
) -> Cell:
    if row is None or clean(row["score"]) is None:
        return Cell("–", note=note, href=href)
    value = float(row["score"])
    return Cell(
        number(100 * value),
        100 * value,
        in_percent(row["low"]),
        in_percent(row["high"]),
        interval(row["low"], row["high"]),
        note,
        href,
        tables.mark(row, block),
        tip=str(row["leaves_out"]),
    )


def _heldout(
    board: Board,
    frames: Mapping[str, Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]]],
    blocks: Mapping[str, Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]],
    k: int,
    addresses: Addresses,
) -> Table:
    tasks = board.tasks
    columns = [*tasks, MACRO] if len(tasks) > 1 else list(tasks)
    with_paper = any(
        clean(rows.get(columns[-1], {}).get("published")) is not None for rows in frames[VIEWS[0]].values()
    )
    titles = [
        Column("method", "Method", number=False),
        *(Column(task, task_title(task), href=addresses.task(task)) for task in tasks),
    ]
    if len(tasks) > 1:
        titles.append(Column("macro", "Macro average", tip="plain mean of the benchmarks"))
    if with_paper:
        titles += [
            Column(
                "paper", "Paper", tip="macro average as published, pass@1, published grader; not run here", href=PRINTED
            ),
            Column("verdict", "Verdict", number=False, tip="the published value against our interval", href=RULE),
        ]
    titles += [
        Column("seeds", "Seeds", optional=True, tip="seeds with held-out scores, of all runs"),
        Column("status", "Status", number=False, optional=True),
        Column("hours", hours_label(board), optional=True, tip="all runs of the row together"),
    ]
    groups = []
    for reuse in [None, *board.ratios]:
        rows = []
        for arm in board.arms:
            if arm.reuse != reuse:
                continue
            href = addresses.evidence(arm, board)
            own = frames[VIEWS[0]].get((arm.method, arm.reuse or 0), {})
            cells = [_name_cell(arm, addresses)]
            for task in columns:
                views = {
                    view: _score_cell(
                        frames[view].get((arm.method, arm.reuse or 0), {}).get(task),
                        blocks[view].get((arm.reuse or 0, task), ()),
                        href,
                        arm.lost,
                    )
                    for view in frames
                }
                cells.append(_in_views(views))
            if with_paper:
                cells += paper_cells(own.get(columns[-1], {}))
            cells += [seeds_cell(arm, href), status_cell(arm), hours_cell(arm)]
            rows.append(Row(cells, f"{arm.title} {arm.method}", reference=arm.reuse is None))
        if rows:
            label = "Not trained here" if reuse is None else f"N = {reuse}"
            groups.append(Group(label, rows, key=str(reuse or 0)))
    measure = f" (or pass@{k})" if k > 1 else ""
    return Table(
        f"heldout-{board.key}",
        f"Held-out pass@1{measure} in percent, final checkpoint, with 95 % intervals. {board.model}, "
        f"protocol {board.protocol} version {board.version}.",
        titles,
        groups,
        group_label="N",
        notes=[
            MARKS,
            *_unranked(row for arm in frames[VIEWS[0]].values() for row in arm.values()),
            *(
                ["The interval of a row with one seed leaves out how the score varies with it, and separates nothing."]
                if any(len(arm.evaluated) == 1 and arm.reuse is not None for arm in board.arms)
                else []
            ),
        ],
        switches=True,
    )


def _short(
    board: Board,
    frames: Mapping[str, Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]]],
    blocks: Mapping[str, Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]],
    addresses: Addresses,
) -> Table:
    """Methods by N: the macro average only, and what it took. The first thing that a reader sees of a board."""
    task = MACRO if len(board.tasks) > 1 else board.tasks[0]
    rows = []
    for method in board.methods:
        arms = [board.arm(method, reuse) for reuse in board.ratios]
        there = [arm for arm in arms if arm]
        cells = [_name_cell(there[0], addresses)]
        for reuse, arm in zip(board.ratios, arms, strict=True):
            if arm is None:
                cells.append(Cell("not run", tone="quiet"))
                continue
            href = addresses.evidence(arm, board)
            cells.append(
                _in_views(
                    {
                        view: _score_cell(
                            frames[view].get((method, reuse), {}).get(task),
                            blocks[view].get((reuse, task), ()),
                            href,
                            arm.status if arm.lost else "",
                        )
                        for view in frames
                    }
                )
            )
        whole = Arm(method, there[0].title, None, tuple(run for arm in there for run in arm.runs))
        cells += [Cell(f"{len(whole.runs):,}", len(whole.runs)), hours_cell(whole)]
        rows.append(Row(cells, f"{whole.title} {method}"))
    label = "macro average" if task == MACRO else task_title(task)
    return Table(
        f"short-{board.key}",
        f"Held-out pass@1, {label} in percent, with 95 % intervals. {board.model}, protocol {board.protocol} version "
        f"{board.version}.",
        [
            Column("method", "Method", number=False),
            *(Column(f"n{reuse}", f"N = {reuse}") for reuse in board.ratios),
            Column("runs", "Runs", tip="all seeds at all N"),
            Column("hours", hours_label(board), tip="all runs of the row together"),
        ],
        [Group("", rows)],
        notes=[MARKS],
        switches=True,
    )


def _in_views(views: Mapping[str, Cell]) -> Cell:
    """One cell for all views; a plain one where no view has a score."""
    if any(cell.value is not None for cell in views.values()):
        return Cell("", views=views)
    return next(iter(views.values()), Cell("–"))


def _name_cell(arm: Arm, addresses: Addresses) -> Cell:
    return Cell(arm.title, arm.title, href=addresses.method(arm.method))


def _training(board: Board, addresses: Addresses) -> Table | None:
    frame = tables.training(board.results)
    if frame.empty:
        return None
    by_arm: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    blocks: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in as_rows(frame):
        by_arm.setdefault((row["method"], row["reuse"]), {})[row["measure"]] = row
        blocks.setdefault((row["reuse"], row["measure"]), []).append(row)
    with_paper = any(clean(row["published"]) is not None for row in as_rows(frame))
    columns = [Column("method", "Method", number=False)]
    for measure, label, tip in (
        ("early", "Early score", "highest score of a rollout batch in the early window"),
        ("late", "Late score", "mean over the updates of the late window"),
        ("mean", "Mean score", "mean over all updates"),
    ):
        columns.append(Column(measure, label, tip=tip))
        if with_paper and measure != "mean":
            columns += [
                Column(f"{measure}_paper", "Paper", tip="as published; not run here", href=PRINTED),
                Column(f"{measure}_verdict", "Verdict", number=False, href=RULE),
            ]
    columns += [
        Column("seeds", "Seeds", optional=True),
        Column("status", "Status", number=False, optional=True),
        Column("hours", hours_label(board), optional=True, tip="all runs of the row together"),
    ]
    groups = []
    for reuse in board.ratios:
        rows = []
        for arm in board.arms:
            if arm.reuse != reuse:
                continue
            href = addresses.evidence(arm, board)
            own = by_arm.get((arm.method, reuse), {})
            cells = [_name_cell(arm, addresses)]
            for measure in ("early", "late", "mean"):
                cells.append(_score_cell(own.get(measure), blocks.get((reuse, measure), ()), href, arm.lost))
                if with_paper and measure != "mean":
                    cells += paper_cells(own.get(measure, {}))
            cells += [seeds_cell(arm, href, of="training"), status_cell(arm), hours_cell(arm)]
            rows.append(Row(cells, f"{arm.title} {arm.method}"))
        groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
    notes = [
        "Score: mean reward of a rollout batch, on a scale from 0 % when all is wrong to 100 % when all is right; with "
        "rewards of +1 and -1, (mean reward + 1) / 2."
    ]
    notes += _unranked(row for arm in by_arm.values() for row in arm.values())
    if any(len(arm.runs) == 1 for arm in board.arms if arm.reuse is not None):
        notes.append("A row with one seed has no interval: how a score varies with the seed is not known.")
    return Table(
        f"training-{board.key}",
        f"Training score in percent, with 95 % intervals over seeds. {board.model}, protocol {board.protocol} "
        f"version {board.version}.",
        columns,
        groups,
        group_label="N",
        notes=notes,
    )


def _check(
    board: Board, by_arm: Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]], addresses: Addresses
) -> Table | None:
    """Ours against the paper's, benchmark by benchmark."""
    rows_by_reuse: dict[int, list[Row]] = {}
    tasks = [*board.tasks, MACRO] if len(board.tasks) > 1 else board.tasks
    for arm in board.arms:
        own = by_arm.get((arm.method, arm.reuse or 0), {})
        if arm.reuse is None or not any(clean(row["published"]) is not None for row in own.values()):
            continue
        cells = [_name_cell(arm, addresses)]
        for task in tasks:
            row = own.get(task)
            if row is None or clean(row["published"]) is None:
                cells.append(Cell("–"))
                continue
            verdict = str(row["verdict"])
            cells.append(
                Cell(
                    f"{number(in_percent(row['score']))} / {number(100 * row['published'])}",
                    verdict,
                    spread=verdict,
                    href=addresses.evidence(arm, board),
                    tone=VERDICT_TONES.get(verdict, ""),
                    tip=str(row["verdict_reason"]),
                )
            )
        rows_by_reuse.setdefault(arm.reuse, []).append(Row(cells, arm.title))
    if not rows_by_reuse:
        return None
    return Table(
        f"published-check-{board.key}",
        f"Ours / the paper's, pass@1 in percent, published grader, {board.model}.",
        [
            Column("method", "Method", number=False),
            *(Column(task, "Macro average" if task == MACRO else task_title(task)) for task in tasks),
        ],
        [Group(f"N = {reuse}", rows, key=str(reuse)) for reuse, rows in sorted(rows_by_reuse.items())],
        group_label="N",
        notes=["The paper prints no interval for these numbers, and one run for each; see “How it is computed”."],
    )


def _unranked(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What it means that a row has lost runs, where one has."""
    if not any(clean(row["score"]) is not None and not row["ranked"] for row in rows if row["method"] != tables.BASE):
        return []
    return [
        "Where runs collapsed or failed, the score is the mean of those that came through, which flatters the method: "
        "it is shown and can be behind others, and it is never ranked above or tied with them."
    ]


def _words(
    board: Board, blocks: Mapping[str, Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]]
) -> list[tuple[str, Mapping[str, Markup]]]:
    """For each N what the data say about the macro average, in one or two sentences for each view."""
    task = MACRO if len(board.tasks) > 1 else next(iter(board.tasks), "")
    out: list[tuple[str, Mapping[str, Markup]]] = []
    for reuse in board.ratios:
        said = {view: _who_wins(by_block.get((reuse, task), ())) for view, by_block in blocks.items()}
        if said:
            out.append((f"N = {reuse}", said))
    base = {
        view: Markup("{}, before any training").format(number(in_percent(row["score"])))
        for view, by_block in blocks.items()
        for row in by_block.get((0, task), ())
        if clean(row["score"]) is not None
    }
    return [*out, ("Base model", base)] if base else out


def _who_wins(block: Sequence[Mapping[str, Any]]) -> Markup:
    scored = [row for row in block if clean(row["score"]) is not None]
    if not scored:
        return Markup("No method has a score.")
    lossy = [row for row in scored if not row["ranked"]]
    rest = Markup(" {} lost runs and {} not ranked.").format(_listed(lossy), "is" if len(lossy) == 1 else "are")
    if len(lossy) == len(scored):
        return Markup("No winner:") + rest
    return _who_is_highest(scored) + (rest if lossy else "")


def _who_is_highest(scored: Sequence[Mapping[str, Any]]) -> Markup:
    ranked = [row for row in scored if row["ranked"]]
    leader = next((row for row in ranked if row["leader"]), ranked[0])
    top = Markup("<strong><bdi>{}</bdi></strong> ({})").format(leader["title"], number(in_percent(leader["score"])))
    if len(scored) == 1:
        return Markup("Only {} has a score: there is nothing to compare it with.").format(top)
    others = [row for row in scored if row is not leader]
    tied = [row for row in others if row["tied"]]
    beaten = [row for row in others if not row["tied"] and row["score"] <= leader["score"]]
    if len(beaten) == len(others):
        return Markup("{} is best, and distinguishable from every other method.").format(top)
    if not tied:  # a method that lost runs is higher, by more than chance
        return Markup("No winner: {} is highest of those whose runs all came through.").format(top)
    if beaten:
        said = Markup("No single winner: {} is highest and better than {}, but cannot be told apart from {}.").format(
            top, _listed(beaten), _listed(tied)
        )
    else:
        said = Markup("No winner: {} is highest, and no other method can be told apart from it.").format(top)
    gaps = [gap for row in tied if (gap := in_percent(row["detectable"])) is not None]
    if gaps and max(gaps) >= 100:
        said += " The data are too few to find a difference of any size."
    elif gaps:
        said += f" A difference under {number(max(gaps))} points could have been missed."
    alone = [row for row in ranked if row["seeds"] == 1]
    if alone:
        said += Markup(" {} {} one seed with a score, which separates nothing.").format(
            _listed(alone), "has" if len(alone) == 1 else "have"
        )
    return said


def _listed(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """The methods of some rows as words: "GRPO, GSPO and VESPO"."""
    if not rows:
        return Markup("")
    names = [Markup("<bdi>{}</bdi>").format(row["title"]) for row in rows[:NAMES]]
    if len(rows) > NAMES:
        names.append(Markup(f"{len(rows) - NAMES} more"))
    return names[0] if len(names) == 1 else Markup(", ").join(names[:-1]) + Markup(" and ") + names[-1]
