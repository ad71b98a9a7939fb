"""What the task files name: how lm-eval gets the problems, and how it scores the samples of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks import chain, datasets
from tasks.grading import Grade, GradeRequest, grade_many

PREFIX = "reuse_"
"""lm-eval has tasks of the same names; ours carry this prefix there."""

FOLDER = Path(__file__).parent
DEFAULT_PROMPT = "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{}."

_grades: dict[GradeRequest, Grade] = {}


class Response(str):
    """A response that knows whether it ended by itself; lm-eval hands it through as the string that it is."""

    finished: bool

    def __new__(cls, text: str, finished: bool) -> Response:
        """``text`` with the mark ``finished``."""
        response = super().__new__(cls, text)
        response.finished = finished
        return response


def lm_eval_name(task: str) -> str:
    """The name of a task inside lm-eval."""
    return PREFIX + task


def load(name: str, prompt: str | None = None, folder: str | None = None, **_: Any) -> dict[str, Any]:
    """The problems of task ``name`` as lm-eval takes them: a data set for the split ``test``.

    ``prompt`` is the user's text with ``{problem}`` in the problem's place; ``folder`` the data folder. lm-eval hands
    over the metadata of the task as well, which nothing here needs.
    """
    from datasets import Dataset

    template = prompt or ("{problem}" if name in chain.TINY_TASKS else DEFAULT_PROMPT)
    problems = datasets.evaluation_problems(name, Path(folder) if folder else None).problems
    rows = [
        {
            "task": name,
            "id": one.id,
            "answer": one.answer,
            "prompt": template.replace("{problem}", one.problem),
        }
        for one in problems
    ]
    return {"test": Dataset.from_list(rows)}


def grades_of(requests: Iterable[GradeRequest]) -> list[Grade]:
    """Verdicts in the order of the requests; each different one is graded once a process."""
    wanted = list(requests)
    missing = [one for one in dict.fromkeys(wanted) if one not in _grades]
    if missing:
        _grades.update(zip(missing, grade_many(missing), strict=True))
    return [_grades[one] for one in wanted]


def process_results(doc: Mapping[str, str], results: Sequence[Sequence[str]]) -> dict[str, float]:
    """Share of right samples of one problem, by grader. ``results`` is a list of one: the list of its samples."""
    (responses,) = results
    grades = grades_of(
        GradeRequest(doc["answer"], str(one), doc["task"], getattr(one, "finished", True)) for one in responses
    )
    return {
        "published": sum(grade.published == "right" for grade in grades) / len(grades),
        "audited": sum(grade.audited == "right" for grade in grades) / len(grades),
    }
