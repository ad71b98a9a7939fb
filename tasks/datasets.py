"""The problem sets: what each is, where it comes from, and how a copy is known to be the right one.

``manifest.yaml`` describes every set. A copy is one JSON-lines file ``<name>.jsonl`` in the data folder, with
``problem`` and ``answer`` on each line. Its digest is over the sorted list of (normalised problem, normalised answer),
so that it does not depend on file format, order of rows, white space or on how an integer is written. For the same
reason a problem's id is made from its text and problems are sorted by it: two copies give the same ids, order and
seeds. Every load verifies count and digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml

from methods.errors import UserError
from tasks import chain

DATA_VARIABLE = "REUSE_BENCH_DATA"
CACHE_VARIABLE = "REUSE_BENCH_CACHE"
BENCHMARKS = ("aime25", "aime24", "amc23", "olympiadbench", "minerva_math", "math500")
"""The six held-out sets, in the order of the published tables."""

Role = Literal["train", "evaluation"]


def hub_endpoint() -> str:
    """Address of the Hugging Face hub, or of the mirror that ``HF_ENDPOINT`` names."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


@dataclass(frozen=True)
class Hub:
    """Where a set is on the Hugging Face hub: parquet files of one configuration and split."""

    repository: str
    config: str
    split: str
    fields: Mapping[str, str]
    answer: str = "plain"

    def url(self, shard: int) -> str:
        """Address of one parquet file on the branch of automatic conversions, whose file names are uniform."""
        return (
            f"{hub_endpoint()}/datasets/{self.repository}/resolve/refs%2Fconvert%2Fparquet"
            f"/{self.config}/{self.split}/{shard:04d}.parquet"
        )


@dataclass(frozen=True)
class SetEntry:
    """One entry of the manifest.

    Attributes:
        rows: number of problems, None where nobody could count a copy yet.
        digest: what `digest` gives for the right content, None where nobody could compute it yet: then the first
            fetch pins it, in the file beside the data.
        integers: answers are integers, however they are written.
        omit: ids of problems that some copies carry and this set does not.
        unanswerable: ids of problems that refer to an answer that is not given.
        pinned: how the content is pinned, in words.
        checked: how the entry was checked, in words.
    """

    name: str
    title: str
    role: Role
    hub: Hub
    rows: int | None
    digest: str | None
    pinned: str
    checked: str
    licence: str
    integers: bool = False
    omit: frozenset[str] = frozenset()
    unanswerable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Problem:
    """One problem. ``extra`` holds what the source adds (its own id too), unread by anything that scores."""

    id: str
    problem: str
    answer: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProblemSet:
    """A verified set. ``deviates`` is true when its content is not the manifest's but was accepted by hand."""

    name: str
    source: str
    digest: str
    problems: tuple[Problem, ...]
    deviates: bool = False


@dataclass(frozen=True)
class Subset:
    """A task that asks the first ``problems`` of the set ``of``, in the order of their ids."""

    of: str
    problems: int


@cache
def _document() -> Mapping[str, Any]:
    document: Mapping[str, Any] = yaml.safe_load(files("tasks").joinpath("manifest.yaml").read_text(encoding="utf-8"))
    return document


@cache
def subsets() -> Mapping[str, Subset]:
    """The tasks that ask a part of a set, by name, in the order of the manifest."""
    return {name: Subset(**body) for name, body in _document()["subsets"].items()}


@cache
def manifest() -> Mapping[str, SetEntry]:
    """All entries of the manifest by name, in its order."""
    entries: dict[str, SetEntry] = {}
    for name, body in _document()["sets"].items():
        body = dict(body)
        for key in ("omit", "unanswerable"):
            body[key] = frozenset(body.get(key, ()))
        entries[name] = SetEntry(name=name, hub=Hub(**body.pop("hub")), **body)
    return entries


def entry(name: str) -> SetEntry:
    """The manifest's entry of that name.

    Raises:
        UserError: there is none.
    """
    try:
        return manifest()[name]
    except KeyError:
        known = ", ".join(manifest())
        raise UserError(f"unknown data set {name!r}: known are {known}") from None


