"""First version: text and integers only."""

from __future__ import annotations

from tasks.grading.extract import last_box
from tasks.grading.types import RIGHT, Judgement, wrong


class AuditedGrader:
    """Our rules."""

    def __call__(self, gold: str, response: str, task: str | None) -> Judgement:
        """Judge a whole response."""
        answer = last_box(response)
        if answer is None:
            return wrong("no box")
        try:
            return RIGHT if float(answer) == float(gold) else wrong("not equal")
        except ValueError:
            return RIGHT if answer == gold else wrong("not equal")
