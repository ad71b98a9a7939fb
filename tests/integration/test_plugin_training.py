"""A method from an installed package, trained end to end: the example of the documentation, in a fresh environment."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from harness.records import Record, read_record
from tests.plugin_package import ROOT, fresh_environment, install, make_plugin, run

pytestmark = [pytest.mark.slow, pytest.mark.stack]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin's one file, with the formula of docs/adding-a-method.md in the place of the stub."""
    package = make_plugin(tmp_path_factory.mktemp("plugin") / "soft-cap", "soft_cap")
    path = package / "src" / "reuse_bench_soft_cap" / "__init__.py"
    page = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    path.write_text(source, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, module: Path) -> Path:
    """The programs of an environment that has the plugin."""
    pytest.importorskip("openrlhf", reason="the training stack is not installed")
    programs = fresh_environment(tmp_path_factory.mktemp("environment") / "venv")
    install(programs, module.parents[2])
    return programs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    """Where the one run has put its run directory and its record."""
    folder = tmp_path_factory.mktemp("cell")
    choice = ("--protocol", "smoke", "--method", "soft_cap", "--reuse", "4", "--seed", "0")
    done = run(programs, "reuse-bench", "run", *choice, "--runs", "runs", "--results", "results", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr + _end_of_log(folder)
    return folder


def _end_of_log(folder: Path) -> str:
    return "".join(path.read_text()[-4000:] for path in folder.glob("runs/**/log.txt"))


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    (path,) = folder.glob("results/smoke/tiny-qwen3/n4/soft_cap/seed0.json")
    return read_record(path)


def test_the_record_names_the_package_and_what_the_worker_loaded(record: Record, folder: Path, module: Path) -> None:
    assert record.method is not None
    assert record.method.origin == "reuse-bench-soft-cap 0.1.0"
    assert record.method.title == "Soft cap"
    assert record.method.hyperparameters == {"cap": 2.0}
    (path,) = folder.glob("runs/**/worker.json")
    worker = json.loads(path.read_text())
    assert worker["method"] == "soft_cap"
    assert worker["hyperparameters"] == {"cap": 2.0}
    expected = hashlib.sha256()
    for name, file in (("reuse_bench_soft_cap", module), ("methods.contract", ROOT / "methods" / "contract.py")):
        source = file.read_bytes()
        expected.update(f"{name} {len(source)}\n".encode() + source)
    assert record.method.source_sha256 == worker["source_sha256"] == expected.hexdigest()


def test_a_method_that_the_protocol_does_not_name_is_no_deviation(record: Record) -> None:
    assert [line for line in record.deviations if not line.startswith(("code:", "lock:"))] == []


def test_it_was_trained_to_the_end_and_evaluated(record: Record) -> None:
    assert record.status == "done"
    assert record.training is not None
    assert (record.training.updates, record.training.rollouts) == (8, 2)
    for score in (record.training.early_score, record.training.late_score, record.training.mean_score):
        assert score is not None
        assert 0 <= score <= 1
    assert set(record.evaluation) == {"tiny_sum4", "tiny_sum6"}
    for task in record.evaluation.values():
        assert task.scores["published"].right + task.scores["published"].wrong == 64


def test_every_update_has_its_diagnostics(folder: Path) -> None:
    (path,) = folder.glob("results/**/updates.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["update"] for line in lines] == list(range(1, 9))
    for line in lines:
        assert line["gradient_norm"] > 0 or line["zero_advantage"] == line["responses"]
        for part in line["log_weight"].values():
            assert sum(part["counts"]) == part["responses"]
            assert part["mass"] is not None
    drifted = [line for line in lines if line["mini_batch"] == 3]
    assert all(line["ess"] < 1 for line in drifted)


def test_the_record_verifies(folder: Path, programs: Path) -> None:
    verified = run(programs, "reuse-bench", "verify", "results", folder=folder)
    assert verified.returncode == 0, verified.stdout + verified.stderr
