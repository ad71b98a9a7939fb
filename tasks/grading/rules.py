"""Which rule judges which task: one table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Family = Literal["integer", "mathematics", "chain"]


@dataclass(frozen=True)
class Rule:
    """How the answers of a task are compared.

    Attributes:
        family: ``integer``: the exact integer; ``mathematics``: any value, expression, list, interval, equation
            or word; ``chain``: the last result of a chain of rewrites.
        tolerances: golds that the data set itself gives with an absolute tolerance, as written.
    """

    family: Family
    tolerances: tuple[tuple[str, str], ...] = ()


_MATHEMATICS = Rule("mathematics")

RULES: dict[str, Rule] = {
    "aime24": Rule("integer"),
    "aime25": Rule("integer"),
    "amc23": Rule("integer"),
    # Problem 2592 states 4.2 with an error of 0.1; no other problem of the set has the answer 4.2.
    "olympiadbench": Rule("mathematics", tolerances=(("4.2", "0.1"),)),
    "minerva_math": _MATHEMATICS,
    "math500": _MATHEMATICS,
    "math500_first100": _MATHEMATICS,
    "gsm8k": _MATHEMATICS,
    "gsm8k_test": _MATHEMATICS,
    "gsm8k_test_first100": _MATHEMATICS,
    "math_train": _MATHEMATICS,
    "dapo_math_17k": _MATHEMATICS,
    "dsr_sub": _MATHEMATICS,
    "chain": Rule("chain"),
}

_TINY = re.compile(r"(?:^|_)tiny(?:_|$)")


def rule_of(task: str | None) -> Rule:
    """The rule of a task, by the ending of its name: ``aime24`` and ``reuse_aime24`` have the same.

    A name with the part ``tiny`` or ``chain`` is a chain of rewrites; any other name is general mathematics.
    """
    if task is None:
        return _MATHEMATICS
    name = task.lower().replace("-", "_")
    for known, rule in RULES.items():
        if name == known or name.endswith("_" + known):
            return rule
    if _TINY.search(name) or name.startswith("chain"):
        return RULES["chain"]
    return _MATHEMATICS
