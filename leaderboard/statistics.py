"""What is sure about a score: errors, intervals, comparisons. Formulas and sources: ``docs/statistics.md``.

Shapes used throughout. One benchmark of one cell is a matrix ``values[seeds, problems]``: for each training
seed and each problem the share of right samples (or an unbiased pass@k), in [0, 1]. A cell is a list of
such matrices, one a benchmark, all with the same seeds in the same order; its score is the plain mean over
benchmarks of the mean over problems and seeds, so that one benchmark is the list of length one and the six
of them give the macro average.

Two questions can be asked about a score, and they have different errors:

``new_questions``: how would the method do on further questions of this kind, over training seeds? Problems
and seeds are both random (crossed).

``these_questions``: how would the method do on these very questions, over training seeds and sampling?
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

Floats = NDArray[np.float64]
Population = Literal["new_questions", "these_questions"]

LEVEL = 0.95
POWER = 0.80
SEED_GUARD = 3
"""A difference must also be told by its seed scores alone, at this many times the level; see docs/statistics.md."""
ONE_SEED = "one seed: the interval leaves out how the score varies with the training seed"
ONE_PROBLEM = "one problem: the interval leaves out how the score varies with the problem"


def pass_at_1(right: ArrayLike, samples: int) -> float:
    """Mean over samples, then over problems (and seeds) of ``right[..., problems]`` out of ``samples``."""
    return float(np.mean(np.asarray(right, dtype=float) / samples))


def pass_at_k(right: ArrayLike, samples: int, k: int) -> Floats:
    """Unbiased pass@k of each problem: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374, eq. 1).

    Args:
        right: c, right samples of each problem, any shape, in 0..samples.
        samples: n.
        k: in 1..samples.

    Raises:
        ValueError: k or a count is out of range.
    """
    counts = np.asarray(right, dtype=float)
    if not 1 <= k <= samples:
        raise ValueError(f"k is {k}, and must lie in 1..{samples}")
    if counts.size and (counts.min() < 0 or counts.max() > samples):
        raise ValueError(f"right: counts must lie in 0..{samples}")
    steps = np.arange(k)
    # C(n-c, k) / C(n, k) as a product of k ratios: no factorials, and zero as soon as n - c < k.
    ratios = np.clip(samples - counts[..., None] - steps, 0, None) / (samples - steps)
    return np.asarray(1 - ratios.prod(axis=-1))


def sampling_error(right: ArrayLike, samples: int) -> float:
    """Standard error of pass@1 for these questions and this one checkpoint: only the sampling is random.

    sqrt(sum over problems of p (1 - p) / (k - 1)) / P (Miller 2024, arXiv:2411.00640, section 2.1). NaN for
    k = 1, where the variance within a problem cannot be estimated.
    """
    counts = np.asarray(right, dtype=float).ravel()
    if samples < 2:
        return float("nan")
    share = counts / samples
    return float(np.sqrt((share * (1 - share) / (samples - 1)).sum()) / counts.size)


def question_error(values: ArrayLike) -> float:
    """Standard error of pass@1 for the population of questions, clustered by problem: sd / sqrt(P).

    Contains the sampling error: a problem's mean already varies with its samples (Miller 2024, section 2.2).

    Args:
        values: [problems].
    """
    array = np.asarray(values, dtype=float)
    if array.size < 2:
        return float("nan")
    return float(array.std(ddof=1) / np.sqrt(array.size))


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error and interval; ``leaves_out`` says in words what the interval cannot
    know.
    """

    value: float
    low: float
    high: float
    error: float
    seeds: int
    leaves_out: str = ""


@dataclass(frozen=True)
class Comparison:
    """``difference`` = first minus second, with interval, two-sided p-value, and what could have been
    detected.
    """

    difference: float
    low: float
    high: float
    error: float
    p_value: float
    detectable: float
    leaves_out: str = ""


