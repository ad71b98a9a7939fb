"""Coverage of the intervals and size of the paired test, by simulation in settings that look like ours.

``python -m tests.simulation`` prints the tables that docs/statistics.md shows. The truth is known by construction: each
sample of problem p under seed s is right with probability logistic(d_p + m_p + a_s + g_sp), where d is the difficulty,
m what the method makes of the problem, a the training seed, and g their interaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard import statistics

Floats = NDArray[np.floating[Any]]
METHOD_SD = 0.5
INTERACTION_SD = 0.3
TRUTH_DRAWS = 1_000_000
ALPHA = 1 - statistics.LEVEL
AT_ONCE = 2_000_000
"""Values held in memory: tables are drawn in parts."""


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Difficulties of every degree; mean score near 45 %."""
    return 1.5 * rng.standard_normal(shape, dtype=np.float32) - 0.3


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Nearly every problem is always or never solved."""
    return np.where(rng.random(shape) < 0.6, -3.5, 3.5) + 0.7 * rng.standard_normal(shape, dtype=np.float32)


def hard(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Most problems are out of reach, a few are not: AIME for a small model; mean score near 13 %."""
    return np.where(rng.random(shape) < 0.85, -4.5, 1.5) + rng.standard_normal(shape, dtype=np.float32)


Difficulty = Callable[[np.random.Generator, tuple[int, ...]], Floats]


@dataclass(frozen=True)
class Setting:
    """One row of the table. ``seed_sd`` is on the scale of log-odds; the second method may have another one."""

    difficulty: Difficulty
    problems: int
    samples: int
    seeds: int
    seed_sd: float
    second_sd: float | None = None

    def __str__(self) -> str:
        shape = f"{self.problems} x {self.samples}, {self.seeds} seed{'s' if self.seeds > 1 else ''}"
        second = "" if self.second_sd is None else f" and {self.second_sd:g}"
        return f"{self.difficulty.__name__} {shape}, seed sd {self.seed_sd:g}{second}"


SETTINGS = [
    Setting(spread, 30, 16, 1, 0.15),
    Setting(spread, 30, 16, 3, 0.15),
    Setting(spread, 30, 16, 3, 0.3),
    Setting(spread, 500, 4, 1, 0.15),
    Setting(spread, 500, 4, 3, 0.15),
    Setting(spread, 500, 4, 3, 0.3),
    Setting(spread, 500, 4, 5, 0.3),
    Setting(bimodal, 30, 16, 1, 0.15),
    Setting(bimodal, 30, 16, 3, 0.15),
    Setting(bimodal, 30, 16, 3, 0.3),
    Setting(bimodal, 500, 4, 1, 0.15),
    Setting(bimodal, 500, 4, 3, 0.3),
    Setting(hard, 30, 16, 1, 0.15),
    Setting(hard, 30, 16, 3, 0.3),
]

BEYOND = [
    Setting(hard, 30, 16, 3, 0.15),
    Setting(hard, 30, 16, 5, 0.3),
    Setting(spread, 30, 16, 3, 0.5, 0.1),
    Setting(spread, 500, 4, 3, 0.5, 0.1),
    Setting(spread, 500, 4, 2, 0.3),
    Setting(spread, 30, 16, 2, 0.3),
]
"""Where the limits are not promised: hardly anything can be solved, one method scatters five times as much as the
other, or there are only two seeds."""

TABLE = [(hard, 30, 16), (hard, 30, 16), (bimodal, 40, 16), (spread, 674, 4), (spread, 272, 4), (spread, 500, 4)]
"""Six benchmarks of the sizes of the paper's, for the error of a whole table."""


@dataclass(frozen=True)
class Outcome:
    """Shares of simulated tables: true score inside its interval, and a true null rejected at 5 %."""

    tables: int
    coverage: float
    width: float
    rejected: float
    bootstrap: float


