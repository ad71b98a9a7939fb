"""What is read from a response, which rule judges it, and what reward it earns."""

from __future__ import annotations

import time

import pytest

from tasks import chain
from tasks.grading import Grade, GradeRequest, grade_many
from tasks.grading.extract import last_box, last_result
from tasks.grading.repairs import REPAIRS, repaired
from tasks.grading.rules import RULES, rule_of
from tasks.reward import chance_rewards, rewards


@pytest.mark.parametrize(
    ("response", "box"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{(0,\{1\}]}", r"(0,\{1\}]"),
        (r"\boxed{a}, no: \boxed{b", "a"),
        (r"\boxed{a} and \boxed{b} and \boxed{{c}", "b"),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{7}", "7"),
        (r"\boxed{ }", ""),
        (r"{ \boxed{3}", "3"),
        (r"} \boxed{3} }", "3"),
        (r"<think>\boxed{1}</think> \boxed{2}", "2"),
        (r"<think>\boxed{1}</think> so it is 2", None),
        (r"a</think>\boxed{1}</think>\boxed{3}", "3"),
        (r"a</think>\boxed{1}</think> so it is 3", None),
        (r"<think> \boxed{4}", "4"),
        ("boxed{5}", None),
        ("the answer is 5", None),
        ("", None),
        (r"\boxed 5", None),
        ("\\boxed{a\nb}", "a\nb"),
        (r"\\boxed{5}", None),
    ],
)
def test_last_box(response, box):
    assert last_box(response) == box


@pytest.mark.parametrize("text", ["\\boxed{" * 200_000, "\\boxed{1}" * 200_000, "{" * 2_000_000, "\\" * 1_000_001])
def test_extraction_takes_linear_time(text):
    start = time.process_time()
    last_box(text)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("response", "result"),
    [
        ("14=5,951,51=3,93,93=2", "2"),
        ("14=5,951,51=3,93", None),
        ("14=5,951,51=3,93,93=", None),
        ("14=5,951,51=3,93,93=2,", None),
        ("2", "2"),
        ("93=2 ", "2"),
        ("93=22", "22"),
        ("", None),
    ],
)
def test_last_result(response, result):
    assert last_result(response) == result


@pytest.mark.parametrize("task", ["chain", "chain_train", *chain.TINY_TASKS, "reuse_tiny_sum4"])
def test_chains(task):
    def grade(response: str, finished: bool = True) -> Grade:
        return grade_many([GradeRequest("2", response, task, finished)])[0]

    good = "14=5,951,51=3,93,93=2"
    assert grade(good) == Grade("2", "right", "right", None)
    assert grade(good, finished=False) == Grade("2", "wrong", "wrong", "truncated")
    for bad in ("14=5,951,51=3,93,93=3", "14=5,951,51=3,93", good + ",", good + "0", "", r"\boxed{2}", "02"):
        assert (grade(bad).published, grade(bad).audited) == ("wrong", "wrong")


def test_chains_of_the_task_itself_are_right():
    import random

    problems = [one for task in chain.TINY_TASKS for one in chain.held_out_problems(task)][:100]
    source = random.Random(0)
    asked = [
        GradeRequest(one["answer"], chain.chain(one["problem"].rstrip("="), source), "tiny_sum4") for one in problems
    ]
    assert {grade.audited for grade in grade_many(asked)} == {"right"}


@pytest.mark.parametrize(
    ("task", "family"),
    [
        ("aime24", "integer"), ("aime25", "integer"), ("amc23", "integer"), ("reuse_aime24", "integer"),
        ("reuse-bench-amc23", "integer"), ("AIME24", "integer"), ("olympiadbench", "mathematics"),
        ("reuse_olympiadbench", "mathematics"), ("minerva_math", "mathematics"), ("reuse_minerva_math", "mathematics"),
        ("math500", "mathematics"), ("gsm8k", "mathematics"), ("math_train", "mathematics"),
        ("dapo_math_17k", "mathematics"), (None, "mathematics"), ("something_else", "mathematics"),
        ("tiny_sum4", "chain"), ("reuse_tiny_sum4", "chain"), ("chain", "chain"), ("tiny", "chain"),
        ("destiny_math", "mathematics"),
    ],
)  # fmt: skip
def test_rules(task, family):
    assert rule_of(task).family == family


def test_every_task_of_the_project_has_a_rule():
    from tasks.datasets import evaluation_tasks, manifest

    for name in (*evaluation_tasks(), *manifest()):
        assert name in RULES or rule_of(name).family == "chain", name


