"""Every page as data: its address, its template and what the template is given."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import pandas as pd

import methods
from harness.records import GRADERS, Record
from leaderboard import claims, published, tables
from leaderboard.charts import Axis, Chart, Line, clean, number, percent, short, total
from leaderboard.pages import figures
from leaderboard.pages.addresses import Addresses, arm_anchor
from leaderboard.pages.boards import BASE, METHOD_ORDER, Arm, Board, Run, method_sort, slug, task_sort, task_title
from leaderboard.pages.cells import (
    VERDICT_TONES,
    as_float,
    board_label,
    brief,
    hours_cell,
    hours_label,
    in_percent,
    interval,
    macro_average,
    p_value,
    percent_cell,
    share_cell,
    signed,
    status_cell,
    typeset,
)
from leaderboard.pages.panels import Figure, Panels
from leaderboard.pages.parallel import parallel_map
from leaderboard.pages.scores import BoardView, make_view
from leaderboard.pages.tables import VIEWS, Cell, Column, Group, Row, Table, Tone
from methods.diagnostics import LOG_WEIGHT_EDGES

MACRO = published.MACRO
#: The front page shows whole boards while there are few and their rows are few, then short ones, then links: it has to
#: stay small whatever the store holds.
FULL_BOARDS = 3
FULL_ROWS = 32
SHORT_BOARDS = 5

NAVIGATION = (
    ("index", "index.html", "Results"),
    ("methods", "methods.html", "Methods"),
    ("benchmarks", "benchmarks.html", "Benchmarks"),
    ("compare", "compare.html", "Compare"),
    ("claims", "claims.html", "Claims"),
    ("runs", "runs.html", "Runs"),
    ("how", "how.html", "How"),
    ("glossary", "glossary.html", "Glossary"),
    ("downloads", "downloads.html", "Downloads"),
)


def _where(board: Board) -> str:
    return f"{board.title}, protocol {board.protocol} version {board.version}"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


def _some(names: Sequence[str], most: int = 6) -> str:
    """The names, or the first of them and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@dataclass(frozen=True)
class Page:
    """One page: address from the root, template, what it is given, and the tables that it offers for download."""

    address: str
    template: str
    context: Mapping[str, Any]
    tables: Sequence[Table] = field(default=())

    @property
    def root(self) -> str:
        """The way from the page to the root, for relative links."""
        return "../" * self.address.count("/")


