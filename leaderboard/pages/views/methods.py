"""The list of methods, and the page of one method: card, kernel, results."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records import GRADERS
from leaderboard.pages import figures
from leaderboard.pages.addresses import arm_anchor
from leaderboard.pages.boards import Arm, Board, slug, task_title
from leaderboard.pages.cells import (
    hours_cell,
    hours_label,
    macro_average,
    percent_cell,
    status_cell,
    where,
)
from leaderboard.pages.content import Content, Page
from leaderboard.pages.panels import Figure
from leaderboard.pages.tables import Cell, Column, Group, Row, Table
from methods.diagnostics import LOG_WEIGHT_EDGES


def methods_page(content: Content) -> Page:
    """A card for each method, with its kernel."""
    cards = []
    for name in content.method_names:
        entry = content.registered.get(name)
        cards.append(
            {
                "title": content.titles[name],
                "page": content.addresses.method(name),
                "idea": entry.card.idea if entry else "Not installed where this page was built.",
                "runs": sum(run.method == name for run in content.runs),
                "origin": entry.origin if entry else "",
            }
        )
    return Page(
        "methods.html",
        "methods.html",
        {"title": "Methods", "section": "methods", "cards": cards, "kernels": content.panels.kernel_figures()},
    )


def method_page(content: Content, name: str) -> Page:
    """One method: its card, its kernel and its results on every board."""
    entry = content.registered.get(name)
    group = content.styles(name)
    sections = []
    made: list[Table] = []
    for board in content.boards:
        runs = [run for run in board.runs if run.method == name]
        if not runs:
            continue
        arms = [arm for arm in board.arms if arm.method == name]
        table = _seed_table(content, name, board, arms)
        made.append(table)
        histograms = [
            Figure(
                figures.histogram(arm.runs, sign, group, LOG_WEIGHT_EDGES, f"N = {arm.reuse}, {text}"),
                f"hist-{board.key}-{arm.reuse}-{sign}",
            )
            for sign, text in (("positive", "A > 0"), ("negative", "A < 0"))
            for arm in arms
        ]
        sections.append(
            {
                "board": board,
                "table": table,
                "histograms": [item for item in histograms if not item.chart.empty],
                "anchors": [(arm_anchor(board, arm), arm.reuse) for arm in arms],
            }
        )
    others = [
        (content.titles[other], content.addresses.compare(name, other))
        for pair in content.pairs()
        if name in pair
        for other in pair
        if other != name
    ]
    return Page(
        content.addresses.method(name),
        "method.html",
        {
            "title": content.titles[name],
            "section": "methods",
            "name": name,
            "entry": entry,
            "kernels": content.panels.kernel_figures([name]),
            "sections": sections,
            "others": others,
            "sources": sorted(
                {
                    (run.record.method.version, run.record.method.source_sha256, run.record.method.origin)
                    for run in content.runs
                    if run.method == name and run.record.method
                }
            ),
        },
        made,
    )


def _seed_table(content: Content, name: str, board: Board, arms: Sequence[Arm]) -> Table:
    """Every seed of a method on a board: what the aggregated numbers are made of."""
    tasks = board.tasks
    columns = [
        Column("seed", "Seed", number=False),
        Column("late", "Late score"),
        *(Column(task, task_title(task), href=content.addresses.task(task)) for task in tasks),
    ]
    if len(tasks) > 1:
        columns.append(Column("macro", "Macro average"))
    columns += [
        Column("status", "Status", number=False),
        Column("hours", hours_label(board), optional=True),
        Column("record", "Record", number=False, optional=True),
    ]
    groups = []
    for arm in arms:
        rows = []
        for run in arm.runs:
            cells = [Cell(str(run.record.seeds.run), run.record.seeds.run, href=run.page)]
            late = run.record.training.late_score if run.record.training else None
            cells.append(percent_cell(late))
            for task in tasks:
                result = run.record.evaluation.get(task)
                cells.append(
                    Cell(
                        "",
                        views={
                            f"{grader}-1": percent_cell(result.scores[grader].pass_at_1)  # type: ignore[index]
                            for grader in GRADERS
                        },
                    )
                    if result
                    else Cell("–")
                )
            if len(tasks) > 1:
                cells.append(
                    Cell("", views={f"{g}-1": percent_cell(macro_average(run.record, tasks, g)) for g in GRADERS})
                    if all(task in run.record.evaluation for task in tasks)
                    else Cell("–")
                )
            cells += [status_cell(Arm(name, "", arm.reuse, (run,))), hours_cell(Arm(name, "", arm.reuse, (run,)))]
            cells.append(Cell(run.record.id[:12], run.record.id, href=run.page.removesuffix(".html") + ".json"))
            rows.append(Row(cells))
        groups.append(Group(f"N = {arm.reuse}" if arm.reuse is not None else "", rows, key=str(arm.reuse or 0)))
    return Table(
        f"{slug(name)}-{board.key}",
        f"{content.titles.get(name, name)} on {where(board)}, every run: scores in percent.",
        columns,
        groups,
        group_label="N",
    )
