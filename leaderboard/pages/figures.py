"""The figures of the pages: from boards and runs to charts. Every method keeps its colour, marker and dash pattern."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from leaderboard import published, statistics
from leaderboard.charts import Axis, Bars, Chart, Line, Value, clean, percent, short, total
from leaderboard.pages.boards import METHOD_ORDER, QUANTILES, SIGNS, Arm, Board, Run, method_sort

#: What a page asks for an arm's score: (arm, view, task) -> (value, low, high), in [0, 1].
Scores = Callable[[Arm, str, str], tuple[float, float, float] | None]

MACRO = published.MACRO
KERNEL_TOP = 5.5
"""Where the panel of a kernel ends: an unclipped ratio is e⁴ at its right edge, and would flatten all others."""
BIN_TICKS = (-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0)
SIGN_WORDS = {"positive": "positive advantage", "negative": "negative advantage"}


def view_words(view: str) -> str:
    """A view of the scores, such as "published-1", in words."""
    grader, measure = view.split("-")
    return f"pass@{measure}, {grader} grader"


@dataclass(frozen=True)
class Styles:
    """Which style a method wears, on every page the same."""

    groups: Mapping[str, int]

    @classmethod
    def of(cls, methods: Iterable[str]) -> Styles:
        """The four published methods first, further ones in alphabetical order."""
        built_in = [name for name in METHOD_ORDER if name != "base"]
        others = sorted(set(methods) - set(built_in) - {"base"})
        return cls({name: index for index, name in enumerate([*built_in, *others])})

    def __call__(self, method: str) -> int:
        """The style of a method."""
        return self.groups.get(method, 7)


def _band(curves: Sequence[Sequence[tuple[float, float]]]) -> tuple[list[float], list[Value], list[Value], list[Value]]:
    """Mean over the seeds that reached each update, and its band where there are at least two."""
    points: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in curve:
            points.setdefault(x, []).append(y)
    xs = sorted(points)
    means = [total(points[x]) / len(points[x]) for x in xs]
    counts = np.array([len(points[x]) for x in xs])
    deviations = np.array([np.std(points[x], ddof=1) if len(points[x]) > 1 else np.nan for x in xs])
    half = [clean(float(value)) for value in statistics.t_half_width(deviations, counts)]
    low: list[Value] = [None if h is None else m - h for m, h in zip(means, half, strict=True)]
    high: list[Value] = [None if h is None else m + h for m, h in zip(means, half, strict=True)]
    return xs, [*means], low, high


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most ``most`` points, means over neighbours (a rollout batch counts once)."""
    size = max(1, math.ceil(len(points) / most))
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(part[-1][0], total(y for _, y in part) / len(part)) for part in parts]


def training_curves(board: Board, styles: Styles, points: int = 64) -> list[tuple[int, Chart]]:
    """One panel for each N, all with the same axes."""
    charts = [(reuse, training_curve(board, reuse, styles, points)) for reuse in board.ratios]
    lines = [layer for _, chart in charts for layer in chart.layers if isinstance(layer, Line)]
    means = [value for line in lines for item in line.y if (value := clean(item)) is not None]
    bands = [
        value
        for line in lines
        for item in (*(line.low or ()), *(line.high or ()))
        if (value := clean(item)) is not None
    ]
    if not means:
        return []
    # The band of two seeds can be wider than the scale: it may take a third of the height of the curves, no more.
    room = 0.35 * (max(means) - min(means)) + 0.01
    low = max(0.0, min(means) - room, min([*means, *bands]) - 0.01)
    high = min(1.0, max(means) + room, max([*means, *bands]) + 0.01)
    return [(n, replace(c, y=replace(c.y, low=low, high=high))) for n, c in charts if not c.empty]


def training_curve(board: Board, reuse: int, styles: Styles, points: int) -> Chart:
    """Training score against policy updates, one curve a method, with a band where there are several seeds."""
    layers = []
    for arm in board.arms:
        curves = [thin(run.digest.rollouts, points) for run in arm.runs if run.digest.rollouts]
        if arm.reuse == reuse and curves:
            x, mean, low, high = _band(curves)
            layers.append(Line(arm.title, styles(arm.method), x, mean, low, high))
    return Chart(
        f"Training score, N = {reuse}",
        f"Normalised training reward in percent against policy updates on {board.model}, one curve for each method; "
        "bands are 95 % intervals over seeds where there are several.",
        Axis("policy updates", low=0.0),
        Axis("training score, %", show=percent),
        layers,
        scale=100,
    )


