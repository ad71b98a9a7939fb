"""Coverage and size by simulation: what docs/statistics.md states, to within the error of the simulation itself."""

from __future__ import annotations

import numpy as np
import pytest

from leaderboard import statistics
from tests import simulation
from tests.simulation import BEYOND, SETTINGS, Setting, hard, simulate, spread

COVERS = (0.93, 0.97)
REJECTS = (0.035, 0.065)

pytestmark = pytest.mark.slow


def surely_within(share: float, limits: tuple[float, float], tables: int) -> bool:
    """The limits hold for the true share, and not only for the simulated one: two Monte-Carlo errors are added."""
    error = 2 * float(np.sqrt(share * (1 - share) / tables))
    print(f"\n{100 * share:.2f} % +- {100 * error:.2f}")
    return limits[0] <= share - error and share + error <= limits[1]


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=lambda number: str(SETTINGS[number]))
def test_intervals_cover_and_the_test_keeps_its_level(number: int) -> None:
    found = simulate(SETTINGS[number], rng=np.random.default_rng([0, number]))
    assert surely_within(found.coverage, COVERS, found.tables)
    assert surely_within(found.rejected, REJECTS, found.tables)


@pytest.mark.parametrize("number", range(len(BEYOND)), ids=lambda number: str(BEYOND[number]))
def test_how_far_off_it_is_where_nothing_is_promised(number: int) -> None:
    """Neither useless nor reckless: these are the figures of the document, with room for rounding."""
    found = simulate(BEYOND[number], rng=np.random.default_rng([0, 100 + number]))
    assert surely_within(found.coverage, (0.93, 0.99), found.tables)
    assert surely_within(found.rejected, (0.025, 0.075), found.tables)


@pytest.mark.parametrize("seed_sd", [0.15, 0.3])
def test_a_whole_table_of_equal_methods_seldom_has_a_sure_difference(seed_sd: float) -> None:
    """36 comparisons at once ask for levels of a thousandth, where three seeds must not look surer than they are."""
    tables = 3000
    share = simulation.any_rejected(seed_sd=seed_sd, tables=tables, rng=np.random.default_rng(0))
    assert surely_within(share, (0.0, 0.05), tables)


def test_without_the_guard_over_seeds_it_would_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason for `statistics.SEED_GUARD`."""
    monkeypatch.setattr(statistics, "SEED_GUARD", float("inf"))
    assert simulation.any_rejected(seed_sd=0.15, tables=1000, rng=np.random.default_rng(0)) > 0.08


def test_a_percentile_bootstrap_of_three_seeds_covers_too_little() -> None:
    """The reason why the page does not use it."""
    setting = Setting(spread, 500, 4, 3, 0.3)
    assert simulate(setting, tables=1000, rng=np.random.default_rng(0), boot_tables=1000).bootstrap < 0.90


def test_the_simulated_null_is_a_null() -> None:
    """Over many tables the two methods have the same mean, and that is the truth that intervals are asked about."""
    setting = Setting(hard, 30, 16, 3, 0.3)
    rng = np.random.default_rng(0)
    truth = simulation.true_scores(setting, rng)(np.zeros((1, 2, 3)))[0]
    shares, _ = simulation.draw(setting, rng, 20_000)
    for method in (0, 1):
        scores = shares[:, method].mean(axis=(1, 2))
        assert abs(scores.mean() - truth[method]) < 4 * scores.std() / np.sqrt(scores.size)