class Views:
    """All pages of a store."""

    def __init__(self, runs: Sequence[Run], boards: Sequence[Board], workers: int = 1) -> None:
        self.runs = runs
        self.boards = boards
        self.titles = dict(sorted(((run.method, run.title) for run in runs), key=lambda item: method_sort(item[0])))
        self.registered = methods.available()
        for name, entry in self.registered.items():
            self.titles.setdefault(name, entry.card.title)
        self.titles.pop(BASE, None)
        self.method_names = sorted(self.titles, key=method_sort)
        self.styles = figures.Styles.of(self.titles)
        self.task_names = sorted({task for board in boards for task in board.tasks}, key=task_sort)
        self.addresses = Addresses(self.method_names, self.task_names)
        self.panels = Panels(self.registered, self.styles, self.view)
        least = 2 if len(runs) > 64 else len(boards) + 1
        made = parallel_map(lambda board: make_view(board, self.addresses), boards, workers, least=least)
        self._views = {view.board.key: view for view in made}
        self._board_of = {run.page: board for board in boards for run in board.runs}
        self.claim_rows = self._claim_rows()

    def view(self, board: Board) -> BoardView:
        """The tables of a board."""
        return self._views[board.key]

    # Pages

    def pages(self) -> Iterator[Callable[[], Page]]:
        """What makes each page, front page first; the pages themselves can then be made in any process."""
        yield self._index
        yield from (partial(self._board, board) for board in self.boards)
        yield self._methods
        yield from (partial(self._method, name) for name in self.method_names)
        yield self._benchmarks
        yield from (partial(self._benchmark, task) for task in self.task_names)
        yield self._compare_index
        yield from (partial(self._compare, *pair) for pair in self._pairs())
        yield self._claims
        yield self._runs
        yield from (partial(self._run, run) for run in self.runs)
        yield lambda: Page("how.html", "how.html", {"title": "How it is computed", "section": "how"})
        yield lambda: Page("glossary.html", "glossary.html", {"title": "Glossary", "section": "glossary"})

    def _index(self) -> Page:
        scale = [self.view(board) for board in self.boards if not board.small and board.division == "closed"]
        small = [self.view(board) for board in self.boards if board.small]
        other = [self.view(board) for board in self.boards if not board.small and board.division != "closed"]
        sizes = self._sizes([*scale, *([] if scale else small[:1])])
        paper = self.paper_tables()
        few = len(self.panels.kernels) <= 8
        return Page(
            "index.html",
            "index.html",
            {
                "title": None,
                "section": "index",
                "boards": scale,
                "small": small,
                "other": other,
                "sizes": sizes,
                "paper": paper,
                "kernels": self.panels.kernel_figures(None if few else METHOD_ORDER),
                "curves": {
                    key: (
                        replace(self.panels.macro_figure(board), view=""),
                        self.panels.curve_figures(board, 48, 12),
                        self.panels.cost_figures(board),
                    )
                    for board in self.boards
                    if sizes.get(key := board.key) == "full"
                },
                "claims": self.claim_rows,
                "tones": VERDICT_TONES,
                "key_facts": self._key_facts(),
                "gaps": self._gaps([view.board for view in scale]),
            },
            [table for table, _ in paper]
            + [v.short for v in (*scale, *small) if v.short and sizes.get(v.board.key) in ("full", "short")],
        )

    def _key_facts(self) -> list[tuple[str, str]]:
        """What the store holds, in a few numbers with a line under each."""
        trained = [run for run in self.runs if run.record.reuse is not None]
        names = [self.titles.get(name, name) for name in sorted({run.method for run in trained}, key=method_sort)]
        ratios = sorted({run.record.reuse or 0 for run in trained})
        ended = {status: sum(run.record.status == status for run in self.runs) for status in ("collapsed", "failed")}
        bad = ", ".join(f"{count} {status}" for status, count in ended.items() if count)
        seeds = {len(arm.runs) for board in self.boards for arm in board.arms if arm.reuse is not None}
        span = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}" if seeds else "no"
        samples = sum(
            t.problems * t.sampling.samples_per_problem for run in self.runs for t in run.record.evaluation.values()
        )
        with_gpu = [run for run in self.runs if run.record.cost.gpu_hours > 0]
        took = total(figures.hours(run) for run in (with_gpu or self.runs))
        return [
            (str(len(names)), _plural(len(names), "method") + (f": {_some(names)}" if names else "")),
            (_some([str(ratio) for ratio in ratios]) or "–", "N, policy updates per rollout batch"),
            (
                f"{len(self.runs):,}",
                f"{_plural(len(self.runs), 'run')}, {bad or 'none collapsed or failed'}; "
                f"{span} {'seed' if span == '1' else 'seeds'} for each method and N",
            ),
            (
                f"{samples:,}",
                f"graded samples of {len(self.task_names)} {_plural(len(self.task_names), 'benchmark')}, "
                "each by two graders",
            ),
            (
                number(took, 0 if took >= 100 else 1),
                "GPU-hours in all" if with_gpu else "hours in all, on a CPU" if self.runs else "hours",
            ),
        ]

    def _gaps(self, scale: Sequence[Board]) -> list[str]:
        """What this store does not cover, from the store itself."""
        out = []
        if scale:
            models = list(dict.fromkeys(board.model for board in scale))
            out.append(
                f"Measured at the scale of the paper: {_some(models)}, and nothing else. Problems have answers that a "
                "program can check."
            )
        else:
            out.append(
                "There is no result at the scale of the paper here. What was measured comes from small protocols: they "
                "show that the instrument works, and say nothing about large models."
            )
        ran = {run.method for run in self.runs}
        idle = [self.titles[name] for name in self.method_names if name in self.registered and name not in ran]
        if idle:
            out.append(f"Installed, and not run: {_some(idle)}.")
        arms = [arm for board in self.boards for arm in board.arms if arm.reuse is not None]
        none = sum(not arm.evaluated for arm in arms)
        alone = sum(len(arm.evaluated) == 1 for arm in arms)
        if none:
            out.append(f"{none} of {len(arms)} pairs of method and N have no held-out score: no run reached its end.")
        if alone:
            out.append(
                f"{alone} of {len(arms)} pairs of method and N have one seed with a held-out score. Their interval "
                "leaves out how the score varies with the training seed."
            )
        return out

    @staticmethod
    def _sizes(views: Sequence[BoardView]) -> dict[str, str]:
        """How much of each board the front page shows: full, short or link."""
        sizes: dict[str, str] = {}
        rows = 0
        for view in views:
            rows += len(view.board.arms)
            if rows <= FULL_ROWS and len(sizes) < FULL_BOARDS:
                sizes[view.board.key] = "full"
            elif view.short and len(view.short.rows) <= FULL_ROWS and len(sizes) < SHORT_BOARDS:
                sizes[view.board.key] = "short"
            else:
                sizes[view.board.key] = "link"
        return sizes

    def _board(self, board: Board) -> Page:
        view = self.view(board)
        runs = self._run_table(board.runs, f"runs-{board.key}", f"All runs, {_where(board)}.")
        deep = self.panels.deep_figures(board)
        contents = [
            ("heldout", "Held-out"),
            ("training", "Training"),
            *([("check", "Against the published numbers")] if view.check else []),
            *((anchor, heading) for anchor, heading, *_ in deep),
            ("runs", "All runs"),
        ]
        return Page(
            board.page,
            "board.html",
            {
                "title": f"{board.title}, {board.protocol}",
                "section": "index",
                "view": view,
                "curves": self.panels.curve_figures(board),
                "summary": self.panels.summary_figures(board),
                "deep": deep,
                "contents": contents,
                "runs": runs,
                "digests": sorted({run.record.protocol.digest for run in board.runs}),
                "deviations": sorted({text for run in board.runs for text in run.record.deviations}),
            },
            [t for t in (view.heldout, view.training, view.check, runs) if t],
        )

    def paper_tables(self) -> list[tuple[Table, str]]:
        """The paper's two tables as printed, one of each for each model, with their sources."""
        out: list[tuple[Table, str]] = []
        heldout, training = published.heldout(), published.training()
        for model in dict.fromkeys(heldout["model"]):
            own = heldout[heldout["model"] == model]
            tasks = [*published.TASKS, MACRO]
            out.append(
                (
                    self._paper_table(
                        own.pivot_table(index=["reuse", "method", "title"], columns="task", values="percent"),
                        f"paper-heldout-{slug(str(model))}",
                        f"As published: held-out pass@1 in percent, {model}. No interval published.",
                        [(task, "Macro average" if task == MACRO else task_title(task)) for task in tasks],
                    ),
                    str(own["source"].iloc[0]),
                )
            )
            own = training[training["model"] == model].copy()
            own[["early", "late"]] *= 100
            out.append(
                (
                    self._paper_table(
                        own.pivot_table(index=["reuse", "method", "title"], values=["early", "late"]),
                        f"paper-training-{slug(str(model))}",
                        f"As published: training score in percent, {model}. No interval published.",
                        [("early", "Early score"), ("late", "Late score")],
                    ),
                    str(own["source"].iloc[0]),
                )
            )
        return out

    def _paper_table(self, frame: pd.DataFrame, name: str, caption: str, columns: Sequence[tuple[str, str]]) -> Table:
        groups = []
        for reuse in sorted({int(key[0]) for key in frame.index}):
            part = frame.loc[[key for key in frame.index if key[0] == reuse]]
            rows = []
            for key in sorted(part.index, key=lambda key: method_sort(key[1])):
                values = [float(part.loc[key, column]) for column, _ in columns]
                cells = [Cell(str(key[2]), str(key[2]), href=self.addresses.method(str(key[1])))]
                cells += [Cell(number(value), round(value, 4)) for value in values]
                rows.append(Row(cells, str(key[2])))
            groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
        titles = [Column("method", "Method", number=False), *(Column(column, label) for column, label in columns)]
        return Table(name, caption, titles, groups, group_label="N")

    def _methods(self) -> Page:
        cards = []
        for name in self.method_names:
            entry = self.registered.get(name)
            cards.append(
                {
                    "title": self.titles[name],
                    "page": self.addresses.method(name),
                    "idea": entry.card.idea if entry else "Not installed where this page was built.",
                    "runs": sum(run.method == name for run in self.runs),
                    "origin": entry.origin if entry else "",
                }
            )
        return Page(
            "methods.html",
            "methods.html",
            {"title": "Methods", "section": "methods", "cards": cards, "kernels": self.panels.kernel_figures()},
        )

    def _method(self, name: str) -> Page:
        entry = self.registered.get(name)
        group = self.styles(name)
        sections = []
        made: list[Table] = []
        for board in self.boards:
            runs = [run for run in board.runs if run.method == name]
            if not runs:
                continue
            arms = [arm for arm in board.arms if arm.method == name]
            table = self._seed_table(name, board, arms)
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
            (self.titles[other], self.addresses.compare(name, other))
            for pair in self._pairs()
            if name in pair
            for other in pair
            if other != name
        ]
        return Page(
            self.addresses.method(name),
            "method.html",
            {
                "title": self.titles[name],
                "section": "methods",
                "name": name,
                "entry": entry,
                "kernels": self.panels.kernel_figures([name]),
                "sections": sections,
                "others": others,
                "sources": sorted(
                    {
                        (run.record.method.version, run.record.method.source_sha256, run.record.method.origin)
                        for run in self.runs
                        if run.method == name and run.record.method
                    }
                ),
            },
            made,
        )

    def _seed_table(self, name: str, board: Board, arms: Sequence[Arm]) -> Table:
        """Every seed of a method on a board: what the aggregated numbers are made of."""
        tasks = board.tasks
        columns = [
            Column("seed", "Seed", number=False),
            Column("late", "Late score"),
            *(Column(task, task_title(task), href=self.addresses.task(task)) for task in tasks),
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
            f"{self.titles.get(name, name)} on {_where(board)}, every run: scores in percent.",
            columns,
            groups,
            group_label="N",
        )

    def _benchmarks(self) -> Page:
        groups = []
        for board in self.boards:
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
                    sum(run.digest.disagreements.get(task, (0, 0)))
                    for run in board.runs
                    if task in run.record.evaluation
                )
                errors = sum(score.errors for r in results for score in r.scores.values())
                rows.append(
                    Row(
                        [
                            Cell(task_title(task), task_title(task), href=self.addresses.task(task)),
                            Cell(" or ".join(str(p) for p in problems), problems[0]),
                            Cell(
                                " or ".join(str(k) for k in sorted({r.sampling.samples_per_problem for r in results}))
                            ),
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

    def _benchmark(self, task: str) -> Page:
        sections = []
        made = []
        for board in self.boards:
            if task not in board.tasks:
                continue
            table = self._problem_table(board, task)
            made.append(table)
            view = self.view(board)
            charts = [
                Figure(
                    figures.score_by_reuse(
                        board, self.styles, view.scores, VIEWS[0], task, f"{task_title(task)} against N"
                    ),
                    f"reuse-{board.key}",
                ),
                Figure(self._solve_rates(board, task), f"solved-{board.key}"),
            ]
            digests = sorted({r.prompts_digest for run in board.runs if (r := run.record.evaluation.get(task))})
            sections.append({"board": board, "table": table, "figures": charts, "digests": digests})
        return Page(
            self.addresses.task(task),
            "benchmark.html",
            {"title": task_title(task), "section": "benchmarks", "task": task, "sections": sections},
            made,
        )

    def _rates(self, board: Board, task: str, grader: str) -> dict[str, dict[str, float]]:
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

    def _solve_rates(self, board: Board, task: str) -> Chart:
        layers = []
        rates = self._rates(board, task, GRADERS[0])
        for method in board.methods:
            values = sorted(rates.get(method, {}).values(), reverse=True)
            if values:
                xs = [100 * (i + 0.5) / len(values) for i in range(len(values))]
                points = figures.thin(list(zip(xs, values, strict=True)), 60)
                layers.append(
                    Line(self.titles[method], self.styles(method), [x for x, _ in points], [y for _, y in points])
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

    def _problem_table(self, board: Board, task: str) -> Table:
        rates = {grader: self._rates(board, task, grader) for grader in GRADERS}
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
                views = {
                    f"{grader}-1": percent_cell(rates[grader].get(method, {}).get(problem), 0) for grader in GRADERS
                }
                one, other = views.values()
                cells.append(one if one is other or one == other else Cell("", views=views))
            own = [
                value
                for method in board.methods
                if (value := rates[GRADERS[0]].get(method, {}).get(problem)) is not None
            ]
            if several:
                cells.append(percent_cell(max(own) - min(own) if own else None, 0))
            rows.append(Row(cells, problem))
        return Table(
            f"problems-{slug(task)}-{board.key}",
            f"{task_title(task)}: solve rate of each problem in percent, over all N and seeds. {_where(board)}.",
            [
                Column("problem", "Problem", number=False),
                *(
                    Column(
                        name, "Base model" if name == "base" else self.titles[name], href=self.addresses.method(name)
                    )
                    for name in names
                ),
                *([Column("range", "Range", tip="highest less lowest solve rate of the methods")] if several else []),
            ],
            [Group("", rows)],
            notes=["Each rate is over all runs of the column's method; its page lists them."],
        )

    def _pairs(self) -> list[tuple[str, str]]:
        """Pairs of methods that share a board."""
        together = {pair for board in self.boards for pair in combinations(sorted(board.methods, key=method_sort), 2)}
        return sorted(together, key=lambda pair: (method_sort(pair[0]), method_sort(pair[1])))

    def _compare_index(self) -> Page:
        made = [(board, self._difference_table(board)) for board in self.boards if len(board.methods) > 1]
        return Page(
            "compare.html",
            "compare_index.html",
            {"title": "Compare two methods", "section": "compare", "sections": made},
            [table for _, table in made],
        )

    def _difference_table(self, board: Board) -> Table:
        """The method of the row minus that of the column, for each N: every pair at a glance, each with its page."""
        task = MACRO if len(board.tasks) > 1 else next(iter(board.tasks), "")
        found = {
            (row["reuse"], *pair): row
            for pair, rows in self.view(board).comparisons.items()
            for row in rows
            if row["task"] == task
        }
        groups = []
        for reuse in board.ratios:
            rows = []
            for own in board.methods:
                cells = [Cell(self.titles[own], self.titles[own], href=self.addresses.method(own))]
                for other in board.methods:
                    ahead = method_sort(own) > method_sort(other)
                    row = found.get((reuse, *((other, own) if ahead else (own, other))))
                    page = self.addresses.compare(own, other)
                    cells.append(Cell("") if own == other else _difference_cell(row, ahead, page))
                rows.append(Row(cells, f"{self.titles[own]} {own}"))
            groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
        sure = sum(bool(row["separated"]) for row in found.values())
        label = "macro average" if task == MACRO else task_title(task)
        return Table(
            f"differences-{board.key}",
            f"Held-out pass@1, {label}, published grader: the method of the row minus that of the column, in points, "
            f"with 95 % intervals. {_where(board)}.",
            [
                Column("method", "Method", number=False),
                *(
                    Column(name, f"minus {self.titles[name]}", href=self.addresses.method(name))
                    for name in board.methods
                ),
            ],
            groups,
            group_label="N",
            notes=[
                f"Paired by problem. {sure} of {len(found)} {_plural(len(found), 'difference')} can be told from zero "
                "(Holm-adjusted over all pairs and N, at least two seeds on either side); they are filled and set bold."
            ],
        )

    def _compare(self, first: str, second: str) -> Page:
        sections = []
        made = []
        for board in self.boards:
            rows_ = self.view(board).comparisons.get((first, second), [])
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
                    rows.append(self._compare_row(row, task, board))
                if rows:
                    groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
            table = Table(
                f"{self.addresses.compare(first, second).replace('/', '-').removesuffix('.html')}-{board.key}",
                f"{self.titles[second]} minus {self.titles[first]}, pass@1 in points, published grader, paired by "
                f"problem. {_where(board)}.",
                [
                    Column("benchmark", "Benchmark", number=False),
                    *(Column(name, self.titles[name]) for name in (second, first)),
                    Column("difference", "Difference", tip=f"{self.titles[second]} minus {self.titles[first]}"),
                    Column("p", "p", tip="two-sided"),
                    Column("p_holm", "p, adjusted", tip="Holm, over all pairs and N of the board"),
                    Column("verdict", "Verdict", number=False),
                    Column("detectable", "Detectable", tip="smallest true difference found with 80 % probability"),
                    Column(
                        "improvement",
                        "Chance to win, %",
                        tip=f"that a run of {self.titles[second]} beats one of {self.titles[first]}",
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
                pair, self.styles, self.view(board).scores, VIEWS[0], "macro", "Held-out macro average against N"
            )
            lead = figures.lead_by_reuse(
                [row for row in rows_ if row["task"] == tasks[0]],
                board.ratios,
                self.styles(second),
                f"{self.titles[second]} minus {self.titles[first]}",
            )
            charts = [Figure(lead, f"lead-{board.key}"), Figure(macro, f"macro-{board.key}")]
            sections.append(
                {"board": board, "table": table, "figures": charts, "curves": self.panels.curve_figures(pair)}
            )
        kernels = self.panels.kernel_figures([first, second])
        return Page(
            self.addresses.compare(first, second),
            "compare.html",
            {
                "title": f"{self.titles[second]} against {self.titles[first]}",
                "section": "compare",
                "first": (self.titles[first], self.addresses.method(first)),
                "second": (self.titles[second], self.addresses.method(second)),
                "sections": sections,
                "kernels": kernels,
            },
            made,
        )

    def _compare_row(self, row: Mapping[str, Any], task: str, board: Board) -> Row:
        separated = bool(row["separated"])
        winner = self.titles[row["first"] if row["difference"] > 0 else row["second"]]
        reason = str(row["leaves_out"])
        verdict = (
            Cell(f"{winner} is better", tone="good")
            if separated
            else Cell("inconclusive", spread=brief(reason), tone="warn", tip=reason)
        )
        label = "Macro average" if task == MACRO else task_title(task)
        return Row(
            [
                Cell(label, label, href=self.addresses.task(task)),
                *(self._side_cell(board, row[side], row["reuse"], task) for side in ("first", "second")),
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
                Cell(number(in_percent(row["detectable"])), in_percent(row["detectable"])),
                Cell(number(in_percent(row["improvement"]), 0), in_percent(row["improvement"])),
                Cell(str(row["problems"]), int(row["problems"])),
            ],
            label,
        )

    def _side_cell(self, board: Board, method: str, reuse: int, task: str) -> Cell:
        """The score of one side of a comparison, which leads to its runs."""
        arm = board.arm(method, reuse)
        found = self.view(board).scores(arm, VIEWS[0], task) if arm else None
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
            self.addresses.evidence(arm, board),
        )

    def _claim_rows(self) -> list[dict[str, Any]]:
        """Every claim with its outcome on the printed tables and on the runs of the closed division at scale."""
        files = claims.shipped()
        printed = claims.evaluate(files, claims.Printed())
        shown = [board for board in self.boards if not board.small and board.division == "closed"]
        here = self._outcomes(shown) if shown else [None] * len(printed)
        return [
            {"id": claim.claim.id, "text": claim.claim.statement, "printed": claim, "here": outcome}
            for claim, outcome in zip(printed, here, strict=True)
        ]

    def _outcomes(self, chosen: Sequence[Board]) -> list[claims.Outcome]:
        """Every claim on the records of some boards together."""
        records = tuple(item for board in chosen for item in board.results.records)
        source = claims.Reproduced(tables.Results(chosen[0].store, records), division=chosen[0].division)
        return claims.evaluate(claims.shipped(), source)

    def _claims(self) -> Page:
        made = []
        for row in self.claim_rows:
            if row["here"] is not None and row["here"].verdict != "no data":
                made.append(self._claim_table(row["here"], f"settings-{row['id']}", row["text"]))
                row["table"] = made[-1]
        small = [(board, self._outcomes([board])) for board in self.boards if board.small]
        small = [(board, outcomes) for board, outcomes in small if any(one.verdict != "no data" for one in outcomes)]
        return Page(
            "claims.html",
            "claims.html",
            {"title": "Claims", "section": "claims", "claims": self.claim_rows, "small": small, "tones": VERDICT_TONES},
            made,
        )

    def _claim_table(self, outcome: claims.Outcome, name: str, statement: str) -> Table:
        """The settings that decide a claim, each with the table that its scores stand in."""
        rows = []
        keys = {board.model: board for board in self.boards if not board.small and board.division == "closed"}
        tones: dict[str, Tone] = {"yes": "good", "no": "bad", "unsure": "warn"}
        for one in outcome.settings:
            label = {"early": "Early score", "late": "Late score", MACRO: "Macro average"}.get(
                one.measure, task_title(one.measure)
            )
            lead = one.lead
            board = keys.get(one.model)
            kind = "training" if one.measure in ("early", "late") else "heldout"
            href = f"{board.page}#{kind}-{board.key}" if board else ""
            rows.append(
                Row(
                    [
                        Cell(one.model, one.model, href=board.page if board else ""),
                        Cell(str(one.reuse), one.reuse),
                        Cell(label, label),
                        Cell("–", href=href)
                        if lead is None
                        else Cell(
                            signed(100 * lead.value),
                            100 * lead.value,
                            in_percent(lead.low),
                            in_percent(lead.high),
                            interval(lead.low, lead.high),
                            href=href,
                        ),
                        Cell(one.answer, tone=tones[one.answer]),
                    ]
                )
            )
        return Table(
            name,
            f"{typeset(statement)}: lead over the best rival in points, with an interval that holds for all settings "
            "at once.",
            [
                Column("model", "Model", number=False),
                Column("reuse", "N"),
                Column("measure", "Measure", number=False),
                Column("lead", "Lead"),
                Column("verdict", "Leads?", number=False),
            ],
            [Group("", rows)],
        )

    def _runs(self) -> Page:
        made = [self._run_table(board.runs, f"runs-{board.key}", board_label(board)) for board in self.boards]
        return Page(
            "runs.html",
            "runs.html",
            {"title": "Runs", "section": "runs", "sections": list(zip(self.boards, made, strict=True))},
        )

    def _run_table(self, runs: Sequence[Run], name: str, caption: str) -> Table:
        with_gpu = any(run.record.cost.gpu_hours > 0 for run in runs)
        rows = []
        for run in runs:
            record = run.record
            training = record.training
            macro = macro_average(record, run.task_names, GRADERS[0])
            rows.append(
                Row(
                    [
                        Cell(run.title, run.title, href=run.page),
                        Cell(str(record.reuse) if record.reuse is not None else "–", record.reuse),
                        Cell(str(record.seeds.run), record.seeds.run),
                        status_cell(Arm(run.method, run.title, record.reuse, (run,))),
                        percent_cell(training.late_score if training else None),
                        percent_cell(macro),
                        *([Cell(number(record.cost.gpu_hours, 1), record.cost.gpu_hours)] if with_gpu else []),
                        Cell(
                            number((record.cost.training_seconds + record.cost.evaluation_seconds) / 3600, 2),
                            (record.cost.training_seconds + record.cost.evaluation_seconds) / 3600,
                        ),
                        Cell(record.provenance.ended[:10], record.provenance.ended),
                        Cell(record.id[:12], record.id, href=run.page.removesuffix(".html") + ".json"),
                    ],
                    f"{run.title} {run.method} {record.status} N={record.reuse} seed {record.seeds.run}",
                )
            )
        return Table(
            name,
            caption,
            [
                Column("method", "Method", number=False),
                Column("reuse", "N"),
                Column("seed", "Seed"),
                Column("status", "Status", number=False),
                Column("late", "Late score, %"),
                Column("macro", "Macro average, %"),
                *([Column("gpu_hours", "GPU-hours", optional=True)] if with_gpu else []),
                Column("hours", "Hours", optional=True, tip="training and evaluation, wall time"),
                Column("ended", "Ended", number=False),
                Column("record", "Record", number=False),
            ],
            [Group("", rows)],
        )

    def _run(self, run: Run) -> Page:
        record = run.record
        board = self._board_of[run.page]
        group = self.styles(run.method)
        results = self._result_table(run) if record.evaluation else None
        charts = [Figure(chart, f"run-{index}", 24) for index, chart in enumerate(figures.run_curves(run, group))]
        charts += [
            Figure(chart, f"hist-{sign}")
            for sign, text in (("positive", "A > 0"), ("negative", "A < 0"))
            if not (
                chart := figures.histogram([run], sign, group, LOG_WEIGHT_EDGES, f"Importance weights, {text}")
            ).empty
        ]
        return Page(
            run.page,
            "run.html",
            {
                "title": run.label,
                "section": "runs",
                "run": run,
                "record": record,
                "board": board,
                "results": results,
                "figures": charts,
                "downloads": run_files(run),
                "commands": reproduce(record),
                "document": json.dumps(_brief(record), indent=1, sort_keys=True, ensure_ascii=False),
                "method_page": self.addresses.method(run.method),
                "seeds": [
                    (other.record.seeds.run, "" if other is run else other.page)
                    for arm in board.arms
                    if run in arm.runs
                    for other in arm.runs
                ],
            },
        )

    def _result_table(self, run: Run) -> Table:
        rows = []
        for task in run.task_names:
            result = run.record.evaluation[task]
            drawn = result.problems * result.sampling.samples_per_problem
            differing = run.digest.disagreements.get(task)
            rows.append(
                Row(
                    [
                        Cell(task_title(task), task_title(task), href=self.addresses.task(task)),
                        percent_cell(result.scores["published"].pass_at_1),
                        percent_cell(result.scores["audited"].pass_at_1),
                        Cell(str(result.problems), result.problems),
                        Cell(str(result.sampling.samples_per_problem), result.sampling.samples_per_problem),
                        Cell(f"{result.truncated:,}", result.truncated),
                        Cell(
                            f"{result.scores['published'].errors} / {result.scores['audited'].errors}",
                            result.scores["published"].errors,
                        ),
                        Cell("–") if differing is None else share_cell(sum(differing), drawn),
                        Cell(number(result.mean_response_tokens, 0), result.mean_response_tokens),
                        Cell(result.samples.sha256[:12], result.samples.sha256, tip=result.samples.path),
                    ]
                )
            )
        return Table(
            "results",
            "Held-out results of this run.",
            [
                Column("benchmark", "Benchmark", number=False),
                Column("published", "pass@1, published grader, %"),
                Column("audited", "pass@1, audited grader, %"),
                Column("problems", "Problems"),
                Column("samples", "Samples per problem"),
                Column("truncated", "Truncated"),
                Column("errors", "Grading errors", tip="published / audited"),
                Column("disagreement", "Graders differ, %"),
                Column("tokens", "Mean tokens"),
                Column("digest", "Samples, SHA-256", number=False),
            ],
            [Group("", rows)],
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


def run_files(run: Run) -> list[tuple[str, str, str]]:
    """Label, address from the root and digest of the files that a run's page offers."""
    stem = run.page.removesuffix(".html")
    found = [("record", f"{stem}.json", "")]
    training = run.record.training
    if training is not None and training.curve.path not in run.digest.missing:
        found.append(("training log, one line for each policy update", f"{stem}.updates.jsonl", training.curve.sha256))
    return found


def reproduce(record: Record) -> list[str]:
    """The commands that run the cell again."""
    lines = []
    if record.provenance.commit:
        lines.append(f"git checkout {shlex.quote(record.provenance.commit)}")
    if record.method is not None and record.kind == "trained":
        lines.append(
            "reuse-bench run "
            + " ".join(
                shlex.quote(part)
                for part in (
                    "--protocol",
                    record.protocol.id,
                    "--model",
                    record.model.name,
                    "--method",
                    record.method.name,
                    "--reuse",
                    str(record.reuse),
                    "--seed",
                    str(record.seeds.run),
                )
            )
        )
    elif record.provenance.command:
        lines.append(shlex.join(record.provenance.command))
    return [" ".join(line.splitlines()) for line in lines]


def _brief(record: Record) -> dict[str, Any]:
    """The record without its long lists; the JSON beside the page has them."""
    document = record.model_dump(mode="json")
    for result in document["evaluation"].values():
        result.pop("problem_ids")
        result.pop("right_per_problem")
    return document
