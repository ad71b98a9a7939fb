"""Coverage and size by simulation, in three settings; all of them are in tests/benchmarks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulation import Setting, bimodal, hard, simulate, spread

TABLES = 10_000

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "setting",
    [Setting(spread, 30, 16, 1, 0.15), Setting(hard, 30, 16, 3, 0.3), Setting(bimodal, 500, 4, 3, 0.3)],
    ids=str,
)
def test_intervals_cover_and_the_test_keeps_its_level(setting: Setting) -> None:
    found = simulate(setting, tables=TABLES, rng=np.random.default_rng(1))
    assert 0.93 <= found.coverage <= 0.97
    assert 0.035 <= found.rejected <= 0.065
