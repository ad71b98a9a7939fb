"""The list of benchmarks, and the page of one: its problems by id, never by text."""

from __future__ import annotations

from harness.records import GRADERS
from leaderboard.charts import Axis, Chart, Line, percent, short
from leaderboard.pages import figures
from leaderboard.pages.boards import Board, slug, task_title
from leaderboard.pages.cells import (
    board_label,
    percent_cell,
    share_cell,
    where,
)
from leaderboard.pages.content import Content, Page
from leaderboard.pages.panels import Figure
from leaderboard.pages.tables import VIEWS, Cell, Column, Group, Row, Table


def benchmarks_page(content: Content) -> Page:
    """What each benchmark asks, and how it is sampled."""
    groups = []
    for board in content.boards:
        rows = []
        for task in board.tasks:
            results = [run.record.evaluation[task] for run in board.runs if task in run.record.evaluation]
            problems = sorted({r.problems for r in results})
            drawn = sum(r.problems * r.sampling.samples_per_problem for r in results)
            sampling = sorted(
                {
                    f"T {short(r.sampling.temperature)}, top-p {short(r.sampling.top_p)}, "
                    f"≤ {r.sampling.max_tokens:,} tokens"
                    for r in results
                }
            )
            differing = sum(
                sum(run.digest.disagreements.get(task, (0, 0))) for run in board.runs if task in run.record.evaluation
            )
            errors = sum(score.errors for r in results for score in r.scores.values())
            rows.append(
                Row(
                    [
                        Cell(task_title(task), task_title(task), href=content.addresses.task(task)),
                        Cell(" or ".join(str(p) for p in problems), problems[0]),
                        Cell(" or ".join(str(k) for k in sorted({r.sampling.samples_per_problem for r in results}))),
                        Cell("; ".join(sampling)),
                        Cell(f"{drawn:,}", drawn, href=f"{board.page}#runs"),
                        share_cell(sum(r.truncated for r in results), drawn),
                        share_cell(differing, drawn),
                        Cell(f"{errors:,}", errors),
                    ],
                    task,
                )
            )
        groups.append(Group(board_label(board), rows, key=board.key))
    table = Table(
        "benchmarks",
        "The held-out benchmarks, as they were asked.",
        [
            Column("benchmark", "Benchmark", number=False),
            Column("problems", "Problems"),
            Column("samples", "Samples per problem"),
            Column("sampling", "Sampling", number=False),
            Column("drawn", "Samples, all runs"),
            Column("truncated", "Truncated, %"),
            Column("disagreement", "Graders differ, %"),
            Column(
                "errors", "Grading errors", tip="verdicts that no grader could give in time; never counted as right"
            ),
        ],
        groups,
        group_label="board",
    )
    return Page(
        "benchmarks.html",
        "benchmarks.html",
        {"title": "Benchmarks", "section": "benchmarks", "table": table},
        [table],
    )


def benchmark_page(content: Content, task: str) -> Page:
    """One benchmark: its scores, and how often each problem was solved."""
    sections = []
    made = []
    for board in content.boards:
        if task not in board.tasks:
            continue
        table = _problem_table(content, board, task)
        made.append(table)
        view = content.view(board)
        charts = [
            Figure(
                figures.score_by_reuse(
                    board, content.styles, view.scores, VIEWS[0], task, f"{task_title(task)} against N"
                ),
                f"reuse-{board.key}",
            ),
            Figure(_solve_rates(content, board, task), f"solved-{board.key}"),
        ]
        digests = sorted({r.prompts_digest for run in board.runs if (r := run.record.evaluation.get(task))})
        sections.append({"board": board, "table": table, "figures": charts, "digests": digests})
    return Page(
        content.addresses.task(task),
        "benchmark.html",
        {"title": task_title(task), "section": "benchmarks", "task": task, "sections": sections},
        made,
    )


def _rates(board: Board, task: str, grader: str) -> dict[str, dict[str, float]]:
    """Method -> problem -> share of right samples over all N and seeds."""
    out: dict[str, dict[str, float]] = {}
    for method in ["base", *board.methods]:
        right: dict[str, int] = {}
        drawn: dict[str, int] = {}
        for run in board.runs:
            result = run.record.evaluation.get(task) if run.method == method else None
            if result is None:
                continue
            counts = result.right_per_problem[grader]  # type: ignore[index]
            for problem, count in zip(result.problem_ids, counts, strict=False):
                right[problem] = right.get(problem, 0) + count
                drawn[problem] = drawn.get(problem, 0) + result.sampling.samples_per_problem
        if drawn:
            out[method] = {problem: right[problem] / drawn[problem] for problem in drawn if drawn[problem]}
    return out


def _solve_rates(content: Content, board: Board, task: str) -> Chart:
    layers = []
    rates = _rates(board, task, GRADERS[0])
    for method in board.methods:
        values = sorted(rates.get(method, {}).values(), reverse=True)
        if values:
            xs = [100 * (i + 0.5) / len(values) for i in range(len(values))]
            points = figures.thin(list(zip(xs, values, strict=True)), 60)
            layers.append(
                Line(content.titles[method], content.styles(method), [x for x, _ in points], [y for _, y in points])
            )
    return Chart(
        "Problems by solve rate",
        f"Problems of {task_title(task)} ordered by solve rate for each method on its own, all N and seeds "
        f"together, {board.model}.",
        Axis("problems, easiest first, %", low=0.0, high=100.0),
        Axis("solve rate, %", low=0.0, high=1.0, show=percent),
        layers,
        scale=100,
        digits=1,
        note=f"{GRADERS[0]} grader, all N and seeds together",
    )


def _problem_table(content: Content, board: Board, task: str) -> Table:
    rates = {grader: _rates(board, task, grader) for grader in GRADERS}
    names = list(rates[GRADERS[0]])
    problems = list(
        dict.fromkeys(
            problem
            for run in board.runs
            if (result := run.record.evaluation.get(task))
            for problem in result.problem_ids
        )
    )
    several = len(board.methods) > 1
    rows = []
    for problem in problems:
        cells = [Cell(problem, problem)]
        for method in names:
            views = {f"{grader}-1": percent_cell(rates[grader].get(method, {}).get(problem), 0) for grader in GRADERS}
            one, other = views.values()
            cells.append(one if one is other or one == other else Cell("", views=views))
        own = [
            value for method in board.methods if (value := rates[GRADERS[0]].get(method, {}).get(problem)) is not None
        ]
        if several:
            cells.append(percent_cell(max(own) - min(own) if own else None, 0))
        rows.append(Row(cells, problem))
    return Table(
        f"problems-{slug(task)}-{board.key}",
        f"{task_title(task)}: solve rate of each problem in percent, over all N and seeds. {where(board)}.",
        [
            Column("problem", "Problem", number=False),
            *(
                Column(
                    name, "Base model" if name == "base" else content.titles[name], href=content.addresses.method(name)
                )
                for name in names
            ),
            *([Column("range", "Range", tip="highest less lowest solve rate of the methods")] if several else []),
        ],
        [Group("", rows)],
        notes=["Each rate is over all runs of the column's method; its page lists them."],
    )
