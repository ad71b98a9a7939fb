"""Every page as data: its address, its template and what the template is given."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import pandas as pd
import torch
from markupsafe import Markup

import methods
from harness.records import GRADERS, Record
from leaderboard import claims, published, tables
from leaderboard.charts import Chart, Value, clean, data_table, legend, number, short, svg
from leaderboard.pages import figures
from leaderboard.pages.boards import METHOD_ORDER, SIGNS, Arm, Board, Run, method_sort, slug, task_sort, task_title
from leaderboard.pages.tables import VIEWS, Cell, Column, Group, Mark, Row, Table, Tone
from methods.diagnostics import LOG_WEIGHT_EDGES
from methods.errors import UserError

MACRO = published.MACRO
VERDICT_TONES: dict[str, Tone] = {
    "reproduced": "good",
    "holds": "good",
    "contradicted": "bad",
    "fails": "bad",
    "inconclusive": "warn",
    "no data": "quiet",
}
STATUS_TONES: dict[str, Tone] = {"done": "quiet", "collapsed": "bad", "failed": "bad"}
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


@dataclass(frozen=True)
class Figure:
    """A chart ready for a template. ``identity`` is unique on its page."""

    chart: Chart
    identity: str
    most_rows: int = 40

    @property
    def svg(self) -> Markup:
        """The drawing."""
        return svg(self.chart, self.identity)

    @cached_property
    def legend(self) -> list[tuple[Markup, str]]:
        """Keys and labels."""
        return legend(self.chart)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the legend."""
        return tuple(label for _, label in self.legend)

    @cached_property
    def _table(self) -> tuple[list[str], list[list[str]]]:
        return data_table(self.chart, self.most_rows)

    @property
    def header(self) -> list[str]:
        """Header of the table behind the chart."""
        return self._table[0]

    @property
    def rows(self) -> list[list[str]]:
        """Rows of the table behind the chart."""
        return self._table[1]


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


@dataclass(frozen=True)
class BoardView:
    """A board with its tables and the scores that figures ask for."""

    board: Board
    heldout: Table | None
    training: Table | None
    check: Table | None
    notes: Sequence[str]
    scores: figures.Scores
    k: int


def interval(low: object, high: object, digits: int = 1, scale: float = 100) -> str:
    """An interval as text; empty when a bound is not known."""
    a, b = clean(low), clean(high)
    if a is None or b is None:
        return ""
    between = "–" if a >= 0 else " to "
    return f"{number(scale * a, digits)}{between}{number(scale * b, digits)}"


def _float(value: object) -> float | None:
    return clean(float(value)) if isinstance(value, int | float) else None


def _mark(row: Mapping[str, Any], block: Sequence[Mapping[str, Any]]) -> Mark:
    """Best where nobody else is tied with the leader; tied where only some are; nothing where all are."""
    competing = [other for other in block if clean(other["score"]) is not None and other["method"] != tables.BASE]
    tied = [other for other in competing if other["tied"]]
    if len(competing) < 2 or not row["tied"]:
        return ""
    if len(tied) == 1:
        return "best"
    return "tied" if len(tied) < len(competing) else ""


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