def late_by_reuse(board: Board, styles: Styles, scores: Mapping[tuple[str, int], Mapping[str, Any]]) -> Chart:
    """Late training score against N. ``scores``: (method, N) -> row of `leaderboard.tables.training`."""

    def look(arm: Arm, view: str, task: str) -> tuple[float, float, float] | None:
        row = scores.get((arm.method, arm.reuse or 0))
        return None if row is None or clean(row["score"]) is None else (row["score"], row["low"], row["high"])

    return score_by_reuse(board, styles, look, "", "", "Late training score against N", "late score, %")


def score_by_reuse(
    board: Board, styles: Styles, scores: Scores, view: str, task: str, title: str, label: str = ""
) -> Chart:
    """A score against N: a point with its interval for each method."""
    ratios = board.ratios
    layers = []
    for place, method in enumerate(board.methods):
        shift = (place - (len(board.methods) - 1) / 2) * min(0.09, 0.5 / max(1, len(board.methods)))
        name = method
        xs: list[float] = []
        ys: list[Value] = []
        lows: list[Value] = []
        highs: list[Value] = []
        for index, reuse in enumerate(ratios):
            arm = board.arm(method, reuse)
            found = scores(arm, view, task) if arm else None
            if arm and found:
                name = arm.title
                xs.append(index)
                for column, value in zip((ys, lows, highs), found, strict=True):
                    column.append(clean(value))
        if xs:
            layers.append(Line(name, styles(method), xs, ys, lows, highs, points=True, shift=shift))
    return Chart(
        title,
        f"{title.removesuffix(' against N')} on {board.model} against the reuse ratio N, with 95 % intervals.",
        _ratio_axis(ratios),
        Axis(label or f"pass@{view.split('-')[1]}, %", show=percent),
        layers,
        scale=100,
        digits=1,
        note=view_words(view) if view else "",
    )


def lead_by_reuse(rows: Sequence[Mapping[str, Any]], ratios: Sequence[int], group: int, title: str) -> Chart:
    """A difference of two methods against N. ``rows``: of `leaderboard.tables.comparisons`, one benchmark."""
    found = sorted((ratios.index(row["reuse"]), row) for row in rows)
    return Chart(
        f"{title}, macro average" if any(row["task"] == MACRO for row in rows) else title,
        "Difference of the held-out scores in points against the reuse ratio N, paired by problem, with 95 % "
        "intervals; the dashed line is no difference.",
        _ratio_axis(ratios),
        Axis("difference, points", show=percent),
        [
            Line(
                title,
                group,
                [float(index) for index, _ in found],
                [row["difference"] for _, row in found],
                [row["low"] for _, row in found],
                [row["high"] for _, row in found],
                points=True,
                joined=False,
            )
        ],
        rules=(("y", 0.0),),
        scale=100,
        digits=1,
        note="pass@1, published grader",
    )


def _ratio_axis(ratios: Sequence[int]) -> Axis:
    return Axis(
        "N, policy updates per rollout batch",
        low=-0.4,
        high=max(0.4, len(ratios) - 0.6),
        ticks=[(i, str(reuse)) for i, reuse in enumerate(ratios)],
    )


def kernel(
    curves: Mapping[str, tuple[str, Sequence[float], Mapping[str, Sequence[Value]]]], sign: str, styles: Styles
) -> Chart:
    """phi(W) for one advantage sign. ``curves``: method -> (title, log W, sign -> phi)."""
    layers = [
        Line(title, styles(method), x, by_sign[sign])
        for method, (title, x, by_sign) in sorted(curves.items(), key=lambda item: method_sort(item[0]))
        if sign in by_sign
    ]
    relation = "≥" if sign == "positive" else "<"
    values = [value for line in layers for item in line.y if (value := clean(item)) is not None]
    leaving = [line.label for line in layers if any((clean(item) or 0.0) > KERNEL_TOP for item in line.y)]
    beyond = f" Beyond the panel: {', '.join(leaving)}; the table has all values." if leaving else ""
    return Chart(
        f"Kernel φ(W), A {relation} 0",
        f"The coefficient phi that multiplies A times the gradient of log pi, against the log importance weight "
        f"log W of the response, for {SIGN_WORDS[sign]}s.{beyond}",
        Axis("log W (nats)", low=-4.0, high=4.0, ticks=[(v, short(v)) for v in range(-4, 5)], numeric=True),
        Axis("φ(W)", low=0.0, high=min(KERNEL_TOP, max(1.5, 1.06 * max(values, default=1.0)))),
        layers,
        rules=(("x", 0.0),),
        digits=3,
        cut=True,
    )


