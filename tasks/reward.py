"""The training reward: the graders of `tasks.grading`, turned into numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.grading import DEFAULT_TIMEOUT, Grader, GradeRequest, grade_many


@dataclass(frozen=True)
class RewardBatch:
    """Rewards of a batch, in its order, and what the graders said about it.

    Attributes:
        rewards: one number a response.
        disagreements: responses on which the two graders differ.
        errors: responses on which the grader that rewards gave no verdict; they get the reward of a wrong answer.
        right: responses that the grader that rewards calls right.
    """

    rewards: list[float]
    disagreements: int
    errors: int
    right: int


def rewards(
    responses: Sequence[str],
    golds: Sequence[str],
    *,
    task: str | None,
    grader: Grader,
    right: float = 1.0,
    wrong: float = -1.0,
    finished: Sequence[bool] | None = None,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> RewardBatch:
    """Reward responses by the verdict of one grader; the other is asked too, for the count of disagreements.

    A protocol's penalty for overlong responses is added by OpenRLHF (`harness.openrlhf.arguments`), not here.

    Args:
        responses: texts of the model.
        golds: reference answers, one a response.
        task: name of the training set; it chooses the rule.
        grader: whose verdict rewards.
        right: reward of a right answer.
        wrong: reward of a wrong answer, and of one on which the grader gave no verdict.
        finished: whether each response ended by itself; None: all did.
        workers: grading processes; None: as many as processors.
        timeout: processor seconds for each grader and answer.

    Raises:
        ValueError: the sequences differ in length, or there is no such grader.
    """
    if grader not in ("published", "audited"):
        raise ValueError(f"grader must be 'published' or 'audited', not {grader!r}")
    for name, given in (("golds", golds), ("finished", finished)):
        if given is not None and len(given) != len(responses):
            raise ValueError(f"{name} has {len(given)} entries for {len(responses)} responses")
    ended = finished if finished is not None else [True] * len(responses)
    grades = grade_many(
        [
            GradeRequest(gold, response, task, done)
            for gold, response, done in zip(golds, responses, ended, strict=True)
        ],
        workers=workers,
        timeout=timeout,
        # A rollout waits for its slowest answer, and an error earns what a wrong answer earns.
        second_tries=0,
    )
    verdicts = [grade.audited if grader == "audited" else grade.published for grade in grades]
    values = [right if verdict == "right" else wrong for verdict in verdicts]
    return RewardBatch(
        rewards=values,
        disagreements=sum(grade.audited != grade.published for grade in grades),
        errors=verdicts.count("error"),
        right=verdicts.count("right"),
    )


def chance_rewards(
    responses: Sequence[str], coins: Sequence[tuple[int | str, ...]], *, right: float = 1.0, wrong: float = -1.0
) -> RewardBatch:
    """Rewards that know nothing of the answer: the control of an experiment. Right with probability 1/2.

    Args:
        responses: texts of the model.
        coins: what decides beside the text, one a response, for example run seed and prompt row: the same text after
            another prompt is tossed again, and a repeated run tosses the same.
        right: reward when the coin says so.
        wrong: reward otherwise.
    """
    values = []
    for response, coin in zip(responses, coins, strict=True):
        text = "\0".join(map(str, (*coin, response)))
        values.append(right if hashlib.sha256(text.encode(errors="surrogatepass")).digest()[0] & 1 else wrong)
    return RewardBatch(rewards=values, disagreements=0, errors=0, right=values.count(right))