def as_cell(values: Sequence[ArrayLike]) -> list[Floats]:
    """Validate a cell: a list of matrices [seeds, problems] with equal seeds.

    Raises:
        ValueError: no benchmark, an empty or non-finite matrix, or different numbers of seeds.
    """
    cell = [np.atleast_2d(np.asarray(matrix, dtype=float)) for matrix in values]
    if not cell:
        raise ValueError("a cell needs at least one benchmark")
    if any(matrix.ndim != 2 or matrix.size == 0 or not np.isfinite(matrix).all() for matrix in cell):
        raise ValueError("each benchmark is a finite matrix [seeds, problems]")
    if len({matrix.shape[0] for matrix in cell}) != 1:
        raise ValueError("all benchmarks of a cell have the same seeds")
    return cell


def seed_scores(cell: Sequence[Floats]) -> Floats:
    """Score of each seed, [..., seeds]: the mean over benchmarks of the mean over problems."""
    return np.asarray(np.mean([matrix.mean(axis=-1) for matrix in cell], axis=0), dtype=float)


@dataclass(frozen=True)
class Part:
    """An independent part of the variance of an estimate, with its degrees of freedom; numbers, or arrays [tables]."""

    variance: Any
    df: Any


_NOTHING = Part(0.0, 1.0)


def _sum(parts: Sequence[Part]) -> Part:
    """The sum of parts; degrees of freedom by Satterthwaite (1946)."""
    total = sum(part.variance for part in parts)
    spread = sum(part.variance**2 / part.df for part in parts)
    if np.ndim(spread) == 0:
        return Part(total, total**2 / spread if spread > 0 else max((part.df for part in parts), default=1.0))
    return Part(total, np.where(spread > 0, total**2 / np.where(spread > 0, spread, 1.0), 1.0))


def _question_part(problem_values: Sequence[Floats]) -> Part:
    """Variance of a mean over benchmarks of means over problems [..., problems], from the spread between problems."""
    share = len(problem_values) ** 2
    sizes = [(x, x.shape[-1]) for x in problem_values if x.shape[-1] > 1]
    return _sum([Part(x.var(axis=-1, ddof=1) / size / share, size - 1.0) for x, size in sizes])


def _seed_parts(cells: Sequence[Sequence[Floats]]) -> tuple[Part, Part]:
    """Variance of a sum or difference of independent cells [..., seeds, problems] over training seeds.

    Returns:
        What the seeds add to the variance between problems, and the variance of the seed scores over S. The first is
        the second less what problems and sampling already put into the seed scores (the mean square of the residuals
        of values[seeds, problems] after the means of rows and columns); a negative difference is zero.
    """
    parts = []
    within: Any = 0.0
    for cell in cells:
        seeds = cell[0].shape[-2]
        if seeds < 2:
            continue
        parts.append(Part(seed_scores(cell).var(axis=-1, ddof=1) / seeds, seeds - 1.0))
        for matrix in cell:
            problems = matrix.shape[-1]
            if problems > 1:
                rows, columns = matrix.mean(axis=-1, keepdims=True), matrix.mean(axis=-2, keepdims=True)
                rest = matrix - rows - columns + rows.mean(axis=-2, keepdims=True)
                mean_square = (rest**2).sum(axis=(-2, -1)) / (seeds - 1) / (problems - 1)
                within = within + mean_square / (seeds * problems * len(cell) ** 2)
    total = _sum(parts)
    return Part(np.maximum(0.0, total.variance - within), total.df), total


def _student(part: Part, tail: float) -> Any:
    """Half width of Student's interval that leaves ``tail`` on each side."""
    return special.stdtrit(part.df, 1 - min(tail, 0.5)) * part.variance**0.5


def difference_half_width(question: Part, seed: Part, over_seeds: Part, tail: float) -> Any:
    """Half width of the interval of a paired difference that leaves ``tail`` on each side.

    Its square lies between two classical ones for a sum of independent parts: one t quantile for the sum with
    Satterthwaite's degrees of freedom, which covers too little where seeds dominate, and each part with its own t
    quantile (Howe 1974; Zou and Donner 2008 call it MOVER), which covers too much where they do not. The seeds' share
    of the variance is the weight of the second.

    And it is at least Student's over the seed scores at `SEED_GUARD` times the tail: two or three seeds that lie close
    together by chance must not make a difference sure at the small levels that many comparisons ask for.
    """
    mixed = _mixed(question, seed, _sum([question, seed]), tail)
    return np.maximum(mixed, _student(over_seeds, SEED_GUARD * tail))


