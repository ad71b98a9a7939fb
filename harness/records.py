"""The record of a cell: one JSON document that says what was run and what came out, and the store that holds them.

A record is canonical JSON (sorted keys, UTF-8, one line feed at the end). Its ``id`` is the SHA-256 of the document
without the ``id`` itself. Scores are never typed in: they are computed from the stored samples (`harness.scoring`).

Layout of a store, friendly to git::

    results/<protocol>/<model>/n<N>/<method>/seed<k>.json      the record
    results/<protocol>/<model>/n<N>/<method>/seed<k>/          what it points to, by digest
        updates.jsonl                                          one line per policy update
        samples/<task>.parquet                                 one row per sample
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from methods.errors import UserError

SCHEMA_VERSION: Literal[1] = 1

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Division = Literal["closed", "open"]
Status = Literal["done", "collapsed", "failed"]
Verdict = Literal["right", "wrong", "error"]
GRADERS = ("published", "audited")


class _Part(BaseModel):
    """Strict and frozen: an unknown field is an error, and no number is silently NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ProtocolRef(_Part):
    """The protocol that the run followed."""

    id: str
    version: int
    digest: Sha256


class MethodRef(_Part):
    """The loss that trained the policy. ``source_sha256`` was reported by the training worker itself."""

    name: str
    title: str
    version: str
    source_sha256: Sha256
    origin: str = Field(description="'built-in', or the distribution and version that brought the plugin")
    hyperparameters: dict[str, float | int | str | bool | None]


class ModelRef(_Part):
    """The base model. ``digest`` is over the names and contents of its weight and tokenizer files."""

    name: str
    source: str
    revision: str | None
    digest: Sha256


class DataRef(_Part):
    """A data set that took part in the run."""

    name: str
    role: Literal["train", "evaluation"]
    source: str
    rows: int
    digest: Sha256


class FileRef(_Part):
    """A file beside the record, relative to the record's folder, and never outside it."""

    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$")]
    sha256: Sha256
    bytes: int


class Seeds(_Part):
    """Every seed of the run."""

    run: int
    training: int
    rollout: int
    evaluation: int


class Sampling(_Part):
    """How responses were drawn for evaluation."""

    temperature: float
    top_p: float
    max_tokens: int
    samples_per_problem: int


class TaskScore(_Part):
    """pass@1 under one grader, in [0, 1]: mean over samples, then over problems."""

    pass_at_1: float
    right: int
    wrong: int
    errors: int


class TaskResult(_Part):
    """One held-out task. ``right_per_problem`` lists problems in the order of ``problem_ids``, by grader."""

    task: str
    problems: int
    sampling: Sampling
    prompts_digest: Sha256
    scores: dict[Literal["published", "audited"], TaskScore]
    problem_ids: list[str]
    right_per_problem: dict[Literal["published", "audited"], list[int]]
    truncated: int
    mean_response_tokens: float
    samples: FileRef

    @model_validator(mode="after")
    def _complete(self) -> TaskResult:
        """Both graders, and one possible count for each problem: what reads a record relies on it."""
        for name, by_grader in (("scores", self.scores), ("right_per_problem", self.right_per_problem)):
            if missing := [grader for grader in GRADERS if grader not in by_grader]:
                raise ValueError(f"{name} lacks the grader {missing[0]}")
        for grader, counts in self.right_per_problem.items():
            if not counts or len(counts) != len(self.problem_ids):
                raise ValueError(f"right_per_problem.{grader} counts {len(counts)} problems of {len(self.problem_ids)}")
            if any(not 0 <= count <= self.sampling.samples_per_problem for count in counts):
                raise ValueError(f"right_per_problem.{grader} has a count that the samples cannot give")
        return self


class TrainingSummary(_Part):
    """What `updates.jsonl` says, in short.

    Scores are mean rewards on the scale on which all wrong is 0 and all right is 1, so (mean reward + 1) / 2 with the
    paper's +1 and -1. They are at most 1, and below 0 only where a penalty for length is part of the reward.
    """

    updates: int
    rollouts: int
    updates_per_rollout: int
    response_tokens: int
    early_score: float | None
    late_score: float | None
    mean_score: float | None
    final_score: float | None
    curve: FileRef
    collapse: str | None = Field(default=None, description="why the run counts as collapsed, if it does")


class Checkpoint(_Part):
    """The evaluated checkpoint: always the last one, never the best."""

    update: int
    digest: Sha256


class Attempt(_Part):
    """One start of the cell: an interrupted run has more than one."""

    started: str
    ended: str | None
    first_update: int
    last_update: int
    outcome: Literal["completed", "interrupted", "failed", "collapsed"]
    reason: str | None = None


class Provenance(_Part):
    """What identifies the code and the machine."""

    reuse_bench_version: str
    commit: str | None
    dirty: bool | None
    diff_sha256: Sha256 | None
    lock_sha256: Sha256 | None
    packages: dict[str, str]
    python: str
    platform: str
    hardware: dict[str, str | int | float | list[str]]
    environment: dict[str, str]
    command: list[str]
    started: str
    ended: str


class Cost(_Part):
    """What the cell took. ``gpu_hours`` is 0 on a machine without GPUs."""

    gpu_hours: float
    training_seconds: float
    evaluation_seconds: float