def _bin_axis(edges: Sequence[float], bins: int) -> Axis:
    """Ticks at edges, which lie between bars; unequal bins, so only those that leave room for one another."""
    if len(edges) != bins - 1:
        return Axis("bin of log W", low=-0.5, high=bins - 0.5, ticks=[])
    ticks = [(i + 0.5, short(e)) for i, e in enumerate(edges) if e in BIN_TICKS]
    shown = [short(edge) for edge in edges]
    inner = [f"{low} to {high}" for low, high in pairwise(shown)]
    names = [f"below {shown[0]}", *inner, f"from {shown[-1]}"]
    return Axis("log W (nats)", low=-0.5, high=bins - 0.5, ticks=ticks, names=names)


def histogram(runs: Sequence[Run], sign: str, group: int, edges: Sequence[float], title: str) -> Chart:
    """One method: share of the responses and share of the coefficient mass in each bin of log W."""
    counts, mass = summed(runs, sign)
    return Chart(
        title,
        f"Share of the responses of {SIGN_WORDS[sign]}, and their share of the coefficient mass |phi A|, in each bin "
        "of the log importance weight, over all policy updates.",
        _bin_axis(edges, len(counts)),
        Axis("share, %", low=0.0, show=percent),
        [
            Bars("share of responses", group, counts, hollow=True),
            Bars("share of coefficient mass", group, mass),
        ],
        scale=100,
        digits=1,
    )


def summed(runs: Sequence[Run], sign: str) -> tuple[list[Value], list[Value]]:
    """Shares per bin of all runs together: of responses, of coefficient mass."""
    found = [run.digest.histograms[sign] for run in runs if sign in run.digest.histograms]
    if not found:
        return [], []
    bins = max(len(item.counts) for item in found)
    out: list[list[Value]] = []
    for pick in ("counts", "mass"):
        columns = [getattr(item, pick) for item in found]
        sums = [total(column[i] for column in columns if i < len(column)) for i in range(bins)]
        whole = total(sums)
        out.append([value / whole if whole > 0 and math.isfinite(whole) else None for value in sums])
    return out[0], out[1]


def weights_by_method(board: Board, reuse: int, sign: str, what: int, styles: Styles, edges: Sequence[float]) -> Chart:
    """All methods: share of responses (``what`` 0) or of coefficient mass (1) per bin of log W."""
    words = ("responses", "coefficient mass")[what]
    layers = []
    bins = 0
    for arm in board.arms:
        if arm.reuse != reuse:
            continue
        shares = summed(arm.runs, sign)[what]
        if shares:
            bins = max(bins, len(shares))
            layers.append(Line(arm.title, styles(arm.method), [float(i) for i in range(len(shares))], shares))
    return Chart(
        f"Share of {words}, A {'>' if sign == 'positive' else '<'} 0",
        f"Share of the {words} in each bin of the log importance weight on {board.model} at N = {reuse}, "
        f"{SIGN_WORDS[sign]}, over all policy updates.",
        _bin_axis(edges, max(bins, 1)),
        Axis(f"share of {words}, %", low=0.0, show=percent),
        layers,
        scale=100,
        digits=1,
    )


def deciles(board: Board, reuse: int, styles: Styles, grader: str) -> Chart:
    """Held-out accuracy by decile of response length."""
    layers = []
    for arm in board.arms:
        rows = [run.digest.deciles[grader] for run in arm.runs if grader in run.digest.deciles]
        if arm.reuse == reuse and rows:
            means = [total(v or 0.0 for v in column) / len(column) for column in zip(*rows, strict=True)]
            layers.append(Line(arm.title, styles(arm.method), [float(i + 1) for i in range(10)], means))
    return Chart(
        f"Accuracy by response length, N = {reuse}",
        "Held-out accuracy by decile of response length, shortest first; ranked inside each benchmark, then the mean "
        f"over benchmarks; {board.model}, {grader} grader.",
        Axis("decile of response length", ticks=[(i, str(i)) for i in range(1, 11)]),
        Axis("accuracy, %", low=0.0, show=percent),
        layers,
        scale=100,
        digits=1,
        note=f"{grader} grader, shortest responses first",
    )


def share_by_reuse(board: Board, styles: Styles, share: Callable[[Run], float | None], title: str, text: str) -> Chart:
    """A share of the held-out samples against N, mean over seeds."""
    ratios = board.ratios
    layers = []
    for place, method in enumerate(board.methods):
        shift = (place - (len(board.methods) - 1) / 2) * min(0.09, 0.5 / max(1, len(board.methods)))
        xs, ys, name = [], [], method
        for index, reuse in enumerate(ratios):
            arm = board.arm(method, reuse)
            values = [v for run in arm.evaluated if (v := share(run)) is not None] if arm else []
            if arm and values:
                name = arm.title
                xs.append(index)
                ys.append(total(values) / len(values))
        if xs:
            layers.append(Line(name, styles(method), xs, ys, points=True, shift=shift))
    return Chart(
        title,
        text,
        _ratio_axis(ratios),
        Axis("share of samples, %", low=0.0, show=percent),
        layers,
        scale=100,
    )


