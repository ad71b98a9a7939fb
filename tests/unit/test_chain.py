"""The tiny task: right answers, chains that lead to them, and training that never sees a held-out problem."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import chain

DIGITS = st.text("0123456789", min_size=2, max_size=9)


def walk(digits: str, response: str) -> str:
    """Carry out a chain step by step, checking each; returns the last digit."""
    reachable = {digits}
    for part in response.split(","):
        if "=" not in part:
            assert part in reachable
            reachable = {part}
            continue
        named, result = part.split("=")
        assert len(named) in (2, 3)
        assert sum(map(int, named)) % 10 == int(result)
        reachable = {
            string[:start] + result + string[start + len(named) :]
            for string in reachable
            for start in range(len(string))
            if string.startswith(named, start)
        }
        assert reachable, f"{named} is not there"
    (last,) = reachable
    return last


@given(DIGITS, st.integers(0, 10**6))
def test_a_chain_ends_in_the_right_digit(digits: str, seed: int) -> None:
    response = chain.chain(digits, random.Random(seed))
    assert response.rsplit("=", 1)[1] == chain.answer(digits)
    assert walk(digits, response) == chain.answer(digits)


@given(DIGITS, st.integers(0, 10**6))
def test_wrong_steps_are_written_only_when_asked_for(digits: str, seed: int) -> None:
    response = chain.chain(digits, random.Random(seed), wrong_pair=1.0, wrong_triple=1.0)
    steps = [part.split("=") for part in response.split(",") if "=" in part]
    assert all(sum(map(int, named)) % 10 != int(result) for named, result in steps)


def test_training_and_held_out_problems_are_disjoint() -> None:
    held_out = {problem["problem"] for task in chain.TINY_TASKS for problem in chain.held_out_problems(task)}
    training = {problem["problem"] for problem in chain.training_problems()}
    assert len(training) == chain.TRAIN_PROBLEMS
    assert not training & held_out
    assert not {f"{string}=" for string in chain.held_out_strings()} - held_out


def test_pretraining_sees_no_held_out_problem() -> None:
    held_out = chain.held_out_strings()
    texts = islice(chain.pretraining_texts(random.Random(0)), 20_000)
    assert not {text.split("=")[0] for text in texts} & held_out


@pytest.mark.parametrize(("task", "digits"), list(zip(chain.TINY_TASKS, chain.HELD_OUT_DIGITS, strict=True)))
def test_held_out_tasks_are_graded_by_length(task: str, digits: int) -> None:
    problems = chain.held_out_problems(task)
    assert len({problem["id"] for problem in problems}) == len(problems) == chain.HELD_OUT_PROBLEMS
    assert {len(problem["problem"]) for problem in problems} == {digits + 1}
    assert all(problem["answer"] == chain.answer(problem["problem"][:-1]) for problem in problems)


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(KeyError, match="tiny_sum9"):
        chain.held_out_problems("tiny_sum9")