def logistic(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def draw(setting: Setting, rng: np.random.Generator, tables: int) -> tuple[Floats, Floats]:
    """Two methods that are equally good on average, on the same problems.

    Returns:
        shares of right samples [tables, 2, seeds, problems], and the seed effects [tables, 2, seeds].
    """
    sds = np.array([setting.seed_sd, setting.second_sd or setting.seed_sd], dtype=np.float32)
    seed = sds[:, None] * rng.standard_normal((tables, 2, setting.seeds), dtype=np.float32)
    problems = setting.difficulty(rng, (tables, 1, 1, setting.problems))
    return _shares(rng, problems, seed, setting.samples), seed


def _shares(rng: np.random.Generator, difficulty: Floats, seed: Floats, samples: int) -> Floats:
    """Shares of right samples [tables, methods, seeds, problems] of methods that are equally good on average."""
    tables, methods, seeds = seed.shape
    problems = difficulty.shape[-1]
    logits = difficulty + METHOD_SD * rng.standard_normal((tables, methods, 1, problems), dtype=np.float32)
    logits = logits + seed[..., None]
    logits += INTERACTION_SD * rng.standard_normal((tables, methods, seeds, problems), dtype=np.float32)
    return rng.binomial(samples, logistic(logits)) / samples


def in_parts(setting: Setting, rng: np.random.Generator, tables: int) -> Iterator[tuple[Floats, Floats]]:
    size = max(1, AT_ONCE // (2 * setting.seeds * setting.problems))
    for start in range(0, tables, size):
        yield draw(setting, rng, min(size, tables - start))


def true_scores(setting: Setting, rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """Expected score over new problems, from seed effects [tables, 2, seeds]: [tables, 2].

    Over new seeds too, or of the one seed where there is one: with one seed the interval says nothing of other seeds,
    and is asked about the checkpoint at hand.
    """
    base = setting.difficulty(rng, (TRUTH_DRAWS,)) + np.hypot(METHOD_SD, INTERACTION_SD) * rng.standard_normal(
        TRUTH_DRAWS
    )
    if setting.seeds > 1:
        noise = rng.standard_normal(TRUTH_DRAWS)
        sds = (setting.seed_sd, setting.second_sd or setting.seed_sd)
        values = np.array([logistic(base + sd * noise).mean() for sd in sds])
        return lambda seed: np.broadcast_to(values, seed.shape[:2])
    grid = np.linspace(-5, 5, 41) * setting.seed_sd
    values = np.array([logistic(base[:200_000] + shift).mean() for shift in grid])
    return lambda seed: np.interp(seed[..., 0], grid, values)


def simulate(setting: Setting, *, rng: np.random.Generator, tables: int | None = None, boot_tables: int = 0) -> Outcome:
    """Draw tables and judge each with the functions of the page; ``boot_tables`` also by the bootstrap.

    By default as many tables as make a share near 5 % good to 0.14 points with few problems (two standard errors), and
    to 0.31 points with many.
    """
    tables = tables or (100_000 if setting.problems <= 100 else 20_000)
    truth_of = true_scores(setting, rng)
    inside = width = rejected = naive = 0.0
    left = boot_tables
    for shares, seed in in_parts(setting, rng, tables):
        truth = truth_of(seed)
        _, low, high, _ = statistics.score_interval([shares])
        inside += float(((low <= truth) & (truth <= high)).sum()) / 2
        width += float((high - low).sum()) / 2
        difference, *parts = statistics.difference_parts([shares[:, 0]], [shares[:, 1]])
        # Two checkpoints (one seed) and two methods that scatter unlike differ in truth: it is taken off, so that what
        # is left is a true null.
        off = np.abs(difference - (truth[:, 0] - truth[:, 1]))
        rejected += float((off > statistics.difference_half_width(*parts, ALPHA / 2)).sum())
        for one, expected in zip(shares[:left, 0], truth[:left, 0], strict=True):
            naive += _bootstrap_covers(one, float(expected), rng)
        left -= min(left, len(shares))
    naive = naive / boot_tables if boot_tables else float("nan")
    return Outcome(tables, inside / tables, width / tables, rejected / tables, naive)


def _bootstrap_covers(shares: Floats, truth: float, rng: np.random.Generator) -> bool:
    resampled = statistics.bootstrap({"a": [shares]}, rng=rng, resamples=1000, levels=("seeds", "problems")).scores
    low, high = statistics.percentile_intervals(resampled)[:, 0, 0]
    return bool(low <= truth <= high)


def any_rejected(*, seed_sd: float, tables: int, rng: np.random.Generator, methods: int = 4, seeds: int = 3) -> float:
    """Share of tables of equally good methods in which Holm calls some difference sure at 5 %.

    All pairs of methods on all of `TABLE`, a run's seed effect being the same on each of them. With every null true,
    Holm rejects something exactly when the smallest p-value is below 5 % over their number.
    """
    pairs = list(combinations(range(methods), 2))
    tail = ALPHA / 2 / (len(pairs) * len(TABLE))
    found = 0
    at_once = 100
    for start in range(0, tables, at_once):
        count = min(at_once, tables - start)
        effect = seed_sd * rng.standard_normal((count, methods, seeds), dtype=np.float32)
        rejected = np.zeros(count, dtype=bool)
        for difficulty, problems, samples in TABLE:
            shares = _shares(rng, difficulty(rng, (count, 1, 1, problems)), effect, samples)
            for a, b in pairs:
                difference, *parts = statistics.difference_parts([shares[:, a]], [shares[:, b]])
                rejected |= np.abs(difference) > statistics.difference_half_width(*parts, tail)
        found += int(rejected.sum())
    return found / tables


def main(generators: int = 5) -> None:
    """Print the tables of docs/statistics.md: each setting with several generators, and the range over them."""
    print("| setting | interval covers | mean width | test rejects a true null | percentile bootstrap covers |")
    print("|---|---|---|---|---|")
    for number, setting in enumerate([*SETTINGS, *BEYOND]):
        found = [
            simulate(setting, rng=np.random.default_rng([generator, number]), boot_tables=400)
            for generator in range(generators)
        ]
        columns = (_range([getattr(one, name) for one in found]) for name in ("coverage", "rejected"))
        covers, rejects = columns
        width, bootstrap = (np.mean([getattr(one, name) for one in found]) for name in ("width", "bootstrap"))
        print(f"| {setting} | {covers} | {100 * width:.1f} % | {rejects} | {100 * bootstrap:.1f} % |", flush=True)
    for seed_sd in (0.15, 0.3):
        share = any_rejected(seed_sd=seed_sd, tables=4000, rng=np.random.default_rng(0))
        print(f"\na whole table, seed sd {seed_sd:g}: something is called sure in {100 * share:.1f} %", flush=True)


def _range(values: Sequence[float]) -> str:
    low, high = 100 * min(values), 100 * max(values)
    return f"{100 * np.mean(values):.1f} % ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
