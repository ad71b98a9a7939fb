"""`data`, `list tasks` and `evaluate` as a person meets them: output, exit codes, one sentence for each mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from methods.errors import UserError
from reuse_bench.main import app
from tasks import chain, datasets

SET = os.environ.get("REUSE_BENCH_DATA")
needs_data = pytest.mark.skipif(not SET, reason="REUSE_BENCH_DATA names no data folder")


def invoke(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=True)
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def test_list_tasks():
    rows = json.loads(invoke("list", "tasks", "--json"))
    assert [row["task"] for row in rows] == [*datasets.BENCHMARKS, "gsm8k_test", *datasets.subsets(), *chain.TINY_TASKS]
    assert sum(row["problems"] for row in rows[:6]) == 1546
    (part,) = (row for row in rows if row["task"] == "math500_first100")
    assert part["problems"] == 100
    assert part["title"] == "MATH-500, the first 100 of 500 by id"
    assert "olympiadbench" in invoke("list", "tasks")


def test_data_list_says_how_each_entry_was_checked():
    rows = json.loads(invoke("data", "list", "--json"))
    assert all(row["checked"] and row["licence"] and row["pinned"] and row["source"] for row in rows)


@needs_data
def test_data_verify():
    rows = json.loads(invoke("data", "verify", *datasets.BENCHMARKS, "--json"))
    assert {row["state"] for row in rows} == {"verified"}


def test_data_verify_fails_where_a_named_set_is_missing(tmp_path):
    assert "missing" in invoke("data", "verify", "aime25", "--data-dir", str(tmp_path), code=1)
    invoke("data", "verify", "--data-dir", str(tmp_path))  # nothing was asked for, nothing is wrong
    (tmp_path / "aime25.jsonl").write_text('{"problem": "x", "answer": "1"}\n')
    assert "refused" in invoke("data", "verify", "--data-dir", str(tmp_path), code=1)


@needs_data
def test_data_import_and_overlap(tmp_path):
    source = Path(str(SET)) / "aime24.jsonl"
    assert "aime24: verified, 30 problems" in invoke(
        "data", "import", str(source), "--as", "aime24", "--data-dir", str(tmp_path)
    )
    facts = json.loads(
        invoke("data", "overlap", "--train", str(source), "--test", "aime24", "--data-dir", str(tmp_path), "--json")
    )
    pairs = facts["pairs"]["aime24"]
    assert [pair["kind"] for pair in pairs] == ["exact"] * 30
    assert all(pair["score"] == 1.0 and pair["train"] == pair["test"] for pair in pairs)
    with pytest.raises(UserError, match="that of aime25"):
        invoke("data", "import", str(source), "--as", "aime25", "--data-dir", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data", "fetch"], "no data set named"),
        (["data", "fetch", "nothing"], "unknown data set 'nothing'"),
        (["data", "import", "nowhere.jsonl", "--as", "aime25"], "nowhere.jsonl: no such file"),
        (["data", "overlap", "--train", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["data", "overlap", "--train", "nothing"], "unknown data set 'nothing'"),
        (["evaluate", "--model", "x/y", "--protocol", "nothing"], "protocol 'nothing' is unknown"),
        (["evaluate", "--model", "x/y", "--protocol", "tiny", "--tasks", "aime25"], "'aime25' is no task of"),
        (["evaluate", "--model", "x/y", "--protocol", "tiny", "--record"], "say with --stated where it comes from"),
        (["evaluate", "--protocol", "tiny", "--method", "nothing"], "method 'nothing' is unknown"),
        (["evaluate", "--protocol", "tiny", "--limit", "2"], "--limit needs --model"),
        (["evaluate", "--model", "x/y", "--method", "grpo"], "leave them out with --model"),
        (["evaluate", "--model", "x/y", "--seed", "1", "--seed", "2"], "one run seed at a time"),
        (["evaluate", "--model", "no/such/model", "--protocol", "tiny"], "no/such/model"),
    ],
)
def test_mistakes_are_one_sentence(words, said, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        invoke(*words)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_data_the_missing_set_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("REUSE_BENCH_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"data set aime25 is not in .*data fetch aime25.*data import FILE"):
        invoke("evaluate", "--model", "x/y", "--protocol", "qwen3-1.7b", "--out", str(tmp_path / "out"))


def test_a_failed_engine_is_exit_code_1_and_an_interruption_3(monkeypatch, tmp_path):
    from harness import evaluation, outside

    monkeypatch.setattr(outside, "resolve_model", lambda spec: tmp_path)
    arguments = ("evaluate", "--model", "x/y", "--protocol", "tiny", "--out", str(tmp_path))
    for error, code in ((evaluation.EvaluationError("broken"), 1), (KeyboardInterrupt(), 3)):

        def fail(*_, _error=error, **__):
            raise _error

        monkeypatch.setattr(evaluation, "evaluate_checkpoint", fail)
        invoke(*arguments, code=code)


def test_help_needs_no_training_stack():
    code = "import sys, reuse_bench.commands.data, reuse_bench.commands.evaluation; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"vllm", "lm_eval", "transformers", "datasets", "ray", "pandas", "pyarrow"} & set(loaded)