def cache_dir() -> Path:
    """Where everything fetched or made lies: ``REUSE_BENCH_CACHE``, or the user's cache folder.

    Raises:
        UserError: neither is named, and the user has no home.
    """
    if root := os.environ.get(CACHE_VARIABLE):
        return Path(root)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reuse-bench"
    except RuntimeError:
        raise UserError(f"this user has no home folder for a cache: name a folder in {CACHE_VARIABLE}") from None


def data_dir(given: Path | None = None) -> Path:
    """The data folder: the given one, else ``REUSE_BENCH_DATA``, else the cache."""
    if given is not None:
        return given
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named)
    return cache_dir() / "data"


def normalise_problem(text: str) -> str:
    """The text with Unicode composed and every run of white space as one space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


_DEGREES = re.compile(r"\s*\^\s*(\{\s*\\circ\s*\}|\\circ)$")


def normalise_answer(text: str, *, integers: bool = False) -> str:
    """The answer without dollar signs and white space; an integer without leading zeros, ``.0`` or a degree sign."""
    bare = "".join(unicodedata.normalize("NFC", text).replace("$", "").split())
    if integers:
        bare = re.sub(r"\.0*$", "", _DEGREES.sub("", bare))
        if re.fullmatch(r"[+-]?\d{1,1000}", bare):  # Python reads no integer of more than some thousand digits
            return str(int(bare))
    return bare


def digest(problems: Iterable[Problem], *, integers: bool = False) -> str:
    """SHA-256 over the sorted list of (normalised problem, normalised answer)."""
    pairs = sorted(
        (normalise_problem(one.problem), normalise_answer(one.answer, integers=integers)) for one in problems
    )
    return hashlib.sha256(json.dumps(pairs, ensure_ascii=False).encode()).hexdigest()


def problem_id(name: str, problem: str) -> str:
    """The id of a problem of set ``name``: the same in every copy."""
    return f"{name}-{hashlib.sha256(normalise_problem(problem).encode()).hexdigest()[:10]}"


def read_problems(path: Path, name: str) -> list[Problem]:
    """The problems of a JSON-lines file, sorted by id.

    Lines whose answer is null are left out, as nothing can be judged by them; a problem that occurs again gets a
    numbered id.

    Raises:
        UserError: a line is no JSON object or lacks a field; named by file and line.
    """
    found: list[Problem] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}: line {number} is no JSON ({error}): fetch or import the set again") from None
            if not isinstance(row, dict):
                raise UserError(f"{path}: line {number} is no JSON object: fetch or import the set again")
            for key, kinds in (("problem", str), ("answer", str | int | float | None)):
                if key not in row or not isinstance(row[key], kinds):
                    raise UserError(f"{path}: line {number}: field {key} is missing or no text: mend that line")
                if not is_unicode(str(row[key])):
                    raise UserError(f"{path}: line {number}: field {key} holds half a character: mend that line")
            if row["answer"] is not None:
                extra = {key: value for key, value in row.items() if key not in ("problem", "answer")}
                found.append(Problem(problem_id(name, row["problem"]), row["problem"], str(row["answer"]), extra))
    return _numbered(sorted(found, key=lambda one: (one.id, one.answer)))


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold it: JSON can bring one half of a surrogate pair, which is no character."""
    return not re.search("[\ud800-\udfff]", text)


def _numbered(problems: list[Problem]) -> list[Problem]:
    times: Counter[str] = Counter()
    result = []
    for one in problems:
        times[one.id] += 1
        result.append(one if times[one.id] == 1 else replace(one, id=f"{one.id}-{times[one.id]}"))
    return result


def describe_file(path: Path) -> Path:
    """The file beside ``<name>.jsonl`` that says where the copy came from; it is written last."""
    return path.with_suffix(".origin.json")