def test_repairs_are_needed_and_say_why():
    for gold, (meant, why) in REPAIRS.items():
        assert gold != meant
        assert why
        assert repaired(gold) == meant
    assert repaired("5") == "5"


def box(answer: str) -> str:
    return rf"Therefore it is $\boxed{{{answer}}}$."


@pytest.mark.parametrize(
    ("gold", "answer", "task", "audited"),
    [
        ("073", "73", "aime24", "right"), ("27.0", "27", "amc23", "right"), ("336", r"336^\circ", "aime25", "right"),
        ("073", "73.0", "aime24", "right"), ("73", "73.5", "aime24", "wrong"), ("73", "72, 73", "aime24", "wrong"),
        ("73", r"73.0000001", "aime24", "wrong"),
        ("73", r"73_{10}", "aime24", "right"), ("73", "73_8", "aime24", "wrong"),
        ("73", r"\text{seventy-three}", "aime24", "wrong"),
        ("1/2", "1/2", "aime24", "error"), ("4.2", "4.25", "olympiadbench", "right"),
        ("4.2", "4.31", "olympiadbench", "wrong"), ("4.2", "4.25", "math500", "wrong"), ("", "5", "math500", "error"),
        (r"\frac{1", "5", "math500", "error"), (r"\frac{1", r"\frac12", "math500", "error"),
        (r"\text{odd}", "5", "math500", "wrong"), ("4:40 a.m.", "4:40 a.m.", "math500", "right"),
    ],
)  # fmt: skip
def test_tasks_judge_by_their_rule(gold, answer, task, audited):
    from tasks.grading.audited import AuditedGrader

    for name in (task, f"reuse_{task}"):
        assert AuditedGrader()(gold, box(answer), name).verdict == audited


def test_one_answer_under_two_rules_is_judged_by_each():
    asked = [GradeRequest("4.2", box("4.25"), task) for task in ("olympiadbench", "math500", "olympiadbench")]
    assert [grade.audited for grade in grade_many(asked)] == ["right", "wrong", "right"]


# --- reward --------------------------------------------------------------------------------------------------


def test_rewards():
    golds = ["5", "5", "3e8", "5"]
    responses = [box("5"), box("6"), box(r"3\times10^8"), "5 without a box"]
    audited = rewards(responses, golds, task="math500", grader="audited")
    assert audited.rewards == [1.0, -1.0, 1.0, -1.0]
    published = rewards(responses, golds, task="math500", grader="published", right=2.0, wrong=0.0)
    assert published.rewards == [2.0, 0.0, 0.0, 2.0]
    assert audited.disagreements == published.disagreements == 2
    assert audited.errors == 0
    assert audited.right == 2


def test_an_error_earns_the_reward_of_a_wrong_answer_and_is_counted():
    batch = rewards([box("9^{9^{9^{9^{9}}}}"), box("5")], ["5", "5"], task=None, grader="audited", timeout=0.1)
    assert batch.rewards == [-1.0, 1.0]
    assert batch.errors == 1


def test_truncated_chains_are_not_rewarded():
    batch = rewards(["1=2", "1=2"], ["2", "2"], task="chain", grader="audited", finished=[True, False])
    assert batch.rewards == [1.0, -1.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"golds": ["2"]}, "golds has 1 entries for 2"),
        ({"finished": [True]}, "finished has 1"),
        ({"grader": "both"}, "grader must be"),
    ],
)
def test_rewards_refuse_what_does_not_fit(change, said):
    arguments = {"golds": ["2", "2"], "task": "chain", "grader": "audited"} | change
    with pytest.raises(ValueError, match=said):
        rewards(["1=2", "1=2"], **arguments)


def test_chance_rewards_know_nothing_of_the_answer():
    responses = [f"answer {number}" for number in range(4000)]
    coins = [(7, row) for row in range(4000)]
    batch = chance_rewards(responses, coins, right=2.0, wrong=-1.0)
    assert set(batch.rewards) == {2.0, -1.0}
    # A fair coin is outside five standard deviations once in two million times.
    assert abs(batch.right - 2000) < 5 * 4000**0.5 / 2
    assert batch.right == batch.rewards.count(2.0)
    assert chance_rewards(responses, coins, right=2.0, wrong=-1.0) == batch
    others = chance_rewards(responses, [(8, row) for row in range(4000)], right=2.0, wrong=-1.0)
    agree = sum(one == two for one, two in zip(batch.rewards, others.rewards, strict=True))
    assert abs(agree - 2000) < 5 * 4000**0.5 / 2
    same_text = chance_rewards(["x"] * 100, coins[:100])
    assert 20 < same_text.right < 80