def truncated_share(run: Run) -> float | None:
    """Share of the held-out samples that hit the token cap."""
    samples = sum(t.problems * t.sampling.samples_per_problem for t in run.record.evaluation.values())
    return sum(t.truncated for t in run.record.evaluation.values()) / samples if samples else None


def disagreement_share(run: Run) -> float | None:
    """Share of the held-out samples on which the two graders differ."""
    samples = sum(
        t.problems * t.sampling.samples_per_problem
        for name, t in run.record.evaluation.items()
        if name in run.digest.disagreements
    )
    return sum(a + b for a, b in run.digest.disagreements.values()) / samples if samples else None


def hours(run: Run) -> float:
    """GPU-hours, or hours of wall time on a machine without GPUs."""
    cost = run.record.cost
    return cost.gpu_hours or (cost.training_seconds + cost.evaluation_seconds) / 3600


def cost_against_score(board: Board, styles: Styles, scores: Scores, view: str) -> Chart:
    """Macro average against what a run took."""
    with_gpu = any(run.record.cost.gpu_hours > 0 for run in board.runs)
    layers = []
    for method in board.methods:
        points = []
        name = method
        for arm in board.arms:
            found = scores(arm, view, "macro") if arm.method == method and arm.evaluated else None
            if found:
                name = arm.title
                cost = total(hours(run) for run in arm.evaluated) / len(arm.evaluated)
                points.append((cost, found, str(arm.reuse)))
        if points:
            points.sort()
            layers.append(
                Line(
                    name,
                    styles(method),
                    [x for x, _, _ in points],
                    [y for _, (y, _, _), _ in points],
                    [low for _, (_, low, _), _ in points],
                    [high for _, (_, _, high), _ in points],
                    points=True,
                    joined=False,
                    names=[name for _, _, name in points],
                )
            )
    unit = "GPU-hours per run" if with_gpu else "hours of wall time per run (no GPU)"
    return Chart(
        "Cost against score, points named by N",
        f"Macro average against {unit} on {board.model}; one point for each method and reuse ratio N.",
        Axis(unit),
        Axis("macro average, %", show=percent),
        layers,
        scale=100,
        digits=1,
        note=view_words(view),
        named="N",
    )


def run_curves(run: Run, group: int) -> list[Chart]:
    """Score and diagnostics of one run, one panel each; panels without data are left out."""
    series = run.digest.series
    charts: list[Chart] = []
    if run.digest.rollouts:
        points = thin(run.digest.rollouts, 128)
        charts.append(
            Chart(
                "Training score",
                "Normalised training reward of each rollout batch in percent, against policy updates.",
                Axis("policy updates", low=0.0),
                Axis("training score, %", show=percent),
                [Line("training score", group, [x for x, _ in points], [y for _, y in points])],
                scale=100,
            )
        )
    for sign in SIGNS:
        low, middle, high = (series.get(f"{sign}.{name}", ()) for name in QUANTILES)
        if middle:
            charts.append(
                Chart(
                    f"log W, {SIGN_WORDS[sign]}",
                    "Median of the log importance weight of the responses in each policy update, with the range from "
                    "the 5 % to the 95 % quantile.",
                    Axis("policy updates", low=0.0),
                    Axis("log W (nats)"),
                    [
                        Line(
                            "median log W",
                            group,
                            [x for x, _ in middle],
                            [y for _, y in middle],
                            [y for _, y in low],
                            [y for _, y in high],
                        )
                    ],
                    rules=(("y", 0.0),),
                    digits=3,
                )
            )
    for name, title, label, factor in (
        ("ess", "Effective sample size", "share of responses, %", 100.0),
        ("clip_fraction", "Clip fraction", "share of tokens, %", 100.0),
        ("gradient_norm", "Gradient norm", "norm", 1.0),
        ("loss", "Loss", "loss", 1.0),
        ("mean_length", "Response length", "tokens", 1.0),
        ("truncated", "Truncated responses", "share, %", 100.0),
        ("engine_gap", "Trainer against engine", "mean |Δ log-prob|, nats", 1.0),
        ("learning_rate", "Learning rate", "learning rate", 1.0),
    ):
        points_ = series.get(name)
        if points_:
            charts.append(
                Chart(
                    title,
                    f"{title} of each policy update: {label.replace(', %', ' in percent')}.",
                    Axis("policy updates", low=0.0),
                    Axis(label, low=0.0, show=percent) if factor == 100 else Axis(label),
                    [Line(title, group, [x for x, _ in points_], [y for _, y in points_])],
                    scale=factor,
                    digits=4 if factor == 1 else 2,
                )
            )
    return charts
