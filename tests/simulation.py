"""Coverage of the intervals and size of the paired test, by simulation in settings that look like ours.

``python -m tests.simulation`` prints the table that docs/statistics.md shows. The truth is known by construction: each
sample of problem p under seed s is right with probability logistic(d_p + m_p + a_s + g_sp), where d is the difficulty,
m what the method makes of the problem, a the training seed, and g their interaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leaderboard import statistics

Floats = NDArray[np.float64]
METHOD_SD = 0.5
INTERACTION_SD = 0.3
TRUTH_DRAWS = 1_000_000


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Difficulties of every degree; mean score near 45 %."""
    return rng.normal(-0.3, 1.5, shape)


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Nearly every problem is always or never solved."""
    return rng.choice([-3.5, 3.5], shape, p=[0.6, 0.4]) + rng.normal(0, 0.7, shape)


def hard(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Most problems are out of reach, a few are not: AIME for a small model; mean score near 13 %."""
    return rng.choice([-4.5, 1.5], shape, p=[0.85, 0.15]) + rng.normal(0, 1.0, shape)


@dataclass(frozen=True)
class Setting:
    """One row of the table. ``seed_sd`` is on the scale of log-odds."""

    name: str
    difficulty: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    problems: int
    samples: int
    seeds: int
    seed_sd: float

    def __str__(self) -> str:
        shape = f"{self.problems} x {self.samples}, {self.seeds} seed{'s' if self.seeds > 1 else ''}"
        return f"{self.name} {shape}, seed sd {self.seed_sd:g}"


SETTINGS = [
    Setting("spread", spread, 30, 16, 1, 0.15),
    Setting("spread", spread, 30, 16, 3, 0.15),
    Setting("spread", spread, 30, 16, 3, 0.3),
    Setting("spread", spread, 500, 4, 1, 0.15),
    Setting("spread", spread, 500, 4, 3, 0.15),
    Setting("spread", spread, 500, 4, 3, 0.3),
    Setting("spread", spread, 500, 4, 5, 0.3),
    Setting("bimodal", bimodal, 30, 16, 1, 0.15),
    Setting("bimodal", bimodal, 30, 16, 3, 0.15),
    Setting("bimodal", bimodal, 30, 16, 3, 0.3),
    Setting("bimodal", bimodal, 500, 4, 1, 0.15),
    Setting("bimodal", bimodal, 500, 4, 3, 0.3),
    Setting("hard", hard, 30, 16, 1, 0.15),
    Setting("hard", hard, 30, 16, 3, 0.3),
    Setting("spread", spread, 500, 4, 2, 0.3),
    Setting("spread", spread, 30, 16, 2, 0.3),
]


@dataclass(frozen=True)
class Outcome:
    """Shares of simulated tables: true score inside its interval, and a true null rejected at 5 %."""

    coverage: float
    width: float
    coverage_difference: float
    rejected: float
    bootstrap: float


def logistic(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def draw(setting: Setting, rng: np.random.Generator, tables: int) -> tuple[Floats, Floats, Floats]:
    """Two methods that are equally good on average, on the same problems.

    Returns:
        shares of right samples [tables, 2, seeds, problems], and the seed effects [tables, 2, seeds].
    """
    shape = (tables, 2, setting.seeds, setting.problems)
    logits = setting.difficulty(rng, (tables, 1, 1, setting.problems))
    logits = logits + rng.normal(0, METHOD_SD, (tables, 2, 1, setting.problems))
    seed = rng.normal(0, setting.seed_sd, (tables, 2, setting.seeds, 1))
    logits = logits + seed + rng.normal(0, INTERACTION_SD, shape)
    return rng.binomial(setting.samples, logistic(logits)) / setting.samples, seed[..., 0], logits


def true_scores(setting: Setting, seed: Floats, rng: np.random.Generator) -> Floats:
    """Expected score over new problems, [tables, 2]: over new seeds too, or of the one seed where there is one.

    With one seed the interval says nothing of other seeds, and is asked about the checkpoint at hand.
    """
    base = setting.difficulty(rng, (TRUTH_DRAWS,))
    base = base + rng.normal(0, np.hypot(METHOD_SD, INTERACTION_SD), TRUTH_DRAWS)
    if setting.seeds > 1:
        value = float(logistic(base + rng.normal(0, setting.seed_sd, TRUTH_DRAWS)).mean())
        return np.full(seed.shape[:2], value)
    grid = np.linspace(-5, 5, 41) * setting.seed_sd
    values = np.array([logistic(base[:200_000] + shift).mean() for shift in grid])
    return np.interp(seed[..., 0], grid, values)


def simulate(setting: Setting, *, tables: int, rng: np.random.Generator) -> Outcome:
    """Draw ``tables`` tables and judge each with the functions of the page."""
    shares, seed, _ = draw(setting, rng, tables)
    truth = true_scores(setting, seed, rng)
    inside = width = inside_difference = rejected = naive = 0.0
    for pair, (first, second) in zip(shares, truth, strict=True):
        one = statistics.estimate([pair[0]])
        inside += one.low <= first <= one.high
        width += one.high - one.low
        both = statistics.compare([pair[0]], [pair[1]])
        inside_difference += both.low <= first - second <= both.high
        # With one seed the two checkpoints differ in truth; the test is then asked about their difference.
        shift = first - second
        rejected += statistics.compare([pair[0] - shift], [pair[1]]).p_value < 0.05
    boot_tables = min(tables, 400)
    for pair, (first, _) in zip(shares[:boot_tables], truth[:boot_tables], strict=True):
        low, high = statistics.percentile_intervals(
            statistics.bootstrap({"a": [pair[0]]}, rng=rng, resamples=1000, levels=("seeds", "problems")).scores
        )[:, 0, 0]
        naive += low <= first <= high
    return Outcome(inside / tables, width / tables, inside_difference / tables, rejected / tables, naive / boot_tables)


def main(tables: int = 10_000) -> None:
    print(
        "| setting | interval covers | mean width | interval of difference covers | test rejects a true null | ", end=""
    )
    print("percentile bootstrap covers |")
    print("|---|---|---|---|---|---|")
    for number, setting in enumerate(SETTINGS):
        found = simulate(setting, tables=tables, rng=np.random.default_rng(number))
        cells = (found.coverage, found.width, found.coverage_difference, found.rejected, found.bootstrap)
        print(f"| {setting} | {' | '.join(f'{100 * value:.1f} %' for value in cells)} |", flush=True)


if __name__ == "__main__":
    main()
