"""What goes into the grader and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["right", "wrong", "error"]
Grader = Literal["published", "audited"]
GRADERS: tuple[Grader, Grader] = ("audited", "published")


@dataclass(frozen=True)
class GradeRequest:
    """One answer to judge.

    Attributes:
        gold: the reference answer, as the data set writes it.
        response: the whole text of the model.
        task: name of the task or data set; it chooses the rule. None: general mathematics.
        finished: whether the text ended with the end-of-sequence token. Only the chains of the tiny protocol ask.
    """

    gold: str
    response: str
    task: str | None = None
    finished: bool = True


@dataclass(frozen=True)
class Grade:
    """Both verdicts on one answer.

    Attributes:
        extracted: the answer that the audited grader read from the response; None when there is none.
        published: verdict of Math-Verify on the whole response.
        audited: verdict of our own rules on ``extracted``.
        reason: why an audited verdict is not right, or why a grader gave no verdict; None when there is nothing to say.
    """

    extracted: str | None
    published: Verdict
    audited: Verdict
    reason: str | None


@dataclass(frozen=True)
class Judgement:
    """Verdict of one grader, with its reason."""

    verdict: Verdict
    reason: str | None = None


RIGHT = Judgement("right")


def wrong(reason: str) -> Judgement:
    """A wrong answer and why."""
    return Judgement("wrong", reason)


def error(reason: str) -> Judgement:
    """No verdict could be reached, and why."""
    return Judgement("error", reason)
