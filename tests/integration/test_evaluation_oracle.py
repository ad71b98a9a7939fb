"""All six sets through lm-eval with models whose score is known: one knows the answer, one misses it by one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from harness.evaluation import TaskPlan
from harness.scoring import pass_at_1, read_samples, write_samples
from tasks import chain, datasets

pytestmark = [
    pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed"),
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("REUSE_BENCH_DATA"), reason="REUSE_BENCH_DATA names no data folder"),
]

TASKS = [*datasets.BENCHMARKS, "tiny_sum5"]
PLANS = [TaskPlan(task, samples=2, temperature=1.0, top_p=0.7, max_tokens=64) for task in TASKS]


def oracle(perturb: bool, folder: Path):
    from lm_eval.api.model import LM

    from harness.lm_eval_vllm import Completion, Journal, Request, SampleKeeper

    class Oracle(SampleKeeper, LM):
        def __init__(self) -> None:
            LM.__init__(self)
            folder.mkdir()
            self.journal, self.run_seed = Journal(folder / "journal.jsonl", "oracle"), 0

        def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
            for one in reversed(requests):  # in another order than asked
                answer = perturbed(one.gold) if perturb else one.gold
                text = answer if one.task.startswith("tiny") else rf"So the answer is \boxed{{{answer}}}."
                yield one, Completion(text, "stop", 7)

        def loglikelihood(self, requests):
            raise AssertionError("nothing here asks for likelihoods")

        loglikelihood_rolling = loglikelihood

    return Oracle()


def perturbed(gold: str) -> str:
    """Gold + 1: the first number one greater; where there is none, something else."""
    number = re.search(r"(?<![\d.^_])\d+", gold)
    if number is None:
        return "17"
    return gold[: number.start()] + str(int(number.group()) + 1) + gold[number.end() :]


def run(perturb: bool, folder: Path) -> dict[str, pd.DataFrame]:
    from harness.lm_eval_vllm import run_tasks

    model = oracle(perturb, folder)
    counts = {task: len(datasets.evaluation_problems(task).problems) for task in TASKS}
    scores = run_tasks(model, PLANS, {task: range(count) for task, count in counts.items()}, None)
    samples = {}
    for task in TASKS:
        path = folder / f"{task}.parquet"
        write_samples(pd.DataFrame(model.rows(task)), path)
        samples[task] = read_samples(path)
        assert len(samples[task]) == 2 * counts[task]
        for grader in ("published", "audited"):
            # lm-eval's aggregation, not ours, made the number on the left.
            assert scores[task][grader] == pytest.approx(pass_at_1(samples[task], grader), abs=1e-12)
    return samples


@pytest.fixture(scope="module")
def knows(tmp_path_factory) -> dict[str, pd.DataFrame]:
    return run(False, tmp_path_factory.mktemp("oracle") / "knows")


@pytest.fixture(scope="module")
def misses(tmp_path_factory) -> dict[str, pd.DataFrame]:
    return run(True, tmp_path_factory.mktemp("oracle") / "misses")


PUBLISHED_CALLS_EQUAL = {r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}"}
"""Golds that Math-Verify calls equal to the perturbed answer, here with 2/3 in place of 1/3."""


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("grader", ["published", "audited"])
def test_the_gold_is_right(knows, task, grader):
    samples = knows[task]
    failed = samples.loc[samples[grader] != "right", ["gold", "extracted", "reason"]]
    assert failed.empty, failed.to_string()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("grader", ["published", "audited"])
def test_gold_plus_one_is_wrong(misses, task, grader):
    samples = misses[task]
    failed = samples.loc[samples[grader] != "wrong", ["gold", "extracted", "reason"]]
    if grader == "published":
        failed = failed[~failed["gold"].isin(PUBLISHED_CALLS_EQUAL)]
    assert failed.empty, failed.to_string()


def test_every_sample_has_its_own_seed(knows):
    seeds = pd.concat(knows.values())["seed"]
    assert seeds.is_unique


def test_response_and_prompt_belong_to_the_problem(knows):
    for task in TASKS:
        text = {one.id: one.problem for one in datasets.evaluation_problems(task).problems}
        gold = {one.id: one.answer for one in datasets.evaluation_problems(task).problems}
        samples = knows[task]
        assert list(samples["problem_id"].drop_duplicates()) == list(text)
        assert (samples["prompt"] == samples["problem_id"].map(text)).all()
        assert (samples["gold"] == samples["problem_id"].map(gold)).all()


def test_lm_eval_finds_our_tasks_and_groups_by_their_folder():
    from lm_eval.tasks import TaskManager

    from tasks.lm_eval.functions import FOLDER

    manager = TaskManager(include_path=str(FOLDER), include_defaults=False)
    names = {f"reuse_{task}" for task in datasets.evaluation_tasks()} | {"reuse_math", "reuse_tiny"}
    assert set(manager.all_tasks) == names
    loaded = manager.load(["reuse_math", "reuse_tiny"])["tasks"]
    assert list(loaded) == [f"reuse_{task}" for task in (*datasets.BENCHMARKS, *chain.TINY_TASKS)]


def test_no_task_of_lm_eval_has_our_prefix():
    spec = find_spec("lm_eval")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    theirs = Path(spec.submodule_search_locations[0], "tasks")
    named = re.compile(r"^(task|group|tag):\s*reuse_", re.MULTILINE)
    files = list(theirs.rglob("*.yaml"))
    assert len(files) > 1000
    assert not [path for path in files if named.search(path.read_text(encoding="utf-8"))]