def _mixed(question: Part, seed: Part, total: Part, tail: float) -> Any:
    share = seed.variance / (total.variance + np.finfo(float).tiny)
    apart = _student(question, tail) ** 2 + _student(seed, tail) ** 2
    return (share * apart + (1 - share) * _student(total, tail) ** 2) ** 0.5


def difference_parts(first: Sequence[Floats], second: Sequence[Floats]) -> tuple[Any, Part, Part, Part]:
    """First minus second, and the parts that `difference_half_width` takes, for cells of [..., seeds, problems]."""
    gaps = [x.mean(axis=-2) - y.mean(axis=-2) for x, y in zip(first, second, strict=True)]
    difference = np.mean([gap.mean(axis=-1) for gap in gaps], axis=0)
    return difference, _question_part(gaps), *_seed_parts([first, second])


def _p_value(difference: float, question: Part, seed: Part, over_seeds: Part) -> float:
    """The level at which the interval of the difference just reaches zero."""
    size = abs(difference)
    total = _sum([question, seed])
    if size == 0:
        return 1.0
    if total.variance + over_seeds.variance == 0:
        return 0.0
    guard = 2 * special.stdtr(over_seeds.df, -size / over_seeds.variance**0.5) if over_seeds.variance > 0 else 0.0

    def excess(log_tail: float) -> float:
        return float(_mixed(question, seed, total, math.exp(log_tail))) - size

    smallest, largest = math.log(1e-15), math.log(0.5)
    if excess(smallest) <= 0:
        return max(2e-15, float(guard) / SEED_GUARD)
    tail = math.exp(optimize.brentq(excess, smallest, largest, xtol=1e-10))
    return max(2 * tail, float(guard) / SEED_GUARD)


def _leaves_out(*cells: Sequence[Floats]) -> str:
    parts = []
    if any(cell[0].shape[0] < 2 for cell in cells):
        parts.append(ONE_SEED)
    if any(matrix.shape[1] < 2 for cell in cells for matrix in cell):
        parts.append(ONE_PROBLEM)
    return "; ".join(parts)


def wilson(value: Any, error: Any, half_width: Any, *, units: float) -> tuple[Any, Any]:
    """Interval for a mean of values in [0, 1]: Wilson's, with the effective sample size and t in place of z.

    The effective sample size is value (1 - value) / error^2 (Korn and Graubard 1998; Dean and Pagano 2015), t is
    half_width / error. The interval stays inside [0, 1], and keeps its coverage where a few hard problems make the
    scores skewed. Where the data show no variance at all (all right or all wrong) ``units``, the number of
    independent units, takes its place. Numbers, or arrays of one shape.
    """
    spread = value * (1 - value)
    known = (error > 0) & (spread > 0)
    safe = np.where(known, error, 1.0)
    n = np.where(known, spread / safe**2, units)
    t = np.where(known, half_width / safe, special.stdtrit(max(units - 1, 1.0), (1 + LEVEL) / 2))
    centre = (value + t * t / (2 * n)) / (1 + t * t / n)
    half = t / (1 + t * t / n) * np.sqrt(spread / n + t * t / (4 * n * n))
    return np.maximum(0.0, centre - half), np.minimum(1.0, centre + half)


def score_interval(cell: Sequence[Floats], *, level: float = LEVEL) -> tuple[Any, Any, Any, Any]:
    """Score, low, high and standard error of cells of [..., seeds, problems], for new questions (see `estimate`)."""
    seed, over_seeds = _seed_parts([cell])
    question = _question_part([matrix.mean(axis=-2) for matrix in cell])
    total = Part(question.variance + seed.variance, question.df)
    tail = (1 - level) / 2
    half = np.maximum(_student(total, tail), _student(over_seeds, tail))
    value, error = seed_scores(cell).mean(axis=-1), np.sqrt(total.variance)
    units = float(sum(matrix.shape[-1] for matrix in cell))
    return value, *wilson(value, error, half, units=units), error