class Record(_Part):
    """One cell: a base model, trained by one method at one reuse ratio with one seed, and evaluated.

    A base model's or an outside checkpoint's record has no ``training``; its method is None or as stated.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str = ""
    kind: Literal["trained", "base", "external"]
    status: Status
    division: Division
    deviations: list[str] = Field(description="how the run differs from the protocol; empty in the closed division")
    protocol: ProtocolRef
    model: ModelRef
    method: MethodRef | None
    reuse: int | None = Field(description="N: policy updates per rollout batch")
    seeds: Seeds
    data: list[DataRef]
    training: TrainingSummary | None
    checkpoint: Checkpoint | None
    evaluation: dict[str, TaskResult]
    attempts: list[Attempt]
    failure: str | None = None
    provenance: Provenance
    cost: Cost
    notes: dict[str, Any] = Field(default_factory=dict)
    field_digests: dict[str, Sha256] = Field(
        default_factory=dict, description="SHA-256 of each other field, so that a changed one can be named"
    )

    def content_id(self) -> str:
        """SHA-256 of the canonical document without its ``id``."""
        return content_id(self.model_dump(mode="json"))

    def digests_of_fields(self) -> dict[str, str]:
        """SHA-256 of the canonical JSON of each field, but for ``id`` and ``field_digests``."""
        document = self.model_dump(mode="json", exclude={"id", "field_digests"})
        return {name: hashlib.sha256(canonical_json(value)).hexdigest() for name, value in document.items()}

    def sealed(self) -> Record:
        """The same record with its ``field_digests`` and ``id`` filled in."""
        record = self.model_copy(update={"field_digests": self.digests_of_fields()})
        return record.model_copy(update={"id": record.content_id()})

    def relative_path(self) -> Path:
        """Where the record lies in a store; its files are in the folder of the same name without the ending."""
        method = self.method.name if self.method else "base"
        reuse = f"n{self.reuse}" if self.reuse is not None else "n0"
        return Path(self.protocol.id, self.model.name, reuse, method, f"seed{self.seeds.run}.json")


def canonical_json(document: Any) -> bytes:
    """The one byte sequence of a JSON document: sorted keys, no NaN, a final line feed."""
    text = json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def content_id(document: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical form of a record's document without its ``id``.

    It is taken of the document as it is in the file, so that a field that was added to the schema later, with a
    default, does not change the id of older records.
    """
    return hashlib.sha256(canonical_json({key: document[key] for key in document if key != "id"})).hexdigest()


def finite(value: float) -> float | None:
    """None for NaN and the infinities, which JSON cannot carry."""
    return value if math.isfinite(value) else None


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a record, as it lies in a store."""
    schema = Record.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:reuse-bench:record:{SCHEMA_VERSION}",
        **schema,
    }


def load_json(text: str | bytes) -> Any:
    """A JSON document that says the same to every reader, of numbers that each can hold.

    Raises:
        ValueError: no JSON, a field given twice, or a NaN, an infinity or an integer of more than 64 bits.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_int=_int64, parse_constant=_no_number, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return document


def _int64(digits: str) -> int:
    value = int(digits) if len(digits) < 20 else 2**63
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{digits[:12]}... has more than 64 bits")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def regular(path: Path) -> Path:
    """The same path, of a file that is to be opened: reading a pipe or a device may never end.

    A file that is not there is left for the reader to miss.

    Raises:
        UserError: it is something else than a regular file.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path}: this is no regular file: take it away, and give the same command again")
    return path


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary name beside ``path``, flush to disk, then rename: never a half-written file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process writes into the folder with this, and let none begin: temporary names can be fixed.

    What a process that was killed has left under them is then overwritten by the next.
    """
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def file_ref(path: Path, folder: Path) -> FileRef:
    """Digest and size of ``path``, named relative to ``folder``."""
    data = path.read_bytes()
    return FileRef(path=path.relative_to(folder).as_posix(), sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def write_record(record: Record, store: Path) -> Path:
    """Seal the record and put it where the store keeps it. Its files must already lie in its folder."""
    path = store / record.relative_path()
    write_atomically(path, canonical_json(record.sealed().model_dump(mode="json")))
    return path


def read_record(path: Path) -> Record:
    """Read and validate one record.

    Raises:
        UserError: the file is no JSON, breaks the schema, or its id is not the digest of its content.
    """
    try:
        document = load_json(regular(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: the record cannot be read as JSON ({error}): restore it, or delete it and run the cell again"
        ) from error
    return parse_record(document, path)


def parse_record(document: Any, path: Path) -> Record:
    """Validate the JSON document found at ``path``; one of an older schema is brought up to date.

    Raises:
        UserError: as `read_record`.
    """
    from harness.migrations import upgrade

    try:
        document = upgrade(document, path)
        record = Record.model_validate(document)
        found = content_id(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise UserError(
            f"{path}: field {where}: {first['msg']}; the record is damaged or of another version: "
            "restore it, or delete it and run the cell again"
        ) from error
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: the record is no document that JSON can carry ({error}): restore it, or delete it and run the "
            "cell again"
        ) from error
    if found != record.id:
        raise UserError(
            f"{path}: field id: the content does not have the digest {record.id[:12] or '(empty)'}; the record was "
            "changed after it was written: restore it, or delete it and run the cell again"
        )
    return record


def iter_records(store: Path) -> Iterator[tuple[Path, Record]]:
    """All records of a store, in the order of their paths."""
    for path in sorted(store.glob("*/*/n*/*/seed*.json")):
        yield path, read_record(path)


def record_folder(path: Path) -> Path:
    """The folder that holds the files of the record at ``path``."""
    return path.with_suffix("")