class Views:
    """All pages of a store."""

    def __init__(self, runs: Sequence[Run], boards: Sequence[Board]) -> None:
        self.runs = runs
        self.boards = boards
        self.titles = dict(sorted(((run.method, run.title) for run in runs), key=lambda item: method_sort(item[0])))
        self.registered = methods.available()
        for name, entry in self.registered.items():
            self.titles.setdefault(name, entry.card.title)
        self.titles.pop(tables.BASE, None)
        self.method_names = sorted(self.titles, key=method_sort)
        self.styles = figures.Styles.of(self.titles)
        self._addresses = _unique({name: f"methods/{slug(name)}" for name in self.method_names})
        self.task_names = sorted({task for board in boards for task in board.tasks}, key=task_sort)
        self._task_addresses = _unique({name: f"benchmarks/{slug(name)}" for name in self.task_names})
        self.kernels = self._kernels()
        self._views: dict[str, BoardView] = {}

    # Addresses

    def method_page(self, name: str) -> str:
        """Address of a method's page; empty for the base model."""
        return self._addresses.get(name, "")

    def task_page(self, name: str) -> str:
        """Address of a benchmark's page."""
        return self._task_addresses.get(name, "")

    def compare_page(self, first: str, second: str) -> str:
        """Address of the page that compares two methods."""
        pair = sorted((first, second), key=method_sort)
        names = [self.method_page(name).removeprefix("methods/").removesuffix(".html") for name in pair]
        return f"compare/{names[0]}--{names[1]}.html"

    def evidence(self, arm: Arm, board: Board) -> str:
        """Where the runs behind a number are: the run itself, or the list of the seeds."""
        if len(arm.runs) == 1:
            return arm.runs[0].page
        if arm.method == tables.BASE:
            return f"{board.page}#runs"
        return f"{self.method_page(arm.method)}#{arm_anchor(board, arm)}"

    # Numbers

    def view(self, board: Board) -> BoardView:
        """The tables of a board, computed once."""
        if board.key not in self._views:
            self._views[board.key] = self._make_view(board)
        return self._views[board.key]

    def _make_view(self, board: Board) -> BoardView:
        samples = [t.sampling.samples_per_problem for run in board.runs for t in run.record.evaluation.values()]
        k = min(samples, default=1)
        frames: dict[str, dict[tuple[str, int], dict[str, dict[str, Any]]]] = {}
        blocks: dict[str, dict[tuple[int, str], list[dict[str, Any]]]] = {}
        for view in VIEWS if samples else ():
            grader, measure = view.split("-")
            if measure == "k" and k == 1:
                continue
            frame = tables.heldout(board.results, grader=grader, k=1 if measure == "1" else k)  # type: ignore[arg-type]
            by_arm = frames.setdefault(view, {})
            by_block = blocks.setdefault(view, {})
            for row in _rows(frame):
                by_arm.setdefault((row["method"], row["reuse"]), {})[row["task"]] = row
                by_block.setdefault((row["reuse"], row["task"]), []).append(row)

        def scores(arm: Arm, view: str, task: str) -> tuple[float, float, float] | None:
            rows = frames.get(view, {}).get((arm.method, arm.reuse or 0), {})
            row = rows.get(MACRO if task == "macro" else task) or (
                next(iter(rows.values())) if task == "macro" and len(rows) == 1 else None
            )
            if row is None or clean(row["score"]) is None:
                return None
            return row["score"], row["low"], row["high"]

        heldout = self._heldout(board, frames, blocks, k) if samples else None
        notes = _inconclusive(frames.get(VIEWS[0], {}), board)
        return BoardView(
            board, heldout, self._training(board), self._check(board, frames.get(VIEWS[0], {})), notes, scores, k
        )

    def _score_cell(self, row: Mapping[str, Any] | None, block: Sequence[Mapping[str, Any]], href: str) -> Cell:
        if row is None or clean(row["score"]) is None:
            return Cell("–")
        value = float(row["score"])
        return Cell(
            number(100 * value),
            100 * value,
            _times(row["low"]),
            _times(row["high"]),
            interval(row["low"], row["high"]),
            href,
            _mark(row, block),
            tip=str(row["leaves_out"]),
        )

    def _heldout(
        self,
        board: Board,
        frames: Mapping[str, Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]]],
        blocks: Mapping[str, Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]],
        k: int,
    ) -> Table:
        tasks = board.tasks
        columns = [*tasks, MACRO] if len(tasks) > 1 else list(tasks)
        with_paper = any(
            clean(rows.get(columns[-1], {}).get("published")) is not None for rows in frames[VIEWS[0]].values()
        )
        titles = [
            Column("method", "Method", number=False),
            *(Column(task, task_title(task), href=self.task_page(task)) for task in tasks),
        ]
        if len(tasks) > 1:
            titles.append(Column("macro", "Macro average", tip="plain mean of the benchmarks"))
        if with_paper:
            titles += [
                Column("paper", "Paper", tip="macro average as published, pass@1, published grader; not run here"),
                Column("verdict", "Verdict", number=False, tip="the published value against our interval"),
            ]
        titles += [
            Column("seeds", "Seeds", optional=True, tip="seeds with held-out scores, of all runs"),
            Column("status", "Status", number=False, optional=True),
            Column("hours", _hours_label(board), optional=True, tip="all runs of the row together"),
        ]
        groups = []
        for reuse in [None, *board.ratios]:
            rows = []
            for arm in board.arms:
                if arm.reuse != reuse:
                    continue
                href = self.evidence(arm, board)
                cells = [self._name_cell(arm)]
                own = frames[VIEWS[0]].get((arm.method, arm.reuse or 0), {})
                for task in columns:
                    views = {
                        view: self._score_cell(
                            frames[view].get((arm.method, arm.reuse or 0), {}).get(task),
                            blocks[view].get((arm.reuse or 0, task), ()),
                            href,
                        )
                        for view in frames
                    }
                    if any(cell.value is not None for cell in views.values()):
                        cells.append(Cell("", views=views))
                    else:
                        cells.append(Cell("–"))
                if with_paper:
                    cells += _paper_cells(own.get(columns[-1], {}))
                cells += [_seeds_cell(arm, href), status_cell(arm), _hours_cell(arm)]
                rows.append(Row(cells, f"{arm.title} {arm.method}", reference=arm.reuse is None))
            if rows:
                label = "Base model, not trained" if reuse is None else f"N = {reuse}"
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
                "★ best, and distinguishable from every other method at its N (paired by problem, Holm-adjusted). "
                "≈ cannot be told apart from the highest. No mark: the data separate nothing, or another is better.",
                *_inconclusive(frames[VIEWS[0]], board),
            ],
            switches=True,
        )

    def _name_cell(self, arm: Arm) -> Cell:
        return Cell(arm.title, arm.title, href=self.method_page(arm.method))

    def _training(self, board: Board) -> Table | None:
        frame = tables.training(board.results)
        if frame.empty:
            return None
        by_arm: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
        blocks: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for row in _rows(frame):
            by_arm.setdefault((row["method"], row["reuse"]), {})[row["measure"]] = row
            blocks.setdefault((row["reuse"], row["measure"]), []).append(row)
        with_paper = any(clean(row["published"]) is not None for row in _rows(frame))
        columns = [Column("method", "Method", number=False)]
        for measure, label, tip in (
            ("early", "Early score", "highest score of a rollout batch in the first quarter of the updates"),
            ("late", "Late score", "mean over the last eighth of the updates"),
            ("mean", "Mean score", "mean over all updates"),
        ):
            columns.append(Column(measure, label, tip=tip))
            if with_paper and measure != "mean":
                columns += [
                    Column(f"{measure}_paper", "Paper", tip="as published; not run here"),
                    Column(f"{measure}_verdict", "Verdict", number=False),
                ]
        columns += [
            Column("seeds", "Seeds", optional=True),
            Column("status", "Status", number=False, optional=True),
            Column("hours", _hours_label(board), optional=True, tip="all runs of the row together"),
        ]
        groups = []
        for reuse in board.ratios:
            rows = []
            for arm in board.arms:
                if arm.reuse != reuse:
                    continue
                href = self.evidence(arm, board)
                own = by_arm.get((arm.method, reuse), {})
                cells = [self._name_cell(arm)]
                for measure in ("early", "late", "mean"):
                    cells.append(self._score_cell(own.get(measure), blocks.get((reuse, measure), ()), href))
                    if with_paper and measure != "mean":
                        cells += _paper_cells(own.get(measure, {}))
                cells += [_seeds_cell(arm, href, of="training"), status_cell(arm), _hours_cell(arm)]
                rows.append(Row(cells, f"{arm.title} {arm.method}"))
            groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
        notes = ["Score: mean reward of a rollout batch, mapped to 0–100 %: (mean reward + 1) / 2."]
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

    def _check(self, board: Board, by_arm: Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]]) -> Table | None:
        """Ours against the paper's, benchmark by benchmark."""
        rows_by_reuse: dict[int, list[Row]] = {}
        tasks = [*board.tasks, MACRO] if len(board.tasks) > 1 else board.tasks
        for arm in board.arms:
            own = by_arm.get((arm.method, arm.reuse or 0), {})
            if arm.reuse is None or not any(clean(row["published"]) is not None for row in own.values()):
                continue
            cells = [self._name_cell(arm)]
            for task in tasks:
                row = own.get(task)
                if row is None or clean(row["published"]) is None:
                    cells.append(Cell("–"))
                    continue
                verdict = str(row["verdict"])
                cells.append(
                    Cell(
                        f"{number(_times(row['score']))} / {number(100 * row['published'])}",
                        verdict,
                        spread=verdict,
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

    # Figures

    def _kernels(self) -> dict[str, tuple[str, list[float], dict[str, list[Value]]]]:
        """phi of every registered method with its default hyperparameters, over log W in [-4, 4]."""
        grid = torch.linspace(-4, 4, 161, dtype=torch.float64)
        curves: dict[str, tuple[str, list[float], dict[str, list[Value]]]] = {}
        for name in self.method_names:
            entry = self.registered.get(name)
            if entry is None:
                continue
            by_sign: dict[str, list[Value]] = {}
            for sign, value in (("positive", 1.0), ("negative", -1.0)):
                phi = entry.method().coefficient(grid, value)
                if phi is not None:
                    by_sign[sign] = [clean(round(float(v), 6)) for v in phi]
            if by_sign:
                curves[name] = (entry.card.title, [round(float(v), 4) for v in grid], by_sign)
        return curves

    def kernel_figures(self, names: Sequence[str] | None = None) -> list[Figure]:
        """Both signs, for all methods or the named ones."""
        kept = {name: curve for name, curve in self.kernels.items() if names is None or name in names}
        return [Figure(figures.kernel(kept, sign, self.styles), f"kernel-{sign}") for sign in SIGNS] if kept else []

    def curve_figures(self, board: Board, points: int = 64, rows: int = 40) -> list[Figure]:
        """Training curves, one panel for each N."""
        return [
            Figure(chart, f"curve-{board.key}-{reuse}", rows)
            for reuse, chart in figures.training_curves(board, self.styles, points)
        ]

    def summary_figures(self, board: Board) -> list[Figure]:
        """Macro average and late score against N, and cost against score."""
        view = self.view(board)
        late = {
            (row["method"], row["reuse"]): row
            for row in _rows(tables.training(board.results))
            if row["measure"] == "late"
        }
        macro = figures.score_by_reuse(
            board, self.styles, view.scores, VIEWS[0], "macro", "Held-out macro average against N"
        )
        made = [
            Figure(macro, f"macro-{board.key}"),
            Figure(figures.late_by_reuse(board, self.styles, late), f"late-{board.key}"),
            Figure(figures.cost_against_score(board, self.styles, view.scores, VIEWS[0]), f"cost-{board.key}"),
        ]
        return [item for item in made if not item.chart.empty]

    def deep_figures(self, board: Board) -> list[tuple[str, str, list[Figure]]]:
        """Headings with figures: everything that a board's page shows beyond the front page."""
        view = self.view(board)
        out: list[tuple[str, str, list[Figure]]] = []
        by_task = [
            Figure(
                figures.score_by_reuse(board, self.styles, view.scores, VIEWS[0], task, task_title(task)),
                f"task-{board.key}-{index}",
            )
            for index, task in enumerate(board.tasks)
        ]
        out.append(("Score against N, by benchmark", "Points are means over seeds, with 95 % intervals.", by_task))
        weights = []
        for reuse in board.ratios[-1:]:
            for sign in SIGNS:
                for what in (0, 1):
                    chart = figures.weights_by_method(board, reuse, sign, what, self.styles, LOG_WEIGHT_EDGES)
                    weights.append(Figure(chart, f"weights-{board.key}-{reuse}-{sign}-{what}"))
        if board.ratios:
            out.append(
                (
                    f"Importance weights at N = {board.ratios[-1]}",
                    "How far the policy has drifted from the one that wrote the responses, and which responses move "
                    "it. The first update of every rollout batch has log W = 0 exactly.",
                    weights,
                )
            )
        out.append(
            (
                "Accuracy by response length",
                "",
                [
                    Figure(figures.deciles(board, reuse, self.styles, GRADERS[0]), f"deciles-{board.key}-{reuse}")
                    for reuse in board.ratios
                ],
            )
        )
        out.append(
            (
                "Truncation and graders",
                "",
                [
                    Figure(
                        figures.share_by_reuse(
                            board,
                            self.styles,
                            figures.truncated_share,
                            "Truncated held-out responses",
                            f"Share of held-out samples that hit the token cap on {board.model}, mean over seeds.",
                        ),
                        f"truncated-{board.key}",
                    ),
                    Figure(
                        figures.share_by_reuse(
                            board,
                            self.styles,
                            figures.disagreement_share,
                            "Disagreement of the two graders",
                            "Share of held-out samples that one grader calls right and the other does not, on "
                            f"{board.model}, mean over seeds.",
                        ),
                        f"disagreement-{board.key}",
                    ),
                ],
            )
        )
        kept = ((head, text, [f for f in items if not f.chart.empty]) for head, text, items in out)
        return [(head, text, items) for head, text, items in kept if items]

    # Pages

    def pages(self) -> Iterator[Page]:
        """Every page, front page first."""
        yield self._index()
        for board in self.boards:
            yield self._board(board)
        yield self._methods()
        for name in self.method_names:
            yield self._method(name)
        yield self._benchmarks()
        for task in self.task_names:
            yield self._benchmark(task)
        yield self._compare_index()
        for first, second in self._pairs():
            yield self._compare(first, second)
        yield self._claims()
        yield self._runs()
        for run in self.runs:
            yield self._run(run)
        yield Page("how.html", "how.html", {"title": "How it is computed", "section": "how"})
        yield Page("glossary.html", "glossary.html", {"title": "Glossary", "section": "glossary"})

    def _index(self) -> Page:
        shown = [self.view(board) for board in self.boards if not board.small and board.division == "closed"]
        small = [self.view(board) for board in self.boards if board.small]
        other = [self.view(board) for board in self.boards if not board.small and board.division != "closed"]
        paper = self.paper_tables()
        evaluated = sum(bool(run.record.evaluation) for run in self.runs)
        return Page(
            "index.html",
            "index.html",
            {
                "title": None,
                "section": "index",
                "boards": shown,
                "small": small,
                "other": other,
                "paper": paper,
                "kernels": self.kernel_figures(list(METHOD_ORDER) if len(self.kernels) > 8 else None),
                "curves": {
                    view.board.key: (self.curve_figures(view.board, 48, 12), self.summary_figures(view.board))
                    for view in [*shown, *small[:1]]
                },
                "claims": self.claim_rows,
                "tones": VERDICT_TONES,
                "method_names": [(self.titles[name], self.method_page(name)) for name in self.method_names],
                "counts": {
                    "runs": len(self.runs),
                    "evaluated": evaluated,
                    "methods": len({run.method for run in self.runs} - {tables.BASE}),
                    "benchmarks": len(self.task_names),
                    "samples": sum(
                        t.problems * t.sampling.samples_per_problem
                        for run in self.runs
                        for t in run.record.evaluation.values()
                    ),
                },
            },
            [table for table, _ in paper],
        )

    def _board(self, board: Board) -> Page:
        view = self.view(board)
        runs = self._run_table(board.runs, f"runs-{board.key}", f"All runs on {board.model}.")
        return Page(
            board.page,
            "board.html",
            {
                "title": f"{board.title}, {board.protocol}",
                "section": "index",
                "view": view,
                "curves": self.curve_figures(board),
                "summary": self.summary_figures(board),
                "deep": self.deep_figures(board),
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
                cells = [Cell(str(key[2]), str(key[2]), href=self.method_page(str(key[1])))]
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
                    "page": self.method_page(name),
                    "idea": entry.card.idea if entry else "Not installed where this page was built.",
                    "runs": sum(run.method == name for run in self.runs),
                    "origin": entry.origin if entry else "",
                }
            )
        return Page(
            "methods.html",
            "methods.html",
            {"title": "Methods", "section": "methods", "cards": cards, "kernels": self.kernel_figures()},
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
                for arm in arms
                for sign, text in (("positive", "A > 0"), ("negative", "A < 0"))
            ]
            sections.append(
                {
                    "board": board,
                    "table": table,
                    "histograms": [item for item in histograms if not item.chart.empty],
                    "anchors": [(arm_anchor(board, arm), arm.reuse) for arm in arms],
                }
            )
        others = [(self.titles[o], self.compare_page(name, o)) for o in self.method_names if o != name]
        return Page(
            self.method_page(name),
            "method.html",
            {
                "title": self.titles[name],
                "section": "methods",
                "name": name,
                "entry": entry,
                "kernels": self.kernel_figures([name]),
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
            *(Column(task, task_title(task), href=self.task_page(task)) for task in tasks),
        ]
        if len(tasks) > 1:
            columns.append(Column("macro", "Macro average"))
        columns += [
            Column("status", "Status", number=False),
            Column("hours", _hours_label(board), optional=True),
            Column("record", "Record", number=False, optional=True),
        ]
        groups = []
        for arm in arms:
            rows = []
            for run in arm.runs:
                cells = [Cell(f"seed {run.record.seeds.run}", run.record.seeds.run, href=run.page)]
                late = run.record.training.late_score if run.record.training else None
                cells.append(_percent_cell(late))
                for task in tasks:
                    result = run.record.evaluation.get(task)
                    cells.append(
                        Cell(
                            "",
                            views={
                                f"{grader}-1": _percent_cell(result.scores[grader].pass_at_1)  # type: ignore[index]
                                for grader in GRADERS
                            },
                        )
                        if result
                        else Cell("–")
                    )
                if len(tasks) > 1:
                    cells.append(
                        Cell("", views={f"{g}-1": _percent_cell(_macro(run.record, tasks, g)) for g in GRADERS})
                        if all(task in run.record.evaluation for task in tasks)
                        else Cell("–")
                    )
                cells += [status_cell(Arm(name, "", arm.reuse, (run,))), _hours_cell(Arm(name, "", arm.reuse, (run,)))]
                cells.append(Cell(run.record.id[:12], run.record.id, href=run.page.removesuffix(".html") + ".json"))
                rows.append(Row(cells))
            groups.append(Group(f"N = {arm.reuse}" if arm.reuse is not None else "", rows, key=str(arm.reuse or 0)))
        return Table(
            f"{slug(name)}-{board.key}",
            f"{self.titles.get(name, name)} on {board.model}, every run: scores in percent, published grader.",
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
                            Cell(task_title(task), task_title(task), href=self.task_page(task)),
                            Cell(" or ".join(str(p) for p in problems), problems[0]),
                            Cell(
                                " or ".join(str(k) for k in sorted({r.sampling.samples_per_problem for r in results}))
                            ),
                            Cell("; ".join(sampling)),
                            Cell(f"{drawn:,}", drawn),
                            _share_cell(sum(r.truncated for r in results), drawn),
                            _share_cell(differing, drawn),
                            Cell(f"{errors:,}", errors),
                        ],
                        task,
                    )
                )
            groups.append(Group(_board_label(board), rows, key=board.key))
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
            self.task_page(task),
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
        from leaderboard.charts import Axis, Line, percent

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
        rows = []
        for problem in problems:
            cells = [Cell(problem, problem)]
            for method in names:
                views = {
                    f"{grader}-1": _percent_cell(rates[grader].get(method, {}).get(problem), 0) for grader in GRADERS
                }
                same = views["published-1"] == views["audited-1"]
                cells.append(views["published-1"] if same else Cell("", views=views))
            own = [
                value
                for method in board.methods
                if (value := rates[GRADERS[0]].get(method, {}).get(problem)) is not None
            ]
            spread = max(own) - min(own) if own else None
            cells.append(_percent_cell(spread, 0))
            rows.append(Row(cells, problem))
        return Table(
            f"problems-{slug(task)}-{board.key}",
            f"Solve rate of each problem in percent, over all N and seeds, {board.model}.",
            [
                Column("problem", "Problem", number=False),
                *(
                    Column(name, "Base model" if name == "base" else self.titles[name], href=self.method_page(name))
                    for name in names
                ),
                Column("range", "Range", tip="highest less lowest solve rate of the methods"),
            ],
            [Group("", rows)],
        )

    def _pairs(self) -> list[tuple[str, str]]:
        """Pairs of methods that share a board."""
        together = {pair for board in self.boards for pair in combinations(sorted(board.methods, key=method_sort), 2)}
        return sorted(together, key=lambda pair: (method_sort(pair[0]), method_sort(pair[1])))

    def _compare_index(self) -> Page:
        pairs = set(self._pairs())
        names = [name for name in self.method_names if any(name in pair for pair in pairs)]
        matrix = [
            (
                self.titles[first],
                [
                    self.compare_page(first, second) if (first, second) in pairs or (second, first) in pairs else ""
                    for second in names
                ],
            )
            for first in names
        ]
        return Page(
            "compare.html",
            "compare_index.html",
            {
                "title": "Compare two methods",
                "section": "compare",
                "names": [self.titles[name] for name in names],
                "matrix": matrix,
            },
        )

    @cached_property
    def _comparisons(self) -> dict[str, dict[tuple[str, str], list[dict[str, Any]]]]:
        """Board -> pair -> rows of `tables.comparisons`, first minus second in the order of the pages."""
        out: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = {}
        for board in self.boards:
            by_pair = out.setdefault(board.key, {})
            for row in _rows(tables.comparisons(board.results)):
                if method_sort(row["first"]) > method_sort(row["second"]):
                    row |= {
                        "first": row["second"],
                        "second": row["first"],
                        "difference": -row["difference"],
                        "low": -row["high"],
                        "high": -row["low"],
                        "improvement": 1 - row["improvement"],
                    }
                by_pair.setdefault((row["first"], row["second"]), []).append(row)
        return out

    def _compare(self, first: str, second: str) -> Page:
        sections = []
        made = []
        for board in self.boards:
            rows_ = self._comparisons[board.key].get((first, second), [])
            if not rows_:
                continue
            tasks = [*board.tasks, MACRO] if len(board.tasks) > 1 else list(board.tasks)
            groups = []
            for reuse in board.ratios:
                rows = []
                for task in tasks:
                    row = next((r for r in rows_ if r["reuse"] == reuse and r["task"] == task), None)
                    if row is None:
                        continue
                    rows.append(self._compare_row(row, task))
                if rows:
                    groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
            table = Table(
                f"{self.compare_page(first, second).replace('/', '-').removesuffix('.html')}-{board.key}",
                f"{self.titles[first]} minus {self.titles[second]}, pass@1 in points, published grader, paired by "
                f"problem; {board.model}.",
                [
                    Column("benchmark", "Benchmark", number=False),
                    Column("difference", "Difference"),
                    Column("p", "p", tip="two-sided"),
                    Column("p_holm", "p, adjusted", tip="Holm, over all pairs and N of the board"),
                    Column("verdict", "Verdict", number=False),
                    Column("detectable", "Detectable", tip="smallest true difference found with 80 % probability"),
                    Column("improvement", "Chance to win, %", tip="that a run of the first beats a run of the second"),
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
            charts = [*self.curve_figures(pair)]
            macro = figures.score_by_reuse(
                pair, self.styles, self.view(board).scores, VIEWS[0], "macro", "Held-out macro average against N"
            )
            charts.append(Figure(macro, f"macro-{board.key}"))
            sections.append({"board": board, "table": table, "figures": charts})
        kernels = self.kernel_figures([first, second])
        return Page(
            self.compare_page(first, second),
            "compare.html",
            {
                "title": f"{self.titles[first]} and {self.titles[second]}",
                "section": "compare",
                "first": (self.titles[first], self.method_page(first)),
                "second": (self.titles[second], self.method_page(second)),
                "sections": sections,
                "kernels": kernels,
            },
            made,
        )

    def _compare_row(self, row: Mapping[str, Any], task: str) -> Row:
        separated = bool(row["separated"])
        winner = self.titles[row["first"] if row["difference"] > 0 else row["second"]]
        verdict = Cell(f"{winner} is better", tone="good") if separated else Cell("inconclusive", tone="warn")
        label = "Macro average" if task == MACRO else task_title(task)
        return Row(
            [
                Cell(label, label, href=self.task_page(task)),
                Cell(
                    signed(100 * row["difference"]),
                    100 * row["difference"],
                    _times(row["low"]),
                    _times(row["high"]),
                    spread=interval(row["low"], row["high"]),
                    tip=str(row["leaves_out"]),
                ),
                Cell(p_value(row["p_value"]), _float(row["p_value"])),
                Cell(p_value(row["p_holm"]), _float(row["p_holm"])),
                verdict,
                Cell(number(_times(row["detectable"])), _times(row["detectable"])),
                Cell(number(_times(row["improvement"]), 0), _times(row["improvement"])),
                Cell(str(row["problems"]), int(row["problems"])),
            ],
            label,
        )

    @cached_property
    def claim_rows(self) -> list[dict[str, Any]]:
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
                made.append(self._claim_table(row["here"], f"claim-{row['id']}"))
                row["table"] = made[-1]
        small = [(board, self._outcomes([board])) for board in self.boards if board.small]
        return Page(
            "claims.html",
            "claims.html",
            {"title": "Claims", "section": "claims", "claims": self.claim_rows, "small": small, "tones": VERDICT_TONES},
            made,
        )

    def _claim_table(self, outcome: claims.Outcome, name: str) -> Table:
        """The settings that decide a claim."""
        rows = []
        tones: dict[str, Tone] = {"yes": "good", "no": "bad", "unsure": "warn"}
        for one in outcome.settings:
            label = {"early": "Early score", "late": "Late score", MACRO: "Macro average"}.get(
                one.measure, task_title(one.measure)
            )
            lead = one.lead
            rows.append(
                Row(
                    [
                        Cell(one.model, one.model),
                        Cell(str(one.reuse), one.reuse),
                        Cell(label, label),
                        Cell("–")
                        if lead is None
                        else Cell(
                            signed(100 * lead.value),
                            100 * lead.value,
                            _times(lead.low),
                            _times(lead.high),
                            interval(lead.low, lead.high),
                        ),
                        Cell(one.answer, tone=tones[one.answer]),
                    ]
                )
            )
        return Table(
            name,
            "Lead of the method over its best rival, in points, with an interval that holds for all settings at once.",
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
        made = [self._run_table(board.runs, f"runs-{board.key}", _board_label(board)) for board in self.boards]
        return Page(
            "runs.html",
            "runs.html",
            {"title": "Runs", "section": "runs", "sections": list(zip(self.boards, made, strict=True))},
        )

    def _run_table(self, runs: Sequence[Run], name: str, caption: str) -> Table:
        rows = []
        for run in runs:
            record = run.record
            training = record.training
            macro = _macro(record, run.task_names, GRADERS[0])
            rows.append(
                Row(
                    [
                        Cell(run.title, run.title, href=run.page),
                        Cell(str(record.reuse) if record.reuse is not None else "–", record.reuse),
                        Cell(str(record.seeds.run), record.seeds.run),
                        status_cell(Arm(run.method, run.title, record.reuse, (run,))),
                        Cell(record.division, tone="quiet" if record.division == "closed" else "warn"),
                        _percent_cell(training.late_score if training else None),
                        _percent_cell(macro),
                        Cell(number(record.cost.gpu_hours, 1), record.cost.gpu_hours),
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
                Column("division", "Division", number=False, optional=True),
                Column("late", "Late score, %"),
                Column("macro", "Macro average, %"),
                Column("gpu_hours", "GPU-hours", optional=True),
                Column("hours", "Hours", optional=True, tip="training and evaluation, wall time"),
                Column("ended", "Ended", number=False),
                Column("record", "Record", number=False),
            ],
            [Group("", rows)],
        )

    def _run(self, run: Run) -> Page:
        record = run.record
        board = next(board for board in self.boards if run in board.runs)
        group = self.styles(run.method)
        results = self._result_table(run) if record.evaluation else None
        charts = [Figure(chart, f"run-{index}") for index, chart in enumerate(figures.run_curves(run, group))]
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
                "method_page": self.method_page(run.method),
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
                        Cell(task_title(task), task_title(task), href=self.task_page(task)),
                        _percent_cell(result.scores["published"].pass_at_1),
                        _percent_cell(result.scores["audited"].pass_at_1),
                        Cell(str(result.problems), result.problems),
                        Cell(str(result.sampling.samples_per_problem), result.sampling.samples_per_problem),
                        Cell(f"{result.truncated:,}", result.truncated),
                        Cell(
                            f"{result.scores['published'].errors} / {result.scores['audited'].errors}",
                            result.scores["published"].errors,
                        ),
                        Cell("–") if differing is None else _share_cell(sum(differing), drawn),
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


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def arm_anchor(board: Board, arm: Arm) -> str:
    """Where a method's page lists the seeds of an arm."""
    return f"{board.key}-n{arm.reuse or 0}"


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


def _unique(addresses: Mapping[str, str]) -> dict[str, str]:
    """Addresses of pages, each once."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name, stem in sorted(addresses.items()):
        while stem in taken:
            stem += "-x"
        taken.add(stem)
        out[name] = f"{stem}.html"
    return out


def _times(value: object) -> float | None:
    known = clean(value)
    return None if known is None else 100 * known


def _percent_cell(value: float | None, digits: int = 1) -> Cell:
    known = clean(value)
    return Cell("–") if known is None else Cell(number(100 * known, digits), 100 * known)


def _share_cell(part: int, whole: int) -> Cell:
    return Cell(number(100 * part / whole, 2), 100 * part / whole) if whole else Cell("–")


def _macro(record: Record, tasks: Sequence[str], grader: str) -> float | None:
    if not tasks or any(task not in record.evaluation for task in tasks):
        return None
    return math.fsum(record.evaluation[t].scores[grader].pass_at_1 for t in tasks) / len(tasks)  # type: ignore[index]


def _board_label(board: Board) -> str:
    mark = "tiny results · " if board.small else ""
    return f"{mark}{board.title}, protocol {board.protocol} version {board.version}"


def _hours_label(board: Board) -> str:
    return "GPU-hours" if any(run.record.cost.gpu_hours > 0 for run in board.runs) else "Hours, no GPU"


def _hours_cell(arm: Arm) -> Cell:
    total = math.fsum(figures.hours(run) for run in arm.runs)
    return Cell(number(total, 1 if total >= 10 else 2), total)


def _seeds_cell(arm: Arm, href: str, of: str = "evaluation") -> Cell:
    if of == "evaluation":
        count = len(arm.evaluated)
    else:
        count = sum(bool(r.record.training and r.record.training.late_score is not None) for r in arm.runs)
    text = str(count) if count == len(arm.runs) else f"{count} of {len(arm.runs)}"
    return Cell(text, count, href=href)


def _paper_cells(row: Mapping[str, Any]) -> list[Cell]:
    printed = clean(row.get("published"))
    if printed is None:
        return [Cell("–"), Cell("–")]
    verdict = str(row["verdict"])
    return [
        Cell(number(100 * printed), 100 * printed),
        Cell(verdict, tone=VERDICT_TONES.get(verdict, ""), tip=str(row["verdict_reason"])),
    ]


def _inconclusive(rows: Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]], board: Board) -> list[str]:
    """What the data could not tell about the macro average, in one sentence."""
    parts = []
    for reuse in board.ratios:
        own = [arm for (_, n), arm in rows.items() if n == reuse]
        task = MACRO if any(MACRO in arm for arm in own) else next((t for arm in own for t in arm), "")
        block = [arm[task] for arm in own if task in arm and clean(arm[task]["score"]) is not None]
        tied = [row for row in block if row["tied"]]
        if len(block) < 2 or len(tied) < 2:
            continue
        gaps = [g for row in tied if not row["leader"] and (g := _times(row["detectable"])) is not None]
        size = f" (differences under {number(max(gaps))} points could have been missed)" if gaps else ""
        parts.append(f"at N = {reuse}, {len(tied) - 1} of the {len(block) - 1} others{size}")
    return [f"Not told apart from the highest macro average: {'; '.join(parts)}."] if parts else []


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


__all__ = ["NAVIGATION", "Page", "UserError", "Views"]