def estimate(
    values: Sequence[ArrayLike],
    *,
    population: Population = "new_questions",
    samples: Sequence[int] | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Score of a cell with its interval.

    Args:
        values: a list of [seeds, problems], one a benchmark.
        population: see the module's first lines.
        samples: samples per problem of each benchmark; needed for ``these_questions`` with one seed, where
            the only variance that can be known is that of sampling.
        level: coverage.

    For ``new_questions`` seeds and problems are crossed random effects: the variance between problems and what the
    seeds add to it, by the method of moments. The half width is the larger of two: that of this variance with the t
    quantile of the problems, and Student's t over the seed scores alone, which decides where seeds dominate. For
    ``these_questions`` it is the latter. Resampling two or three seeds would cover too little.
    """
    cell = as_cell(values)
    means = seed_scores(cell)
    seeds, value, note = means.size, float(means.mean()), _leaves_out(cell)
    if population == "new_questions":
        if all(matrix.shape[1] < 2 for matrix in cell):
            return Estimate(value, 0.0, 1.0, float("nan"), seeds, note)
        low, high, error = (float(bound) for bound in score_interval(cell, level=level)[1:])
        return Estimate(value, low, high, error, seeds, note)
    units = float(sum(matrix.shape[1] for matrix in cell))
    if seeds > 1:
        total, note = _seed_parts([cell])[1], ""
    else:
        if samples is None or len(samples) != len(cell):
            raise ValueError("with one seed, these_questions needs the samples per problem of each benchmark")
        errors = [sampling_error(matrix[0] * k, k) for matrix, k in zip(cell, samples, strict=True)]
        draws = float(sum(matrix.size * k for matrix, k in zip(cell, samples, strict=True)))
        total, note = Part(float(np.sum(np.square(errors))) / len(cell) ** 2, draws - units), ONE_SEED
        units = draws
        if np.isnan(total.variance):
            return Estimate(value, 0.0, 1.0, float("nan"), seeds, note)
    error = float(np.sqrt(total.variance))
    low, high = wilson(value, error, _student(total, (1 - level) / 2), units=units)
    return Estimate(value, float(low), float(high), error, seeds, note)


def mean_over_seeds(scores: ArrayLike, *, level: float = LEVEL) -> Estimate:
    """Mean of ``scores[seeds]`` with Student's t interval; with one seed the bounds are NaN."""
    array = np.asarray(scores, dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError("scores is a vector [seeds] with at least one entry")
    value = float(array.mean())
    if array.size < 2:
        nan = float("nan")
        return Estimate(value, nan, nan, nan, 1, ONE_SEED)
    error = float(array.std(ddof=1) / np.sqrt(array.size))
    half = float(special.stdtrit(array.size - 1, (1 + level) / 2)) * error
    return Estimate(value, value - half, value + half, error, array.size)


def compare(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], *, level: float = LEVEL, among: int = 1
) -> Comparison:
    """First minus second, paired by problem, seeds independent, for new questions of the same kind.

    The variance is that of the per-problem differences (which carries the sampling and the seed-by-problem
    part) plus each side's seed component; the interval is `difference_half_width`'s. With one seed on a side its seed
    component is unknown and left out, which the result says.

    Args:
        first: a list of [seeds, problems], one a benchmark.
        second: the same.
        level: of the interval.
        among: how many comparisons are judged together. ``detectable`` is at the level that Holm asks of the first of
            them; p-value and interval are those of this one alone.

    Raises:
        ValueError: the two do not have the same problems.
    """
    a, b = as_cell(first), as_cell(second)
    if [matrix.shape[1] for matrix in a] != [matrix.shape[1] for matrix in b]:
        raise ValueError("a paired comparison needs the same problems on both sides")
    difference, *parts = difference_parts(a, b)
    if all(matrix.shape[1] < 2 for matrix in a):
        return _unknown(float(difference), _leaves_out(a, b))
    return _comparison(float(difference), *parts, note=_leaves_out(a, b), level=level, among=among)


def compare_seed_scores(first: ArrayLike, second: ArrayLike, *, level: float = LEVEL) -> Comparison:
    """Difference of two means over seeds (training scores), by Welch's t test (1947)."""
    sides = [np.asarray(side, dtype=float) for side in (first, second)]
    difference = float(sides[0].mean() - sides[1].mean())
    if any(side.size < 2 for side in sides):
        return _unknown(difference, ONE_SEED)
    seed = _sum([Part(side.var(ddof=1) / side.size, side.size - 1.0) for side in sides])
    return _comparison(difference, _NOTHING, seed, seed, note="", level=level, among=1)


def _unknown(difference: float, note: str) -> Comparison:
    nan = float("nan")
    return Comparison(difference, nan, nan, nan, nan, nan, note)


def _comparison(
    difference: float, question: Part, seed: Part, over_seeds: Part, *, note: str, level: float, among: int
) -> Comparison:
    error = float(np.sqrt(question.variance + seed.variance))
    half, reach = (
        float(difference_half_width(question, seed, over_seeds, (1 - level) / 2 / share)) for share in (1, among)
    )
    return Comparison(
        difference,
        difference - half,
        difference + half,
        error,
        _p_value(difference, question, seed, over_seeds),
        detectable(error, reach),
        note,
    )


def detectable(error: float, half_width: float, *, power: float = POWER) -> float:
    """Smallest true difference that the test finds with probability ``power``: half width + z_power error."""
    return half_width + float(special.ndtri(power)) * error


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down adjustment (1979) of a family of p-values; NaN entries stay out of the family."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return adjusted


def probability_of_improvement(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> float:
    """Chance that a run of the first beats a run of the second, mean over benchmarks (Agarwal et al. 2021).

    Per benchmark this is the Mann-Whitney U of the seed scores divided by the number of pairs; a tie counts
    half.

    Args:
        first: one vector [seeds] a benchmark.
        second: the same benchmarks.
    """
    chances = []
    for x, y in zip(first, second, strict=True):
        gap = np.asarray(x, dtype=float)[:, None] - np.asarray(y, dtype=float)[None, :]
        chances.append(float(np.mean((gap > 0) + 0.5 * (gap == 0))))
    return float(np.mean(chances))


def rank_stability(values: ArrayLike, *, splits: int = 1000, rng: np.random.Generator) -> float:
    """Mean Spearman correlation of the methods' ranks on two random halves of the problems.

    Args:
        values: [methods, problems], means over seeds.
        splits: random halves drawn.
        rng: the source of all randomness.

    Returns:
        1 when any half gives the same order, about 0 when the order is noise; NaN for fewer than two
        methods or problems.
    """
    table = np.asarray(values, dtype=float)
    methods, problems = table.shape
    half = problems // 2
    if methods < 2 or half < 1:
        return float("nan")
    order = rng.permuted(np.tile(np.arange(problems), (splits, 1)), axis=1)
    member = np.zeros((splits, problems))
    np.put_along_axis(member, order[:, :half], 1.0, axis=1)
    used = np.zeros((splits, problems))
    np.put_along_axis(used, order[:, : 2 * half], 1.0, axis=1)
    one = stats.rankdata(member @ table.T / half, axis=1)
    two = stats.rankdata((used - member) @ table.T / half, axis=1)
    one -= one.mean(axis=1, keepdims=True)
    two -= two.mean(axis=1, keepdims=True)
    norm = np.sqrt((one**2).sum(axis=1) * (two**2).sum(axis=1))
    return float(np.mean(np.where(norm > 0, (one * two).sum(axis=1) / np.where(norm > 0, norm, 1), 0.0)))


@dataclass(frozen=True)
class PublishedCheck:
    """How a published number stands against ours; ``low`` and ``high`` bound one further run of ours."""

    verdict: Literal["reproduced", "contradicted", "inconclusive"]
    low: float
    high: float
    reason: str


def check_published(
    published: float,
    values: Sequence[ArrayLike],
    *,
    samples: Sequence[int],
    margin: float = 0.05,
    level: float = LEVEL,
) -> PublishedCheck:
    """Judge a published score, itself one run on the same questions, against ours.

    A further run on the same questions lies in the prediction interval mean +- t sqrt(1 + 1/S) sd(seed
    scores). Outside it: contradicted. Inside, and the interval reaches no further than ``margin`` from the
    published number on either side: reproduced. Else inconclusive. With one seed only the sampling is
    known, so nothing can be contradicted.
    """
    cell = as_cell(values)
    means = seed_scores(cell)
    if means.size > 1:
        return check_published_seeds(published, means, margin=margin, level=level)
    one = estimate(cell, population="these_questions", samples=samples, level=level)
    # The published number has the same sampling error as ours: sqrt(2) errors apart.
    reach = float(special.ndtri((1 + level) / 2)) * one.error * float(np.sqrt(2))
    return _judge(published, one.value - reach, one.value + reach, margin, one_seed=True)


def check_published_seeds(
    published: float, scores: ArrayLike, *, margin: float = 0.05, level: float = LEVEL
) -> PublishedCheck:
    """The same for a number of which only seed scores [seeds] are known (training scores)."""
    means = np.asarray(scores, dtype=float)
    if means.size < 2:
        return PublishedCheck("inconclusive", float("nan"), float("nan"), ONE_SEED)
    reach = float(stats.t.ppf((1 + level) / 2, means.size - 1) * np.sqrt(1 + 1 / means.size) * means.std(ddof=1))
    return _judge(published, float(means.mean()) - reach, float(means.mean()) + reach, margin, one_seed=False)


def _judge(published: float, low: float, high: float, margin: float, *, one_seed: bool) -> PublishedCheck:
    if not low <= published <= high:
        if one_seed:
            return PublishedCheck("inconclusive", low, high, f"outside what sampling explains, but {ONE_SEED}")
        return PublishedCheck("contradicted", low, high, "outside the interval of one further run")
    if max(high - published, published - low) <= margin:
        return PublishedCheck("reproduced", low, high, ONE_SEED if one_seed else "")
    return PublishedCheck("inconclusive", low, high, "inside an interval too wide to confirm it")


@dataclass(frozen=True)
class Bootstrap:
    """Resampled scores: ``scores[resamples, cells, benchmarks + 1]``, the last column being the macro
    average.
    """

    cells: tuple[str, ...]
    scores: NDArray[np.float32]

    def differences(self, pairs: Sequence[tuple[int, int]]) -> NDArray[np.float32]:
        """First minus second for pairs of cells, [resamples, pairs, benchmarks + 1]."""
        first, second = (np.array([pair[side] for pair in pairs], dtype=int) for side in (0, 1))
        # In memory the resamples of one number lie together, which is what quantiles want.
        by_task = self.scores.transpose(2, 1, 0)
        return np.asarray((by_task[:, first] - by_task[:, second]).transpose(2, 1, 0))


def percentile_intervals(resampled: NDArray[np.float32], *, level: float = LEVEL) -> Floats:
    """Percentile bounds over the first axis, [2, ...]; linear between order statistics, as numpy's default.

    One partition for both bounds: a full sort, or two calls, would cost more than the resampling.
    """
    count = resampled.shape[0]
    positions = np.array([(1 - level) / 2, (1 + level) / 2]) * (count - 1)
    below = np.floor(positions).astype(int)
    above = np.minimum(below + 1, count - 1)
    columns = np.array(np.moveaxis(resampled, 0, -1), order="C")
    columns.partition(np.unique(np.concatenate([below, above])), axis=-1)
    share = positions - below
    bounds = columns[..., below] * (1 - share) + columns[..., above] * share
    return np.asarray(np.moveaxis(bounds, -1, 0), dtype=float)


def bootstrap(
    cells: Mapping[str, Sequence[ArrayLike]],
    *,
    rng: np.random.Generator,
    samples: Sequence[int] | None = None,
    resamples: int = 10_000,
    levels: Sequence[Literal["seeds", "problems", "samples"]] = ("seeds", "problems", "samples"),
) -> Bootstrap:
    """Hierarchical bootstrap of a table: seeds, then problems, then samples.

    All cells share the resampled problems, so that differences between them are paired. A resample of
    problems is a vector of multinomial weights: one matrix product gives all cells at once, and no index is
    ever gathered. Seeds are resampled for each cell on its own. Resampling samples adds to each weighted
    mean a noise whose variance given the weights is known exactly (a sum of binomials); it is drawn from
    the normal law with that variance.

    Resampling k of k samples and P of P problems counts the sampling twice (Davison and Hinkley 1997, 3.8):
    leave ``samples`` out of ``levels`` for an interval about new questions. And with S seeds the seed
    variance comes out too small by (S - 1) / S: intervals on the page come from `estimate` and `compare`,
    which cover.

    Args:
        cells: name -> list of [seeds, problems]; the same benchmarks and problems in every cell, seeds as
            they are.
        rng: the source of all randomness.
        samples: samples per problem of each benchmark; needed for the level ``samples``.
        resamples: number of resamples.
        levels: what is resampled.
    """
    table = {name: as_cell(values) for name, values in cells.items()}
    if not table:
        raise ValueError("no cells")
    shapes = {tuple(matrix.shape[1] for matrix in cell) for cell in table.values()}
    if len(shapes) != 1:
        raise ValueError("all cells need the same benchmarks and problems")
    (problems,) = shapes
    if "samples" in levels and (samples is None or len(samples) != len(problems)):
        raise ValueError("the level 'samples' needs the samples per problem of each benchmark")
    counts = [cell[0].shape[0] for cell in table.values()]
    starts = np.cumsum([0, *counts[:-1]])
    drawn = _drawn_seeds(counts, resamples, rng, resample="seeds" in levels)
    scores = np.empty((len(problems) + 1, len(table), resamples), dtype=np.float32)
    for task, size in enumerate(problems):
        values = np.concatenate([cell[task] for cell in table.values()]).astype(np.float32)
        weights = _multinomial_weights(size, resamples, rng) if "problems" in levels else np.ones((1, size), np.float32)
        share = np.repeat(np.array(counts, dtype=np.float32), counts)[:, None] * size
        scores[task] = _per_cell(values / share @ weights.T, drawn, starts)
        if "samples" in levels:
            assert samples is not None
            # A seed that is drawn twice is sampled twice: its noise counts its draws, not their square.
            noise = values * (1 - values) / samples[task] / share**2
            variance = _per_cell(noise @ weights.T, drawn, starts)
            scores[task] += np.sqrt(variance) * rng.standard_normal(scores[task].shape, dtype=np.float32)
    scores[-1] = scores[:-1].mean(axis=0)
    return Bootstrap(tuple(table), scores.transpose(2, 1, 0))


def _per_cell(by_seed: NDArray[np.float32], drawn: NDArray[np.float32] | None, starts: Any) -> NDArray[np.float32]:
    """Sums over the drawn seeds of each cell: [seeds of all cells, resamples or 1] -> [cells, resamples or 1]."""
    if drawn is None:
        return by_seed
    return np.asarray(np.add.reduceat(by_seed * drawn, starts, axis=0))


def _drawn_seeds(
    counts: Sequence[int], resamples: int, rng: np.random.Generator, *, resample: bool
) -> NDArray[np.float32] | None:
    """How often each seed is drawn, [sum of counts, resamples]; None when every cell has one seed."""
    if max(counts) == 1:
        return None
    parts = [
        rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        if resample
        else np.ones((resamples, count), dtype=int)
        for count in counts
    ]
    return np.ascontiguousarray(np.concatenate(parts, axis=1).T, dtype=np.float32)


def _multinomial_weights(size: int, resamples: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """How often each of ``size`` problems is drawn in ``size`` draws, [resamples, size]."""
    weights = np.empty((resamples, size), dtype=np.float32)
    # Some rows at a time: indices and counts then stay in the processor's cache, which makes it five times faster.
    rows = min(resamples, 128)
    offset = (np.arange(rows, dtype=np.intp) * size)[:, None]
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        flat = rng.integers(0, size, size=(count, size), dtype=np.int32) + offset[:count]
        weights[start : start + count] = np.bincount(flat.ravel(), minlength=count * size).reshape(count, size)
    return weights


def t_half_width(spread: ArrayLike, count: ArrayLike, *, level: float = LEVEL) -> Floats:
    """Half width of Student's t interval of means of ``count`` values with spread ``spread``; NaN for one."""
    n = np.asarray(count, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = stats.t.ppf((1 + level) / 2, np.where(n > 1, n - 1, np.nan)) * np.asarray(spread, dtype=float)
        return np.asarray(half / np.sqrt(n), dtype=float)
