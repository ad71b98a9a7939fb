"""How long a full grid of the paper's size takes to verify, against reading its sample files once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness import verify
from harness.scoring import read_samples
from tests.synthetic import synthetic_store

TIMES_READING = 10
"""Reading is one pass over the rows; verifying recomputes every score from them and has some of them judged again."""


def test_a_full_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 cells, about 177,000 samples; what is known already takes no longer than reading them."""
    # The real sets may be here; these problems are made up.
    monkeypatch.setenv("REUSE_BENCH_DATA", str(tmp_path / "no data"))
    store, cache = tmp_path / "store", tmp_path / "cache"
    for protocol in ("qwen3-1.7b", "qwen3-30b-a3b"):
        synthetic_store(store, protocol=protocol, models=(f"{protocol}-base",), seeds=(0,))
    seconds, processor = [], []
    for step in (
        lambda: [read_samples(path) for path in sorted(store.rglob("*.parquet"))],
        lambda: verify.verify(store, cache_folder=cache),
        lambda: verify.verify(store, cache_folder=cache),
    ):
        start, before = time.perf_counter(), _cpu()
        step()
        seconds.append(time.perf_counter() - start)
        processor.append(_cpu() - before)
    report = verify.verify(store, cache_folder=cache)
    assert (report.records, report.cached) == (24, 24)
    assert [finding for finding in report.findings if finding.level == "error"] == []
    print(f"\n{report.samples} samples: read {seconds[0]:.1f} s, verified {seconds[1]:.1f} s, known {seconds[2]:.1f} s")
    assert processor[1] < TIMES_READING * processor[0]
    assert processor[2] < processor[0]


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
