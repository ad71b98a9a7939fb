"""Figures ready for a template, and which of them a page shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from markupsafe import Markup

from harness.records import GRADERS
from leaderboard import tables
from leaderboard.charts import Chart, Value, clean, data_table, legend, svg
from leaderboard.pages import figures
from leaderboard.pages.boards import SIGNS, Board, task_title
from leaderboard.pages.cells import as_rows
from leaderboard.pages.scores import BoardView
from leaderboard.pages.tables import VIEWS
from methods.diagnostics import LOG_WEIGHT_EDGES
from methods.errors import UserError
from methods.registry import Registered


@dataclass(frozen=True)
class Figure:
    """A chart ready for a template. ``identity`` is unique on its page; one with a ``view`` obeys the switches."""

    chart: Chart
    identity: str
    most_rows: int = 40
    view: str = ""

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

    @property
    def table(self) -> Markup:
        """The table behind the chart."""
        return data_table(self.chart, self.most_rows)


def shared_legend(items: Sequence[Figure]) -> list[tuple[Markup, str]]:
    """The one legend that serves several panels: the longest, if it names all that the others show."""
    longest = max((item.legend for item in items), key=len, default=[])
    names = {label for _, label in longest}
    serves = len(items) > 1 and len(names) > 1 and all(names.issuperset(item.labels) for item in items)
    return longest if serves else []


class Panels:
    """The figures of boards and kernels.

    Args:
        registered: the methods that can be asked for their kernel.
        styles: which style each method wears.
        view: the tables of a board.
    """

    def __init__(
        self, registered: Mapping[str, Registered], styles: figures.Styles, view: Callable[[Board], BoardView]
    ) -> None:
        self.registered = registered
        self.styles = styles
        self.view = view

    @cached_property
    def kernels(self) -> dict[str, tuple[str, list[float], dict[str, list[Value]]]]:
        """phi of every registered method with its default hyperparameters, over log W in [-4, 4].

        Raises:
            UserError: a method cannot be made, or gives no number for each weight.
        """
        grid = torch.linspace(-4, 4, 161, dtype=torch.float64)
        curves: dict[str, tuple[str, list[float], dict[str, list[Value]]]] = {}
        for name, entry in self.registered.items():
            by_sign: dict[str, list[Value]] = {}
            for sign, value in (("positive", 1.0), ("negative", -1.0)):
                try:
                    phi = entry.method().coefficient(grid, value)
                    if phi is not None:
                        pairs = zip(grid, phi, strict=True)
                        by_sign[sign] = [clean(round(float(v), 6)) for _, v in pairs]
                except Exception as error:  # of whoever wrote it
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    raise UserError(
                        f"method {name} ({entry.origin}): its coefficient() gives no number for each weight "
                        f"({reason}): mend it, as `reuse-bench check {name}` says, or uninstall it"
                    ) from error
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

    def macro_figure(self, board: Board, view: str = VIEWS[0]) -> Figure:
        """Macro average against N."""
        chart = figures.score_by_reuse(
            board, self.styles, self.view(board).scores, view, "macro", "Held-out macro average against N"
        )
        return Figure(chart, f"macro-{board.key}-{view}", view=view)

    def summary_figures(self, board: Board) -> list[Figure]:
        """Macro average against N in every view, late score against N, and cost against score."""
        macro = (self.macro_figure(board, view) for view in VIEWS)
        return [*(item for item in macro if not item.chart.empty), *self.cost_figures(board)]

    def cost_figures(self, board: Board) -> list[Figure]:
        """Late score against N, and cost against score."""
        view = self.view(board)
        late = {
            (row["method"], row["reuse"]): row
            for row in as_rows(tables.training(board.results))
            if row["measure"] == "late"
        }
        made = [
            Figure(figures.late_by_reuse(board, self.styles, late), f"late-{board.key}"),
            Figure(figures.cost_against_score(board, self.styles, view.scores, VIEWS[0]), f"cost-{board.key}"),
        ]
        return [item for item in made if not item.chart.empty]

    def deep_figures(self, board: Board) -> list[tuple[str, str, str, list[Figure]]]:
        """Anchors and headings with figures: everything that a board's page shows beyond the front page."""
        view = self.view(board)
        out: list[tuple[str, str, str, list[Figure]]] = []
        by_task = [
            Figure(
                figures.score_by_reuse(board, self.styles, view.scores, VIEWS[0], task, task_title(task)),
                f"task-{board.key}-{index}",
            )
            for index, task in enumerate(board.tasks)
        ]
        out.append(
            ("tasks", "Score against N, by benchmark", "Points are means over seeds, with 95 % intervals.", by_task)
        )
        weights = []
        for reuse in board.ratios[-1:]:
            for sign in SIGNS:
                for what in (0, 1):
                    chart = figures.weights_by_method(board, reuse, sign, what, self.styles, LOG_WEIGHT_EDGES)
                    weights.append(Figure(chart, f"weights-{board.key}-{reuse}-{sign}-{what}"))
        if board.ratios:
            out.append(
                (
                    "weights",
                    f"Importance weights at N = {board.ratios[-1]}",
                    "How far the policy has drifted from the one that wrote the responses, and which responses move "
                    "it. The first update of every rollout batch has log W = 0 exactly.",
                    weights,
                )
            )
        out.append(
            (
                "length",
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
                "graders",
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
        kept = [(key, head, text, [f for f in items if not f.chart.empty]) for key, head, text, items in out]
        return [entry for entry in kept if entry[-1]]
