"""Recompute a record from what it points to, and say what differs.

What is checked, and what cannot be, is listed in ``docs/records.md``. Reading never trusts a record: no pickle, no path
that leaves the record's folder, no field that is not in the schema.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import methods
from harness import plausibility, provenance
from harness.curves import read_updates, training_summary
from harness.evaluation import request_seed
from harness.grid import Cell
from harness.protocol import Protocol, available, collapse_reason, load_protocol
from harness.records import (
    FileRef,
    Record,
    TaskResult,
    canonical_json,
    content_id,
    load_json,
    parse_record,
    record_folder,
    write_atomically,
)
from harness.scoring import COLUMNS, read_identity, read_samples, task_result, unreadable
from methods.errors import UserError
from tasks import chain, datasets

if TYPE_CHECKING:
    from pandas import DataFrame

    from tasks.grading import GradeRequest

Level = Literal["error", "note"]
TOLERANCE = 1e-9
CURVE = "updates.jsonl"
RECORDS = "*/*/n*/*/seed*.json"
MATH_VERIFY = "math-verify"
SPOT_CHECKS = 20
"""Right samples of each task that are judged again without ``regrade``, drawn anew each time."""
MORE_TIME = 4
LARGEST_RECORD = 64 * 2**20
LARGEST_FILE = 2 * 2**30
"""Bytes. Nothing larger is read: a record of ours has under 1 MB, a file of the largest task under 100 MB."""
GRADER = "tasks/grading"
STEERING = ("OMP_", "MKL_", "VLLM_", "TORCH_")
"""Variables that change what a CPU computes in the last bit."""


@dataclass(frozen=True, order=True)
class Finding:
    """What differs. ``path`` is relative to the store; ``field`` is a dotted name in the record, or empty.

    An ``error`` makes verification fail; a ``note`` says what could not be checked here.
    """

    path: str
    field: str
    message: str
    level: Level = "error"


@dataclass
class Report:
    """Everything that was found, sorted by path and field."""

    records: int = 0
    files: int = 0
    samples: int = 0
    cached: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No error was found."""
        return not any(finding.level == "error" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "ok": self.ok}


@dataclass(frozen=True)
class _Judged:
    """A stored sample that is judged again."""

    task: str
    row: int
    request: GradeRequest
    published: str
    audited: str
    shown: str


@dataclass
class _Checked:
    """One record, after the checks that need nothing else."""

    path: str
    record: Record | None = None
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    samples: int = 0
    cached: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    """What is compared with other records: digests of golds, responses and curve, the first score; see `_across`."""
    judged: list[_Judged] = field(default_factory=list)
    key: str = ""

    def error(self, name: str, message: str, path: str | None = None) -> None:
        self.findings.append(Finding(path or self.path, name, message))

    def findings_of_error(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)

    def note(self, name: str, message: str) -> None:
        self.findings.append(Finding(self.path, name, message, "note"))


