"""All pairs of methods in one matrix, and the page of one pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leaderboard import published
from leaderboard.charts import clean, number
from leaderboard.pages import figures
from leaderboard.pages.boards import Board, method_sort, task_title
from leaderboard.pages.cells import (
    as_float,
    brief,
    in_percent,
    interval,
    p_value,
    plural,
    signed,
    where,
)
from leaderboard.pages.content import Content, Page
from leaderboard.pages.panels import Figure
from leaderboard.pages.tables import VIEWS, Cell, Column, Group, Row, Table, Tone

MACRO = published.MACRO


def compare_index_page(content: Content) -> Page:
    """The differences of all pairs of methods."""
    made = [(board, _difference_table(content, board)) for board in content.boards if len(board.methods) > 1]
    return Page(
        "compare.html",
        "compare_index.html",
        {"title": "Compare two methods", "section": "compare", "sections": made},
        [table for _, table in made],
    )


def _difference_table(content: Content, board: Board) -> Table:
    """The method of the row minus that of the column, for each N: every pair at a glance, each with its page."""
    task = MACRO if len(board.tasks) > 1 else next(iter(board.tasks), "")
    found = {
        (row["reuse"], *pair): row
        for pair, rows in content.view(board).comparisons.items()
        for row in rows
        if row["task"] == task
    }
    groups = []
    for reuse in board.ratios:
        rows = []
        for own in board.methods:
            cells = [Cell(content.titles[own], content.titles[own], href=content.addresses.method(own))]
            for other in board.methods:
                ahead = method_sort(own) > method_sort(other)
                row = found.get((reuse, *((other, own) if ahead else (own, other))))
                page = content.addresses.compare(own, other)
                cells.append(Cell("") if own == other else _difference_cell(row, ahead, page))
            rows.append(Row(cells, f"{content.titles[own]} {own}"))
        groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
    sure = sum(bool(row["separated"]) for row in found.values())
    label = "macro average" if task == MACRO else task_title(task)
    return Table(
        f"differences-{board.key}",
        f"Held-out pass@1, {label}, published grader: the method of the row minus that of the column, in points, "
        f"with 95 % intervals. {where(board)}.",
        [
            Column("method", "Method", number=False),
            *(
                Column(name, f"minus {content.titles[name]}", href=content.addresses.method(name))
                for name in board.methods
            ),
        ],
        groups,
        group_label="N",
        notes=[
            f"Paired by problem. {sure} of {len(found)} {plural(len(found), 'difference')} can be told from zero "
            "(Holm-adjusted over all pairs and N, at least two seeds on either side); they are filled and set bold."
        ],
    )


def _difference_cell(row: Mapping[str, Any] | None, ahead: bool, href: str) -> Cell:
    """A comparison as the row's method sees it; ``ahead``: as `leaderboard.tables.comparisons` has it."""
    if row is None or clean(row["difference"]) is None:
        return Cell("–", href=href)
    sign, low, high = (1, row["low"], row["high"]) if ahead else (-1, -row["high"], -row["low"])
    value = sign * 100 * row["difference"]
    tone: Tone = ("good" if value > 0 else "bad") if row["separated"] else ""
    return Cell(
        signed(value),
        value,
        in_percent(low),
        in_percent(high),
        interval(low, high),
        href=href,
        tone=tone,
        tip=str(row["leaves_out"]),
    )


