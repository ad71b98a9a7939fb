"""Two graders over the same answer: `published` (Math-Verify) and `audited` (our own rules).

>>> from tasks.grading import GradeRequest, grade_one
>>> grade_one(GradeRequest(gold="073", response=r"So it is \\boxed{73}.", task="aime24")).audited
'right'
"""

from tasks.grading.pool import DEFAULT_TIMEOUT, GraderUnavailable, grade_many, grade_one
from tasks.grading.types import GRADERS, Grade, Grader, GradeRequest, Verdict

__all__ = [
    "DEFAULT_TIMEOUT",
    "GRADERS",
    "Grade",
    "GradeRequest",
    "Grader",
    "GraderUnavailable",
    "Verdict",
    "grade_many",
    "grade_one",
]