def verify(
    path: Path,
    *,
    regrade: bool = False,
    cache_folder: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Verify a store, a folder of one, or a single record.

    Args:
        path: the store, a folder inside one (``tiny/tiny-qwen3``), or the JSON file of a record.
        regrade: judge every sample again with the installed graders, where they are of the recorded version; without
            it, some of the right ones of each task.
        cache_folder: where to remember, by digest, what was recomputed and found right; None: nowhere. Digests of
            all files are computed in any case.
        workers: records checked at once; the number of processors by default.
        progress: called with records done and records in all, then with samples judged again and those in all.

    Raises:
        UserError: nothing is there to verify.
    """
    # A record's place is read off its path. Links stay in it, to be found: only ".." asks for the path without them.
    path = path.resolve() if ".." in path.parts else path.absolute()
    store, paths = _locate(path)
    memory = _Memory(cache_folder)
    checked: list[_Checked] = []
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for one in pool.map(lambda item: _check(item, store, memory, regrade), paths):
            checked.append(one)
            if progress:
                progress(len(checked), len(paths))
    _judge_again(checked, progress)
    for one in checked:
        if one.key and not one.cached and not one.findings_of_error():
            memory.remember(one.key, one.facts)
    memory.save()
    report = Report(records=len(paths))
    for one in checked:
        report.files += one.files
        report.samples += one.samples
        report.cached += one.cached
        report.findings += one.findings
    report.findings += _across(checked)
    if path.is_dir():
        report.findings += _strangers(path, store, checked)
    report.findings = sorted(set(report.findings))
    return report


def _locate(path: Path) -> tuple[Path, list[Path]]:
    """The store that ``path`` belongs to, and the records to check."""
    if path.is_file():
        if len(path.absolute().parents) < 5 or path.suffix != ".json":
            raise UserError(f"{path}: is no record: name a store, a folder of one, or a seed<k>.json in its place")
        return path.parent.parent.parent.parent.parent, [path]
    if not path.is_dir():
        raise UserError(f"{path}: there is nothing to verify: name a store, a folder of one, or a record")
    depth_of_seed = 5
    for depth in range(depth_of_seed):
        found = sorted(path.glob("/".join(RECORDS.split("/")[depth:])))
        if found:
            return [path, *path.absolute().parents][depth] if depth else path, found
    raise UserError(f"{path}: holds no records: they lie at <protocol>/<model>/n<N>/<method>/seed<k>.json")


def _check(path: Path, store: Path, memory: _Memory, regrade: bool) -> _Checked:
    """All checks of one record; a damaged one never stops the others."""
    try:
        name = path.absolute().relative_to(store.absolute()).as_posix()
    except ValueError:
        name = path.as_posix()
    one = _Checked(name)
    if path.is_symlink() or not path.is_file():
        one.error("", "the record is a link" if path.is_symlink() else "the record is no regular file")
        return one
    if linked := _linked(path, store):
        one.error("", f"{linked} is a link")
        return one
    try:
        if (size := path.stat().st_size) > LARGEST_RECORD:
            raise ValueError(f"it has {size} bytes, and is not read")
        content = path.read_bytes()
        document = load_json(content)
    except (OSError, ValueError, RecursionError) as error:
        one.error("", f"the record is no JSON: {error}")
        return one
    _check_seal(one, document, content)
    try:
        record = one.record = parse_record(document, path)
    except UserError as error:
        one.error("", str(error).removeprefix(f"{path}: "))
        mended = _without_seal(document, path)
        if mended is None:
            return one
        record = mended
    if record.relative_path().as_posix() != name:
        one.error("", f"the record belongs at {record.relative_path().as_posix()}")
    _check_files(one, record, record_folder(path))
    _check_claims(one, record)
    one.key = memory.key(content, regrade)
    if not one.findings_of_error() and one.key in memory:
        one.cached = True
        one.facts = memory.recall(one.key)
        one.samples = _rows(record)
        return one
    _check_training(one, record, record_folder(path))
    for task, result in record.evaluation.items():
        _check_task(one, record, task, result, record_folder(path), regrade)
    return one


def _linked(path: Path, store: Path) -> str:
    """The first folder between the store and the record, or below the record's own, that is a link; empty if none."""
    folder = record_folder(path)
    inside = [parent for parent in path.absolute().parents if parent.is_relative_to(store.absolute())]
    for place in [*reversed(inside), folder, folder / "samples"]:
        if place != store.absolute() and place.is_symlink():
            return place.name
    return ""


def _rows(record: Record) -> int:
    return sum(result.problems * result.sampling.samples_per_problem for result in record.evaluation.values())


def _check_seal(one: _Checked, document: Any, content: bytes) -> None:
    """Bytes, id and field digests, on the document as it is in the file."""
    if not isinstance(document, dict):
        return
    try:
        if canonical_json(document) != content:
            one.error("", "the bytes are not the canonical form of the document (sorted keys, one space of indent)")
        if document.get("id") != content_id(document):
            one.error("id", "the content does not have this digest: the record was changed after it was written")
        digests = document.get("field_digests")
        for name, value in document.items():
            if name in ("id", "field_digests"):
                continue
            digest = hashlib.sha256(canonical_json(value)).hexdigest()
            if not isinstance(digests, dict) or digests.get(name) != digest:
                one.error(name, "does not have the digest that field_digests states")
        for name in sorted(set(digests or ()) - set(document)) if isinstance(digests, dict) else ():
            one.error(f"field_digests.{name}", "there is no such field")
    except (ValueError, RecursionError) as error:
        one.error("", f"the record cannot be written as canonical JSON: {error}")


def _without_seal(document: Any, path: Path) -> Record | None:
    """The record with a mended id, to go on comparing it with its files; None where that is impossible."""
    if not isinstance(document, dict):
        return None
    try:
        return parse_record(document | {"id": content_id(document)}, path)
    except (ValueError, RecursionError):
        return None


def _check_files(one: _Checked, record: Record, folder: Path) -> None:
    """Digest, size and place of every file, and no other file beside them."""
    expected: dict[str, tuple[str, FileRef]] = {}
    if record.training:
        expected[CURVE] = ("training.curve", record.training.curve)
    for task, result in record.evaluation.items():
        expected[f"samples/{task}.parquet"] = (f"evaluation.{task}.samples", result.samples)
    for place, (name, ref) in expected.items():
        shown = f"{one.path.removesuffix('.json')}/{place}"
        if ref.path != place:
            one.error(f"{name}.path", f"{ref.path!r} instead of {place!r}")
            continue
        file = folder / place
        if not file.is_file() or file.is_symlink():
            one.error(name, "the file is missing" if not file.is_symlink() else "the file is a link", shown)
            continue
        one.files += 1
        size = file.stat().st_size
        if size > LARGEST_FILE:
            one.error(f"{name}.bytes", f"the file has {size} bytes, and is not read", shown)
            continue
        if size != ref.bytes:
            one.error(f"{name}.bytes", f"the file has {size} bytes, the record says {ref.bytes}", shown)
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != ref.sha256:
            one.error(f"{name}.sha256", "the file does not have the digest that the record states", shown)
    if folder.is_dir():
        for file in sorted(folder.rglob("*")):
            if not file.is_dir() and file.relative_to(folder).as_posix() not in expected:
                shown = f"{one.path.removesuffix('.json')}/{file.relative_to(folder).as_posix()}"
                one.error("", "the record does not name this file", shown)


def _check_training(one: _Checked, record: Record, folder: Path) -> None:
    stated = record.training
    if stated is None:
        if record.kind == "trained" and record.status != "failed":
            one.error("training", "a trained record needs it")
        return
    if stated.curve.path != CURVE or not (folder / CURVE).is_file() or (folder / CURVE).is_symlink():
        return
    try:
        lines = read_updates(folder / CURVE)
    except UserError as error:
        one.error("training.curve", str(error).partition(": ")[2])
        return
    if record.reuse != stated.updates_per_rollout:
        one.error("training.updates_per_rollout", f"{stated.updates_per_rollout}, but reuse is {record.reuse}")
    _check_lines(one, lines, stated.updates_per_rollout)
    if lines:
        told = [[line.get(name) for name in ("score", "loss", "gradient_norm")] for line in lines]
        one.facts["curve"] = hashlib.sha256(repr(told).encode()).hexdigest()
        one.facts["first"] = repr(lines[0]["score"])
    protocol = _protocol(record)
    if protocol is None:
        one.note("training", "the windows of early and late score are not known: the protocol is not one of ours")
        windows: dict[str, tuple[int, int]] = {"early": (1, 1), "late": (1, 1)}
    else:
        windows = {"early": protocol.scoring.early, "late": protocol.scoring.late}
    found = training_summary(
        lines, **windows, reuse=stated.updates_per_rollout, curve=stated.curve, collapse=stated.collapse
    )
    unknown = {"early_score", "late_score"} if protocol is None else set()
    _compare(one, "training", found.model_dump(), stated.model_dump(), leave=unknown | {"curve"})
    if (record.status == "collapsed") != (stated.collapse is not None):
        one.error("training.collapse", f"{stated.collapse!r}, but the status is {record.status}")
    if protocol is not None:
        reason = collapse_reason(protocol.collapse, [x.get("loss") for x in lines], [x["score"] for x in lines])
        if reason and record.status == "done":
            one.error("status", f"done, but by the protocol's rule the run collapsed: {reason}")
        if reason is None and record.status == "collapsed":
            one.error("status", "collapsed, but the curve does not meet the protocol's rule")


def _check_lines(one: _Checked, lines: Sequence[Mapping[str, Any]], reuse: int) -> None:
    """N updates for each rollout batch, all with its score, which no reward can lift above 1."""
    scores: dict[int, float] = {}
    for number, line in enumerate(lines, start=1):
        rollout = math.ceil(number / max(1, reuse))
        if line["rollout"] != rollout:
            one.error("training.curve", f"update {number} is of rollout {line['rollout']} instead of {rollout}")
            return
        if line["score"] != scores.setdefault(rollout, line["score"]):
            one.error("training.curve", f"update {number} has another score than rollout {rollout} had before")
            return
        if line["score"] > 1:
            one.error("training.curve", f"update {number} has the score {line['score']}, above 1")
            return


def _check_task(one: _Checked, record: Record, task: str, stated: TaskResult, folder: Path, regrade: bool) -> None:
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
    _compare(one, name, found.model_dump(), stated.model_dump(), leave={"samples"})
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


def _check_frame(one: _Checked, record: Record, task: str, stated: TaskResult, path: Path, shown: str) -> bool:
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
            one.error(name, f"the file is of {what} {_short(here)}, the record of {_short(there)}", shown)
    return True


def _check_golds(one: _Checked, record: Record, task: str, golds: Sequence[Sequence[str]], shown: str) -> None:
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


def _check_sample_seeds(one: _Checked, record: Record, task: str, samples: DataFrame, shown: str) -> None:
    seed = record.seeds.evaluation
    for row, (problem, sample, used) in enumerate(
        zip(samples["problem_id"], samples["sample"], samples["seed"], strict=True)
    ):
        if used != request_seed(seed, task, problem, int(sample)):
            one.error(f"evaluation.{task}.samples", f"row {row}: seed {used} does not follow from {seed}", shown)
            return


def _to_judge(task: str, samples: DataFrame, shown: str, *, every: bool) -> list[_Judged]:
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
        _Judged(task, row, GradeRequest(gold, response, task, finish == "stop"), published, audited, shown)
        for row, gold, response, finish, published, audited in zip(
            rows, *(chosen[column] for column in columns), strict=True
        )
    ]