def compare_page(content: Content, first: str, second: str) -> Page:
    """Two methods, paired by problem, on every board that has both."""
    sections = []
    made = []
    for board in content.boards:
        rows_ = content.view(board).comparisons.get((first, second), [])
        if not rows_:
            continue
        tasks = [MACRO, *board.tasks] if len(board.tasks) > 1 else list(board.tasks)
        groups = []
        for reuse in board.ratios:
            rows = []
            for task in tasks:
                row = next((r for r in rows_ if r["reuse"] == reuse and r["task"] == task), None)
                if row is None:
                    continue
                rows.append(_compare_row(content, row, task, board))
            if rows:
                groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
        table = Table(
            f"{content.addresses.compare(first, second).replace('/', '-').removesuffix('.html')}-{board.key}",
            f"{content.titles[second]} minus {content.titles[first]}, pass@1 in points, published grader, paired by "
            f"problem. {where(board)}.",
            [
                Column("benchmark", "Benchmark", number=False),
                *(Column(name, content.titles[name]) for name in (second, first)),
                Column("difference", "Difference", tip=f"{content.titles[second]} minus {content.titles[first]}"),
                Column("p", "p", tip="two-sided"),
                Column("p_holm", "p, adjusted", tip="Holm, over all pairs and N of the board"),
                Column("verdict", "Verdict", number=False),
                Column("detectable", "Detectable", tip="smallest true difference found with 80 % probability"),
                Column(
                    "improvement",
                    "Chance to win, %",
                    tip=f"that a run of {content.titles[second]} beats one of {content.titles[first]}",
                ),
                Column("problems", "Problems", optional=True),
            ],
            groups,
            group_label="N",
            notes=sorted({str(r["leaves_out"]) for r in rows_ if r["leaves_out"]}),
        )
        made.append(table)
        pair = Board(
            board.protocol,
            board.version,
            board.model,
            board.division,
            tuple(arm for arm in board.arms if arm.method in (first, second)),
            board.key,
            board.store,
        )
        macro = figures.score_by_reuse(
            pair, content.styles, content.view(board).scores, VIEWS[0], "macro", "Held-out macro average against N"
        )
        lead = figures.lead_by_reuse(
            [row for row in rows_ if row["task"] == tasks[0]],
            board.ratios,
            content.styles(second),
            f"{content.titles[second]} minus {content.titles[first]}",
        )
        charts = [Figure(lead, f"lead-{board.key}"), Figure(macro, f"macro-{board.key}")]
        sections.append(
            {"board": board, "table": table, "figures": charts, "curves": content.panels.curve_figures(pair)}
        )
    kernels = content.panels.kernel_figures([first, second])
    return Page(
        content.addresses.compare(first, second),
        "compare.html",
        {
            "title": f"{content.titles[second]} against {content.titles[first]}",
            "section": "compare",
            "first": (content.titles[first], content.addresses.method(first)),
            "second": (content.titles[second], content.addresses.method(second)),
            "sections": sections,
            "kernels": kernels,
        },
        made,
    )


def _compare_row(content: Content, row: Mapping[str, Any], task: str, board: Board) -> Row:
    separated = bool(row["separated"])
    winner = content.titles[row["first"] if row["difference"] > 0 else row["second"]]
    reason = str(row["leaves_out"])
    verdict = (
        Cell(f"{winner} is better", tone="good")
        if separated
        else Cell("inconclusive", spread=brief(reason), tone="warn", tip=reason)
    )
    label = "Macro average" if task == MACRO else task_title(task)
    return Row(
        [
            Cell(label, label, href=content.addresses.task(task)),
            *(_side_cell(content, board, row[side], row["reuse"], task) for side in ("first", "second")),
            Cell(
                signed(100 * row["difference"]),
                100 * row["difference"],
                in_percent(row["low"]),
                in_percent(row["high"]),
                spread=interval(row["low"], row["high"]),
                tip=reason,
            ),
            Cell(p_value(row["p_value"]), as_float(row["p_value"])),
            Cell(p_value(row["p_holm"]), as_float(row["p_holm"])),
            verdict,
            _detectable_cell(in_percent(row["detectable"])),
            Cell(number(in_percent(row["improvement"]), 0), in_percent(row["improvement"])),
            Cell(str(row["problems"]), int(row["problems"])),
        ],
        label,
    )


def _detectable_cell(points: float | None) -> Cell:
    """No score differs from another by more than 100 points."""
    return Cell("> 100" if points is not None and points > 100 else number(points), points)


def _side_cell(content: Content, board: Board, method: str, reuse: int, task: str) -> Cell:
    """The score of one side of a comparison, which leads to its runs."""
    arm = board.arm(method, reuse)
    found = content.view(board).scores(arm, VIEWS[0], task) if arm else None
    if arm is None or found is None:
        return Cell("–")
    value, low, high = found
    return Cell(
        number(100 * value),
        100 * value,
        in_percent(low),
        in_percent(high),
        interval(low, high),
        arm.lost,
        content.addresses.evidence(arm, board),
    )
