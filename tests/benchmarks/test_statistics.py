"""The bootstrap of a full table against a plain loop over scipy.stats.bootstrap, on the same work.

The table is the paper's: 24 cells (2 models x 3 N x 4 methods), six benchmarks with 1,547 problems, and all 36 pairs of
methods under the same model and N, on each benchmark. 10,000 resamples of the problems give the 95 % percentile
interval of every paired difference.
"""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from leaderboard import statistics

PROBLEMS = {"aime25": 30, "aime24": 30, "amc23": 40, "olympiadbench": 675, "minerva_math": 272, "math500": 500}
SAMPLES = (16, 16, 16, 4, 4, 4)
RESAMPLES = 10_000
TIMES_FASTER = 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return {
        f"block{block} method{method}": [
            rng.binomial(k, rng.beta(0.5, 0.6, (1, size))) / k
            for k, size in zip(SAMPLES, PROBLEMS.values(), strict=True)
        ]
        for block in range(6)
        for method in range(4)
    }


def pairs(table):
    names = list(table)
    return [(4 * block + a, 4 * block + b) for block in range(6) for a, b in combinations(range(4), 2) if names]


def ours(table, levels=("problems",)):
    rng = np.random.default_rng(1)
    found = statistics.bootstrap(table, rng=rng, samples=SAMPLES, resamples=RESAMPLES, levels=levels)
    return statistics.percentile_intervals(found.differences(pairs(table)))


def scipys(table, wanted):
    """One call for each pair and benchmark, vectorised as scipy offers it: its fastest way."""

    def difference(a, b, axis):
        return np.mean(a, axis=axis) - np.mean(b, axis=axis)

    rng = np.random.default_rng(1)
    cells = list(table.values())
    found = np.empty((2, len(wanted), len(SAMPLES)))
    for number, (a, b) in enumerate(wanted):
        for task in range(len(SAMPLES)):
            interval = stats.bootstrap(
                (cells[a][task][0], cells[b][task][0]),
                difference,
                paired=True,
                vectorized=True,
                n_resamples=RESAMPLES,
                method="percentile",
                rng=rng,
            ).confidence_interval
            found[:, number, task] = interval.low, interval.high
    return found


def test_a_full_table_is_at_least_twenty_times_faster_than_scipy(table, benchmark):
    wanted = pairs(table)
    assert len(wanted) == 36
    mine = benchmark.pedantic(ours, args=(table,), rounds=5, warmup_rounds=1)
    # Six of the 36 pairs are timed, one of each block; scipy does the same work for each pair.
    subset = wanted[::6]
    start = time.perf_counter()
    theirs = scipys(table, subset)
    seconds = (time.perf_counter() - start) * len(wanted) / len(subset)
    ratio = seconds / benchmark.stats.stats.min
    benchmark.extra_info.update(scipy_seconds=round(seconds, 2), times_faster=round(ratio, 1))
    print(f"\nours {benchmark.stats.stats.min:.2f} s, scipy {seconds:.1f} s: {ratio:.0f} times faster")
    assert np.abs(mine[:, ::6, :6] - theirs).max() < 0.02
    assert ratio >= TIMES_FASTER


def test_all_three_levels_of_a_full_table_stay_under_a_second_or_so(table, benchmark):
    found = benchmark.pedantic(
        ours, args=(table,), kwargs={"levels": ("seeds", "problems", "samples")}, rounds=3, warmup_rounds=1
    )
    assert found.shape == (2, 36, 7)
    assert np.isfinite(found).all()