def _judge_again(checked: Sequence[_Checked], progress: Callable[[int, int], None] | None) -> None:
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


def _compare(
    one: _Checked, name: str, found: Mapping[str, Any], stated: Mapping[str, Any], leave: Iterable[str] = ()
) -> None:
    """Report every leaf that differs; floats may differ by rounding."""
    for key in found:
        if key in leave:
            continue
        here, there, place = found[key], stated.get(key), f"{name}.{key}"
        if isinstance(here, dict) and isinstance(there, dict):
            _compare(one, place, here, there)
        elif isinstance(here, float) and isinstance(there, int | float):
            if not math.isclose(here, there, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
                one.error(place, f"{there!r} is recorded, {here!r} follows from the stored file")
        elif here != there:
            one.error(place, f"{_short(there)} is recorded, {_short(here)} follows from the stored file")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _protocol(record: Record) -> Protocol | None:
    """The protocol of the package that the record says it followed, if it is still the same."""
    if record.protocol.id not in available():
        return None
    protocol = load_protocol(record.protocol.id)
    return protocol if protocol.digest == record.protocol.digest else None


def _check_claims(one: _Checked, record: Record) -> None:
    """What a record says of itself: protocol, division, seeds, method, provenance, status."""
    if record.division == "open" and not record.deviations:
        one.error("deviations", "a record of the open division must say how it deviates")
    if record.division == "closed":
        _check_closed(one, record)
    _check_shape(one, record)
    for name, message in plausibility.contradictions(record):
        one.error(name, message)
    for name, message in plausibility.from_the_future(record):
        one.note(name, message)
    _check_subsets(one, record)
    _check_times(one, record)
    if record.provenance.dirty and record.provenance.diff_sha256 is None:
        one.error("provenance.diff_sha256", "a dirty tree needs the digest of its difference")
    if record.evaluation and MATH_VERIFY not in record.provenance.packages:
        one.error(f"provenance.packages.{MATH_VERIFY}", "the version of the grader is missing")


def _check_shape(one: _Checked, record: Record) -> None:
    trained = record.kind == "trained"
    for name, value in (("method", record.method), ("reuse", record.reuse)):
        if trained and value is None:
            one.error(name, "a trained record needs it")
        if record.kind == "base" and value is not None:
            one.error(name, "a base model has none")
    if record.kind == "base" and record.training is not None:
        one.error("training", "a base model has none")
    if record.status == "failed" and not record.failure:
        one.error("failure", "a failed record needs the reason")
    if record.status != "failed" and record.failure:
        one.error("failure", f"stated, but the status is {record.status}")
    if record.status == "done" and not record.evaluation:
        one.error("evaluation", "a record that is done needs it")
    for task, result in record.evaluation.items():
        if result.task != task:
            one.error(f"evaluation.{task}.task", f"{result.task!r} instead of {task!r}")
    if trained and record.training and record.checkpoint and record.checkpoint.update != record.training.updates:
        one.error(
            "checkpoint.update", f"{record.checkpoint.update}, but training made {record.training.updates} updates"
        )
    if trained and record.status == "done" and record.checkpoint is None:
        one.error("checkpoint", "a record that is done needs it")
    rows = {data.name: data.rows for data in record.data if data.role == "evaluation"}
    for task, result in record.evaluation.items():
        if task in rows and rows[task] != result.problems:
            one.error(f"evaluation.{task}.problems", f"{result.problems}, but the data set has {rows[task]} rows")


def _check_subsets(one: _Checked, record: Record) -> None:
    """A task that asks a part of a set must have asked the part that its name says, where the set is at hand."""
    for task in sorted(set(record.evaluation) & set(datasets.subsets())):
        part = datasets.subsets()[task]
        try:
            asked = datasets.evaluation_problems(task)
        except UserError:
            one.note(f"evaluation.{task}.problem_ids", f"not compared with {part.of}, which is not in the data folder")
            continue
        if record.evaluation[task].problem_ids != [problem.id for problem in asked.problems]:
            one.error(f"evaluation.{task}.problem_ids", f"are not the first {part.problems} of {part.of} by id")
        if any(data.digest != asked.digest for data in record.data if data.name == task):
            one.error(f"data.{task}.digest", f"is not that of the first {part.problems} of {part.of} by id")


def _check_times(one: _Checked, record: Record) -> None:
    from datetime import datetime

    moments = [("provenance.started", record.provenance.started), ("provenance.ended", record.provenance.ended)]
    for number, attempt in enumerate(record.attempts):
        moments.append((f"attempts.{number}.started", attempt.started))
        if attempt.ended is not None:
            moments.append((f"attempts.{number}.ended", attempt.ended))
    parsed = {}
    for name, text in moments:
        try:
            parsed[name] = datetime.fromisoformat(text)
        except ValueError:
            one.error(name, f"{text!r} is no ISO 8601 time")
            continue
        if parsed[name].tzinfo is None:
            one.error(name, f"{text!r} has no time zone")
            del parsed[name]
    for name, moment in parsed.items():
        start = name.removesuffix("ended") + "started"
        if name.endswith("ended") and start in parsed and moment < parsed[start]:
            one.error(name, "is before the start")


def _check_closed(one: _Checked, record: Record) -> None:
    """The closed division: exactly the protocol, from committed code with a known lock."""
    if record.deviations:
        one.error("deviations", "the closed division allows none")
    source = record.provenance
    if source.commit is None:
        one.error("provenance.commit", "the closed division needs the commit of the code")
    if source.dirty is not False:
        one.error("provenance.dirty", "the closed division needs a clean tree")
    if source.lock_sha256 is None:
        one.error("provenance.lock_sha256", "the closed division needs the lock that was installed")
    if source.diff_sha256 is not None:
        one.error("provenance.diff_sha256", "a clean tree has no difference")
    _check_history(one, record)
    if record.protocol.id not in available():
        one.error("protocol.id", f"{record.protocol.id!r} is no protocol of this package")
        return
    protocol = load_protocol(record.protocol.id)
    if record.protocol.version != protocol.version:
        one.error("protocol.version", f"{record.protocol.version}, and the package has version {protocol.version}")
    if record.protocol.digest != protocol.digest:
        one.error("protocol.digest", "the protocol has changed since, or the run did not follow it")
        return
    _check_against_protocol(one, record, protocol)
    _check_data(one, record)


def _check_data(one: _Checked, record: Record) -> None:
    """The digests that a record states for its data against those of the manifest, and of what is generated."""
    for ref in record.data:
        if ref.name in chain.TINY_TASKS:
            known: str | None = datasets.evaluation_problems(ref.name).digest
        else:
            known = datasets.manifest()[ref.name].digest if ref.name in datasets.manifest() else None
        if known is not None and ref.digest != known and ref.role == "evaluation":
            one.error(f"data.{ref.name}.digest", "is not that of the set")
    for task in record.evaluation:
        if task not in {ref.name for ref in record.data if ref.role == "evaluation"}:
            one.error(f"data.{task}", "the set of an evaluated task is missing")


def _check_against_protocol(one: _Checked, record: Record, protocol: Protocol) -> None:
    models = {model.name: model for model in protocol.models}
    if record.model.name not in models:
        one.error("model.name", f"{record.model.name!r} is none of {', '.join(models)}")
    else:
        asked = models[record.model.name]
        if record.model.source != asked.source and not Path(record.model.source).is_absolute():
            one.error("model.source", f"{record.model.source!r} instead of {asked.source!r}")
        if asked.revision is not None and record.model.revision != asked.revision:
            one.error("model.revision", f"{record.model.revision!r} instead of {asked.revision!r}")
    if record.kind == "trained" and record.method is not None and record.reuse is not None:
        known = protocol.methods.hyperparameters
        name = record.method.name
        stated = known.get(name, _defaults(name))
        if stated is None:
            one.note("method.hyperparameters", f"method {name} is not installed here: its defaults were not compared")
        elif record.method.hyperparameters != stated:
            whose = "the protocol" if name in known else "the method's card"
            one.error("method.hyperparameters", f"are not those of {whose}")
        if record.reuse not in protocol.reuse.ratios:
            one.error("reuse", f"{record.reuse} is none of {', '.join(map(str, protocol.reuse.ratios))}")
        if record.status == "done" and record.training and record.training.updates != protocol.update.updates:
            one.error("training.updates", f"{record.training.updates} instead of {protocol.update.updates}")
    expected = Cell(record.protocol.id, record.model.name, record.reuse or 0, "", record.seeds.run).seeds
    _compare(one, "seeds", expected.model_dump(), record.seeds.model_dump())
    evaluation = protocol.evaluation
    if record.status == "done":
        for task in sorted(set(evaluation.tasks) - set(record.evaluation)):
            one.error(f"evaluation.{task}", "the task is missing")
    for task, result in record.evaluation.items():
        if task not in evaluation.tasks:
            one.error(f"evaluation.{task}", "the protocol has no such task")
            continue
        spec = evaluation.tasks[task]
        if result.problems != spec.problems:
            one.error(f"evaluation.{task}.problems", f"{result.problems} instead of {spec.problems}")
        expected_sampling = {
            "temperature": evaluation.temperature,
            "top_p": evaluation.top_p,
            "max_tokens": evaluation.max_tokens,
            "samples_per_problem": spec.samples,
        }
        for key, value in expected_sampling.items():
            here = getattr(result.sampling, key)
            if here != value:
                one.error(f"evaluation.{task}.sampling.{key}", f"{here} instead of {value}")


def _defaults(name: str) -> dict[str, Any] | None:
    """The hyperparameters of a method that a protocol does not list; None where the method is not known."""
    try:
        return dict(methods.create(name).hyperparameters)
    except ValueError:
        return None


def _check_history(one: _Checked, record: Record) -> None:
    """Lock and method source against the commit that the record names, where this checkout has it."""
    commit = record.provenance.commit
    if commit is None:
        return
    locks = _locks_at(commit)
    if locks is None:
        one.note("provenance.commit", f"{commit[:12]} is not in this checkout: lock and source were not compared")
        return
    if record.provenance.lock_sha256 is not None and record.provenance.lock_sha256 not in locks:
        one.error("provenance.lock_sha256", f"is the digest of no lock file at commit {commit[:12]}")
    elif record.provenance.lock_sha256 is not None:
        for line in provenance.unlike_lock(record.provenance.packages, locks[record.provenance.lock_sha256]):
            one.error("provenance.packages", f"not those of the lock: {line}")
    if record.method is None or record.method.origin != "built-in":
        return
    source = _source_at(commit, record.method.name)
    if source is None:
        one.note("method.source_sha256", f"method {record.method.name} is not known here: its source was not compared")
    elif source != record.method.source_sha256:
        one.error("method.source_sha256", f"is not that of {record.method.name} at commit {commit[:12]}")


@cache
def _locks_at(commit: str) -> Mapping[str, list[bytes]] | None:
    """Digest -> contents of the lock files at a commit; None where the commit is not here."""
    if provenance.file_at(commit, "pyproject.toml") is None:
        return None
    found = {}
    for paths in provenance.LOCKS.values():
        contents = [provenance.file_at(commit, path.as_posix()) for path in paths]
        digest = provenance.joint_digest(contents)
        if digest is not None:
            found[digest] = [content for content in contents if content is not None]
    return found


@cache
def _source_at(commit: str, name: str) -> str | None:
    """What `methods.registry.source_digest` gave at a commit for a built-in method; None where it is not known."""
    try:
        modules = source_modules(name)
    except UserError:
        return None
    digest = hashlib.sha256()
    for module in modules:
        content = provenance.file_at(commit, module.replace(".", "/") + ".py")
        if content is None:
            return None
        digest.update(f"{module} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def source_modules(name: str) -> list[str]:
    """The modules whose source makes up a method, in the order of `methods.registry.source_digest`."""
    from methods.contract import Method

    return list(dict.fromkeys(base.__module__ for base in methods.get(name).__mro__ if issubclass(base, Method)))


def _across(checked: Sequence[_Checked]) -> list[Finding]:
    """What only shows between records: copies, shared seeds, and one task with different problems."""
    findings = []
    first_with: dict[tuple[str, ...], str] = {}
    for one in checked:
        record = one.record
        if record is None:
            continue
        cell = record.relative_path().parent.as_posix()
        keys: list[tuple[str, ...]] = [
            ("seeds.run", cell, str(record.seeds.run)),
            ("seeds.evaluation", cell, str(record.seeds.evaluation)),
        ]
        if record.kind == "trained":
            keys += [
                ("seeds.training", cell, str(record.seeds.training)),
                ("seeds.rollout", cell, str(record.seeds.rollout)),
            ]
        if record.checkpoint is not None:
            keys.append(("checkpoint.digest", record.checkpoint.digest))
        # By content: the same rows can be written into files that differ.
        if "curve" in one.facts:
            keys.append(("training.curve", one.facts["curve"]))
        # Two models that never answer can write the same responses; two that are right somewhere cannot.
        keys += [
            (f"evaluation.{task}.samples", record.protocol.id, one.facts[f"responses {task}"])
            for task, result in record.evaluation.items()
            if result.scores["published"].right and f"responses {task}" in one.facts
        ]
        for key in keys:
            other = first_with.setdefault(key, one.path)
            if other != one.path:
                findings.append(Finding(one.path, key[0], f"is the same as in {other}"))
    reference: dict[tuple[str, ...], tuple[str, str]] = {}
    first_scores: dict[tuple[Any, ...], tuple[str, str]] = {}
    for one in checked:
        if one.record is None:
            continue
        findings += _first_rollout(one, first_scores)
        model = one.record.model
        weights = ("model", model.name, model.source, model.revision or "")
        other, expected = reference.setdefault(weights, (one.path, model.digest))
        if model.digest != expected:
            findings.append(Finding(one.path, "model.digest", f"other weights than in {other}", "note"))
        for task, result in one.record.evaluation.items():
            golds = one.facts.get(f"golds {task}", "")
            for what, value in (("prompts_digest", result.prompts_digest), ("samples", golds)):
                place = (one.record.protocol.digest, one.record.model.name, task, what)
                other, expected = reference.setdefault(place, (one.path, value))
                if value != expected and value and expected:
                    named = "prompts" if what == "prompts_digest" else "golds"
                    findings.append(Finding(one.path, f"evaluation.{task}.{what}", f"other {named} than in {other}"))
    return findings + _gaps(checked)


def _first_rollout(one: _Checked, known: dict[tuple[Any, ...], tuple[str, str]]) -> list[Finding]:
    """Runs of one seed start from the same rollout batch, whatever their method: their first scores agree.

    Asked of runs on one kind of machine without GPUs, with the same packages and threads, where that is exact.
    """
    record = one.record
    if record is None or record.training is None or record.provenance.hardware.get("gpus") or "first" not in one.facts:
        return []
    source = record.provenance
    steering = {name: value for name, value in source.environment.items() if name.startswith(STEERING)}
    machine = canonical_json([source.hardware, source.lock_sha256, source.platform, steering])
    key = (record.protocol.digest, record.model.digest, record.reuse, record.seeds.rollout, machine)
    other, score = known.setdefault(key, (one.path, one.facts["first"]))
    if score == one.facts["first"]:
        return []
    message = f"the first rollout batch scores {one.facts['first']}, and {score} in {other}, with the same seed"
    return [Finding(one.path, "training.curve", message)]


def _gaps(checked: Sequence[_Checked]) -> list[Finding]:
    """Cells with a seed that is missing below their highest: perhaps not yet run, perhaps left out."""
    cells: dict[str, dict[int, str]] = {}
    for one in checked:
        if one.record is not None and one.record.kind == "trained":
            cell = one.record.relative_path().parent.as_posix()
            cells.setdefault(cell, {})[one.record.seeds.run] = one.path
    findings = []
    for cell, seeds in cells.items():
        # Never the whole range: a record may state any number.
        missing = next(seed for seed in range(len(seeds) + 1) if seed not in seeds)
        if missing < max(seeds):
            message = f"there is no record of seed {missing} in {cell}: a cell shows all of its runs"
            findings.append(Finding(seeds[max(seeds)], "seeds.run", message, "note"))
    return findings


def _strangers(path: Path, store: Path, checked: Sequence[_Checked]) -> list[Finding]:
    """Files under ``path`` that belong to no record."""
    known = tuple(one.path.removesuffix(".json") + "/" for one in checked)
    records = {one.path for one in checked}
    findings = []
    for file in sorted(path.rglob("*")):
        if file.is_dir() and not file.is_symlink():
            continue
        name = file.absolute().relative_to(store.absolute()).as_posix()
        documents = {"README.md", ".gitattributes"}
        if name not in records and not name.startswith(known) and file.name not in documents:
            findings.append(Finding(name, "", "belongs to no record"))
    return findings


class _Memory:
    """What was recomputed and found right, by digest of the record and of the code that checked it."""

    LIMIT = 100_000

    def __init__(self, folder: Path | None) -> None:
        self.path = folder / "verified.json" if folder else None
        self.known: dict[str, dict[str, str]] = {}
        self.changed = False
        if self.path and self.path.is_file():
            try:
                document = json.loads(self.path.read_bytes())
                self.known = document if isinstance(document, dict) else {}
            except (OSError, ValueError):
                self.known = {}

    def key(self, content: bytes, regrade: bool) -> str:
        return hashlib.sha256(f"{_code_digest()} {regrade} ".encode() + content).hexdigest()

    def __contains__(self, key: str) -> bool:
        return key in self.known

    def recall(self, key: str) -> dict[str, str]:
        return dict(self.known[key])

    def remember(self, key: str, facts: dict[str, str]) -> None:
        self.known[key] = facts
        self.changed = True

    def save(self) -> None:
        if self.path and self.changed:
            recent = dict(list(self.known.items())[-self.LIMIT :])
            with suppress(OSError):  # a folder that cannot be written costs time at the next call, and no verdict
                write_atomically(self.path, canonical_json(recent))


@cache
def _code_digest() -> str:
    """Digest of the code and protocols that a verdict depends on: another version checks again."""
    root = Path(__file__).parent
    files = [
        Path(__file__),
        root / "plausibility.py",
        root / "scoring.py",
        root / "curves.py",
        root / "records.py",
        root / "evaluation.py",
    ]
    files += [Path(chain.__file__), *sorted((root / "protocols").glob("*.yaml"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