def read_origin(path: Path) -> dict[str, Any]:
    """What is known about the copy at ``path``: empty for a file that a person put there."""
    try:
        origin = json.loads(describe_file(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        origin = None
    if not isinstance(origin, dict):
        raise UserError(f"{describe_file(path)}: no JSON object: delete it and fetch or import the set again")
    return origin


def load(name: str, folder: Path | None = None) -> ProblemSet:
    """A set of the manifest from the data folder, verified.

    Raises:
        UserError: the set is unknown, its file is missing or damaged, or count or digest are not the expected ones.
    """
    described = entry(name)
    path = data_dir(folder) / f"{name}.jsonl"
    if not path.exists():
        raise UserError(
            f"data set {name} is not in {path.parent}: get it with `reuse-bench data fetch {name}`, or take a local "
            f"copy with `reuse-bench data import FILE --as {name}`"
        )
    origin = read_origin(path)
    problems = tuple(one for one in read_problems(path, name) if one.id not in described.omit)
    found = digest(problems, integers=described.integers)
    accepted = origin.get("accepted")
    expected = described.digest or origin.get("digest")
    right = is_expected(described, found, len(problems), expected)
    if not right and found != accepted:
        raise UserError(refusal(described, found, len(problems), str(path), expected))
    source = str(origin.get("source") or f"local copy of {described.hub.repository}")
    return ProblemSet(name, source, found, problems, deviates=not right)


def is_expected(described: SetEntry, found: str, count: int, expected: str | None) -> bool:
    """Whether a copy of that digest and count is the right one; the count decides where no digest is known."""
    if described.digest is None and described.rows not in (None, count):
        return False
    return expected in (None, found)


def refusal(described: SetEntry, found: str, count: int, where: str, expected: str | None) -> str:
    """The sentence that refuses a copy whose content is not the manifest's."""
    rows = f", {count} problems instead of {described.rows}" if described.rows not in (None, count) else ""
    return (
        f"{where}: digest {found[:12]} is not {(expected or 'unknown')[:12]}, that of {described.name}{rows}: fetch or "
        f"import the right copy, or accept this one for the open division with "
        f"`reuse-bench data import FILE --as {described.name} --accept {found[:12]}`"
    )


def evaluation_tasks() -> tuple[str, ...]:
    """Every held-out task: the sets, parts of them, and the generated ones."""
    sets = (name for name, one in manifest().items() if one.role == "evaluation")
    return (*sets, *subsets(), *chain.TINY_TASKS)


def set_of(task: str) -> str:
    """The set of the manifest from which a task's problems come; a generated task has none, and is named itself."""
    return subsets()[task].of if task in subsets() else task


def evaluation_problems(task: str, folder: Path | None = None) -> ProblemSet:
    """The problems of a held-out task, from the data folder or generated.

    Raises:
        UserError: the task is unknown, or its data are missing or wrong.
    """
    if task in chain.TINY_TASKS:
        problems = tuple(Problem(one["id"], one["problem"], one["answer"]) for one in chain.held_out_problems(task))
        return ProblemSet(task, "generated by tasks.chain", digest(problems), problems)
    if task not in evaluation_tasks():
        raise UserError(f"unknown task {task!r}: known are {', '.join(evaluation_tasks())}")
    whole = load(set_of(task), folder)
    if task not in subsets():
        return whole
    part = whole.problems[: subsets()[task].problems]
    integers = entry(whole.name).integers
    source = f"{whole.source}: the first {len(part)} of {len(whole.problems)} problems by id"
    return ProblemSet(task, source, digest(part, integers=integers), part, deviates=whole.deviates)


def training_problems(name: str, folder: Path | None = None) -> list[dict[str, str]]:
    """The problems of a training set, each with ``id``, ``problem`` and ``answer``, in an order that no copy changes.

    Raises:
        UserError: the set is unknown or held out, or its data are missing or wrong.
    """
    if entry(name).role != "train":
        raise UserError(f"data set {name} is held out and no training set: choose {', '.join(_training_sets())}")
    return [{"id": one.id, "problem": one.problem, "answer": one.answer} for one in load(name, folder).problems]


def _training_sets() -> list[str]:
    return [name for name, one in manifest().items() if one.role == "train"]
