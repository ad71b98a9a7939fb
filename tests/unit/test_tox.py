"""`tox -l` says what there is to run, and with what tox installs no test is skipped unnoticed."""

from __future__ import annotations

import os
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


@pytest.mark.slow
@pytest.mark.parametrize("code", [1, 0])
def test_with_the_whole_stack_a_test_that_is_skipped_for_a_part_of_it_has_failed(tmp_path: Path, code: int) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_one.py").write_text("import pytest\ndef test_it(): pytest.skip('TRL is not installed')\n")
    if code:
        (tmp_path / "test_two.py").write_text("import pytest\npytest.importorskip('no_such_stack')\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"REUSE_BENCH_WHOLE_STACK": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout
    assert ("'no_such_stack'" in done.stdout) == bool(code)
