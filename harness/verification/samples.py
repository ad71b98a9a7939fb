"""Samples: scores computed anew, prompts, golds and seeds compared, and some or all of them judged again."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness import provenance
from harness.evaluation import request_seed
from harness.records import Record, TaskResult, canonical_json
from harness.scoring import COLUMNS, read_identity, read_samples, task_result, unreadable
from harness.verification.checked import Checked, Judged, compare, shortened
from methods.errors import UserError
from tasks import chain, datasets

if TYPE_CHECKING:
    from pandas import DataFrame

MATH_VERIFY = "math-verify"
SPOT_CHECKS = 20
"""Right samples of each task that are judged again without ``regrade``, drawn anew each time."""
MORE_TIME = 4
GRADER = "tasks/grading"


def check_task(one: Checked, record: Record, task: str, stated: TaskResult, folder: Path, regrade: bool) -> None:
    """One task, recomputed from its samples; those to be judged again are put into ``one.judged``."""
    name = f"evaluation.{task}"
    path = folder / "samples" / f"{task}.parquet"
    if stated.samples.path != f"samples/{task}.parquet" or not path.is_file() or path.is_symlink():
        return
    shown = f"{one.path.removesuffix('.json')}/samples/{task}.parquet"
    if not _check_frame(one, record, task, stated, path, shown):
        return
    try:
        samples = read_samples(path)
        found = task_result(samples, task, stated.sampling, stated.samples)
    except UserError as error:
        one.error(f"{name}.samples", str(error).partition(": ")[2], shown)
        return
    one.samples += len(samples)
    compare(one, name, found.model_dump(), stated.model_dump(), leave={"samples"})
    _check_sample_seeds(one, record, task, samples, shown)
    too_long = int((samples["response_tokens"] > stated.sampling.max_tokens).sum())
    if too_long:
        one.error(f"{name}.sampling.max_tokens", f"{too_long} responses are longer than that", shown)
    prompts = samples.groupby("problem_id", sort=False)[["prompt_sha256", "gold"]].nunique()
    if (prompts > 1).to_numpy().any():
        one.error(f"{name}.samples", "a problem has samples with different prompts or golds", shown)
    golds = samples.drop_duplicates("problem_id")[["problem_id", "gold"]].to_numpy().tolist()
    one.facts[f"golds {task}"] = hashlib.sha256(canonical_json(golds)).hexdigest()
    responses = "\0".join(samples["problem_id"] + "\0" + samples["response"])
    one.facts[f"responses {task}"] = hashlib.sha256(responses.encode()).hexdigest()
    _check_golds(one, record, task, golds, shown)
    one.judged += _to_judge(task, samples, shown, every=regrade)


def _check_frame(one: Checked, record: Record, task: str, stated: TaskResult, path: Path, shown: str) -> bool:
    """What a sample file says before its rows are read: columns, how many rows, and of what evaluation they are."""
    import pyarrow.parquet as pq

    name = f"evaluation.{task}.samples"
    try:
        described = pq.read_metadata(path)
        columns, rows = described.schema.to_arrow_schema().names, described.num_rows
    except unreadable() as error:
        one.error(name, f"it is no parquet file ({str(error).splitlines()[0][:80]})", shown)
        return False
    expected = stated.problems * stated.sampling.samples_per_problem
    if rows != expected:
        one.error(name, f"it has {rows} rows, and the record says {expected}", shown)
        return False
    extra = [column for column in columns if column not in COLUMNS]
    if extra:
        one.error(name, f"column {extra[0]!r} does not belong there", shown)
    if b"reuse_bench" not in (described.metadata or {}):
        return True
    try:
        said = read_identity(path)
    except UserError as error:
        one.error(name, str(error).partition(": ")[2], shown)
        return True
    data = {ref.name: ref.digest for ref in record.data if ref.role == "evaluation"}
    weights = record.checkpoint.digest if record.checkpoint else record.model.digest
    plan = said["plan"] if isinstance(said.get("plan"), dict) else {}
    for what, here, there in (
        ("checkpoint", said.get("checkpoint"), weights),
        ("data", said.get("data"), data.get(task)),
        ("seed", said.get("seed"), record.seeds.evaluation),
        ("task", plan.get("task"), task),
        *((key, plan.get(key), getattr(stated.sampling, key)) for key in ("temperature", "top_p", "max_tokens")),
    ):
        if said and here != there:
            one.error(name, f"the file is of {what} {shortened(here)}, the record of {shortened(there)}", shown)
    return True


def _check_golds(one: Checked, record: Record, task: str, golds: Sequence[Sequence[str]], shown: str) -> None:
    """Problems and golds against the set itself, where it can be made here or is in the data folder."""
    try:
        asked = datasets.evaluation_problems(task)
    except UserError:
        if task in datasets.evaluation_tasks():
            one.note(f"evaluation.{task}.samples", "golds not compared with the set, which is not in the data folder")
        return
    known = {problem.id: problem.answer for problem in asked.problems}
    wrong = [key for key, gold in golds if known.get(key) != gold]
    if wrong and (task in chain.TINY_TASKS or record.division == "closed"):
        one.error(f"evaluation.{task}.samples", f"problem {wrong[0]!r} is not in the data set with this gold", shown)


def _check_sample_seeds(one: Checked, record: Record, task: str, samples: DataFrame, shown: str) -> None:
    seed = record.seeds.evaluation
    for row, (problem, sample, used) in enumerate(
        zip(samples["problem_id"], samples["sample"], samples["seed"], strict=True)
    ):
        if used != request_seed(seed, task, problem, int(sample)):
            one.error(f"evaluation.{task}.samples", f"row {row}: seed {used} does not follow from {seed}", shown)
            return


def _to_judge(task: str, samples: DataFrame, shown: str, *, every: bool) -> list[Judged]:
    """All samples, or some of those that count as right: a score is lifted there."""
    from tasks.grading import GradeRequest

    rows: Sequence[int] = range(len(samples))
    if not every:
        right = (samples["published"] == "right") | (samples["audited"] == "right")
        rows = [int(row) for row in right.to_numpy().nonzero()[0]]
        # Not from a seed: whoever could know which rows are looked at would leave those alone.
        rows = random.SystemRandom().sample(rows, min(SPOT_CHECKS, len(rows)))
    chosen = samples.iloc[list(rows)]
    columns = ("gold", "response", "finish_reason", "published", "audited")
    return [
        Judged(task, row, GradeRequest(gold, response, task, finish == "stop"), published, audited, shown)
        for row, gold, response, finish, published, audited in zip(
            rows, *(chosen[column] for column in columns), strict=True
        )
    ]


def judge_again(checked: Sequence[Checked], progress: Callable[[int, int], None] | None) -> None:
    """Judge the chosen samples of all records at once.

    A verdict may differ where a grader ran into its time limit then or now, with one exception: what counts as right
    must be judged right, on a busy machine with more time. A response that no grader can finish with is no way to a
    score.
    """
    from importlib import metadata

    from tasks.grading import DEFAULT_TIMEOUT, grade_many

    here = metadata.version(MATH_VERIFY)
    able = []
    for one in checked:
        if not one.judged or one.record is None:
            continue
        recorded = one.record.provenance.packages.get(MATH_VERIFY)
        if recorded != here:
            one.note("evaluation", f"not judged again: {MATH_VERIFY} is not the recorded {recorded}")
        else:
            able.append(one)
    requests = [item.request for one in able for item in one.judged]
    told = (lambda done: progress(done, len(requests))) if progress else None
    grades = grade_many(requests, progress=told)
    every = [item for one in able for item in one.judged]
    slow = [
        number
        for number, (item, grade) in enumerate(zip(every, grades, strict=True))
        if ("right", "error") in ((item.published, grade.published), (item.audited, grade.audited))
    ]
    again = grade_many([requests[number] for number in slow], timeout=MORE_TIME * DEFAULT_TIMEOUT)
    for number, grade in zip(slow, again, strict=True):
        grades[number] = grade
    following = iter(grades)
    for one in able:
        assert one.record is not None
        since = "" if _same_grader(one.record.provenance.commit) else "; the grader has changed since its commit"
        named: set[str] = set()
        for item in one.judged:
            grade = next(following)
            for grader, now, stored in (
                ("published", grade.published, item.published),
                ("audited", grade.audited, item.audited),
            ):
                place = f"evaluation.{item.task}.scores.{grader}"
                forgiven = stored == "error" or (now == "error" and stored != "right")
                if now != stored and not forgiven and place not in named:
                    named.add(place)
                    one.error(place, f"row {item.row} is stored as {stored}, and judged {now} now{since}", item.shown)
        one.judged.clear()


@cache
def _same_grader(commit: str | None) -> bool:
    """Whether the grader here is the commit's; a commit that this checkout does not have can claim nothing."""
    if commit is None or provenance.file_at(commit, "pyproject.toml") is None:
        return True
    files = sorted((provenance.REPOSITORY / GRADER).glob("*.py"))
    return all(
        provenance.file_at(commit, f"{GRADER}/{file.name}") == file.read_bytes().replace(b"\r\n", b"\n")
        for file in files
    )
