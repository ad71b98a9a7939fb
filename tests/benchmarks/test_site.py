"""How long the pages take: 1,000 records in under a minute on 2 cores, and no worse than linear from 100."""

import os
import time

import pytest

from leaderboard import site
from tests.site_stores import multiply
from tests.synthetic import synthetic_store

pytestmark = pytest.mark.slow

SECONDS = 60.0
LOAD = 0.5
"""With more than this many other runnable processes a CPU, the time says nothing about the pages."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    synthetic_store(folder / "few", protocol="qwen3-1.7b", models=("m",), seeds=(0, 1, 2), updates=256)
    return {count: multiply(folder / "few", folder / str(count), count) for count in (100, 1000)}


def test_a_thousand_records(stores, tmp_path, record_property):
    seconds = {}
    processor = {}
    for count, store in stores.items():
        start, before = time.perf_counter(), _cpu()
        built = site.build(store, tmp_path / "site")
        seconds[count], processor[count] = time.perf_counter() - start, _cpu() - before
        assert built.runs == count
    for count in stores:
        record_property(f"seconds_{count}", round(seconds[count], 1))
        record_property(f"cpu_seconds_{count}", round(processor[count], 1))
    # Processor time says what wall time hides on a busy machine: growth, and the bound at two cores' worth.
    # A tenth more than ten times is within what the processor time of the same work varies by.
    assert processor[1000] < 12 * processor[100]
    assert (tmp_path / "site" / "index.html").stat().st_size < 300_000
    if os.getloadavg()[0] / (os.cpu_count() or 1) > 1 + LOAD:
        pytest.skip(f"the machine is busy: {seconds[1000]:.0f} s wall, {processor[1000]:.0f} s of processor time")
    assert seconds[1000] < SECONDS


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
