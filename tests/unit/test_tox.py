"""`tox -l` says what there is to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tox", reason="tox is not installed here")

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = {
    *("lint", "types", "tests", "docs", "demo", "bench", "site"),
    *("repro-tiny", "repro-qwen3-1.7b", "repro-qwen3-30b-a3b"),
}


def tox(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tox", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_each_environment_has_a_description_of_its_own() -> None:
    said = dict(line.split(" -> ") for line in tox("-l") if " -> " in line)
    assert {name.strip() for name in said} == ENVIRONMENTS
    assert len(set(said.values())) == len(ENVIRONMENTS)


def test_plain_tox_runs_neither_trainings_nor_benchmarks() -> None:
    assert set(tox("config", "-k", "env_list", "--core")) >= {"  lint", "  tests"}
    listed = tox("list", "-d", "--no-desc")
    assert set(listed) == {"lint", "types", "tests", "docs"}
