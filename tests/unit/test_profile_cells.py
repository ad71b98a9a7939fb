"""Whose a sample of a running cell is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.profile_cells import OTHER, OURS, package_of, table, waits

LIB = "/env/lib/python3.11/site-packages"
BOTTOM = ["main (/clone/harness/fork_server.py:400)", "main (/clone/harness/openrlhf/entry.py:60)"]


@pytest.mark.parametrize(
    ("frames", "owner"),
    [
        ([f"step (/{LIB}/vllm/v1/engine/core.py:9)", f"linear ({LIB}/torch/nn/functional.py:1)"], "vLLM"),
        ([f"fit ({LIB}/openrlhf/trainer/ray/ppo_actor.py:5)", "forward (/clone/harness/openrlhf/loss.py:40)"], OURS),
        ([f"run ({LIB}/openrlhf/cli/train.py:5)", "rows (/clone/methods/diagnostics.py:9)"], OURS),
        (["forward (/clone/harness/openrlhf/loss.py:40)", f"step ({LIB}/deepspeed/runtime/engine.py:3)"], "DeepSpeed"),
        ([f"get ({LIB}/ray/_private/worker.py:1)", "select (/usr/lib/python3.11/selectors.py:9)"], "Ray"),
        ([f"evaluate ({LIB}/lm_eval/evaluator.py:1)"], "lm-eval"),
        ([f"collate ({LIB}/somebody/harness/data.py:1)", "run_once (/usr/lib/python3.11/asyncio/base.py:1)"], OTHER),
        ([], OTHER),
    ],
)
def test_a_sample_belongs_to_the_innermost_package(frames: list[str], owner: str) -> None:
    assert package_of([*BOTTOM, *frames]) == owner


@pytest.mark.parametrize(
    ("leaf", "waiting"),
    [
        ("_end_with (/clone/harness/lifetime.py:86)", True),
        ("end_with_parent.<locals>.watch (/clone/harness/lifetime.py:48)", True),
        ("Condition.wait (/usr/lib/python3.11/threading.py:331)", True),
        (f"Worker.main_loop ({LIB}/ray/_private/worker.py:1039)", True),
        (f"awaited ({LIB}/ray/actor.py:1)", False),
        ("forward (/clone/harness/openrlhf/loss.py:40)", False),
    ],
)
def test_threads_that_wait_are_told_by_their_innermost_frame(leaf: str, waiting: bool) -> None:
    assert waits([*BOTTOM, leaf]) is waiting
    assert not waits([])


def test_shares_are_of_all_samples() -> None:
    assert table(Counter({"vLLM": 3, OURS: 1})).splitlines()[-1].split(" | ")[0] == "| 75.0 %"
