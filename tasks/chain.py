"""The tiny protocol's task: add four to six digits modulo 10 by written rewrites.

A problem is a string of digits and ``=``. An answer is a chain of steps; each names two or three adjacent digits with
their sum modulo 10, then the shortened string, until one digit is left::

    9141=14=5,951,51=6,96,96=5

Any valid chain ends in the right digit, so that a problem has many right responses of different lengths. The held-out
tasks are graded by the number of digits; 4 to 6 are what training asks, the others show how far it carries.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

TRAIN_TASK = "chain"
TRAIN_DIGITS = (4, 5, 6)
TRAIN_PROBLEMS = 4096
HELD_OUT_DIGITS = (3, 4, 5, 6, 7, 8)
HELD_OUT_PROBLEMS = 64
TINY_TASKS = tuple(f"tiny_sum{digits}" for digits in HELD_OUT_DIGITS)

PAIR_SHARE = 0.8
RESTATED_SHARE = 0.05
"""Share of steps that restate the string first: harmless, and it varies the length of right responses."""


def answer(digits: str) -> str:
    """The right last digit."""
    return str(sum(map(int, digits)) % 10)


def prompt(digits: str) -> str:
    """What the policy is shown."""
    return f"{digits}="


def _problem(task: str, index: int, digits: str) -> dict[str, str]:
    return {"id": f"{task}-{index}", "problem": prompt(digits), "answer": answer(digits)}


def _distinct(rng: random.Random, lengths: tuple[int, ...], count: int, taken: frozenset[str]) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        digits = "".join(rng.choices("0123456789", k=rng.choice(lengths)))
        if digits not in taken:
            found[digits] = None
    return list(found)


@cache
def _held_out(digits: int) -> tuple[str, ...]:
    rng = random.Random(f"reuse-bench held-out {digits}")
    return tuple(_distinct(rng, (digits,), HELD_OUT_PROBLEMS, frozenset()))


@cache
def held_out_strings() -> frozenset[str]:
    """Every digit string that no training may see."""
    return frozenset(string for digits in HELD_OUT_DIGITS for string in _held_out(digits))


def held_out_problems(task: str) -> list[dict[str, str]]:
    """The problems of one held-out task, each with ``id``, ``problem`` and ``answer``.

    Raises:
        KeyError: ``task`` is none of ``TINY_TASKS``.
    """
    if task not in TINY_TASKS:
        raise KeyError(f"no held-out task {task!r}: known are {', '.join(TINY_TASKS)}")
    strings = _held_out(HELD_OUT_DIGITS[TINY_TASKS.index(task)])
    return [_problem(task, index, digits) for index, digits in enumerate(strings)]


@cache
def _training() -> tuple[str, ...]:
    rng = random.Random("reuse-bench training")
    return tuple(_distinct(rng, TRAIN_DIGITS, TRAIN_PROBLEMS, held_out_strings()))


def training_problems() -> list[dict[str, str]]:
    """The training set, disjoint from every held-out problem."""
    return [_problem(TRAIN_TASK, index, digits) for index, digits in enumerate(_training())]


def chain(digits: str, rng: random.Random, *, wrong_pair: float = 0.0, wrong_triple: float = 0.0) -> str:
    """One response to ``digits``; each step has a wrong result with the given probability and goes on from it."""
    parts = []
    while True:
        if rng.random() < RESTATED_SHARE and len(digits) > 2:
            parts.append(digits)
        width = 3 if len(digits) > 2 and rng.random() >= PAIR_SHARE else 2
        start = rng.randrange(len(digits) - width + 1)
        named = digits[start : start + width]
        result = answer(named)
        if rng.random() < (wrong_pair if width == 2 else wrong_triple):
            result = rng.choice([digit for digit in "0123456789" if digit != result])
        digits = digits[:start] + result + digits[start + width :]
        parts.append(f"{named}={result}")
        if len(digits) == 1:
            return ",".join(parts)
        parts.append(digits)


def pretraining_texts(rng: random.Random, *, wrong_pair: float = 0.0, wrong_triple: float = 0.0) -> Iterator[str]:
    """An endless stream of problems with responses for the base model, none of them held out."""
    held_out = held_out_strings()
    while True:
        digits = "".join(rng.choices("0123456789", k=rng.choice(TRAIN_DIGITS)))
        if digits not in held_out:
            yield prompt(digits) + chain(digits, rng, wrong_pair=wrong_pair, wrong_triple=wrong_triple)
