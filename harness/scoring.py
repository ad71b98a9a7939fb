"""Scores from stored samples: the only way in which a score comes about.

A sample file is parquet with `COLUMNS`, sorted by problem and sample. Reading one checks it, so that a damaged or
edited file is refused by name, column and row.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.records import GRADERS, FileRef, Sampling, TaskResult, TaskScore, canonical_json, regular, write_atomically
from methods.errors import UserError
from tasks.datasets import manifest

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = {
    "problem_id": "string",
    "sample": "int32",
    "seed": "int64",
    "prompt_sha256": "string",
    "gold": "string",
    "response": "string",
    "finish_reason": "string",
    "response_tokens": "int32",
    "extracted": "string",
    "published": "string",
    "audited": "string",
    "reason": "string",
}
"""Columns of a sample file and their arrow types. ``extracted`` and ``reason`` may be null."""

PROMPT_COLUMN = "prompt"
"""Only in the run's own copy: the prompt as the model saw it."""

NULLABLE = frozenset({"extracted", "reason"})
ALLOWED = {
    "finish_reason": frozenset({"stop", "length"}),
    "published": frozenset({"right", "wrong", "error"}),
    "audited": frozenset({"right", "wrong", "error"}),
}
_IDENTITY = b"reuse_bench"


def write_samples(samples: DataFrame, path: Path, identity: Mapping[str, Any] | None = None) -> None:
    """Write a sample file, in full or not at all; the same rows give the same bytes.

    Args:
        samples: one row a sample, with `COLUMNS` and perhaps `PROMPT_COLUMN`.
        path: where to.
        identity: what the samples are of; kept in the file (`read_identity`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = COLUMNS | ({PROMPT_COLUMN: "string"} if PROMPT_COLUMN in samples else {})
    schema = pa.schema(
        [pa.field(name, pa.type_for_alias(kind), nullable=name in NULLABLE) for name, kind in types.items()],
        metadata={_IDENTITY: canonical_json(dict(identity or {}))},
    )
    table = pa.Table.from_pandas(samples[list(types)], schema=schema, preserve_index=False)
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(schema.metadata), sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


def read_identity(path: Path) -> dict[str, Any]:
    """What `write_samples` was told about the file.

    Raises:
        UserError: the file cannot be read or does not say.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(regular(path)).metadata or {}
        identity = json.loads(metadata[_IDENTITY])
        if not isinstance(identity, dict):
            raise ValueError
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, RecursionError) as error:
        raise _damaged(path, f"it says nothing about its origin ({type(error).__name__})") from error
    return identity


def unreadable() -> tuple[type[Exception], ...]:
    """What pyarrow raises for a damaged file: the last where damage looks like an encoding that it does not know."""
    import pyarrow as pa

    return OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError


def read_samples(path: Path) -> DataFrame:
    """The rows of a sample file, checked.

    Raises:
        UserError: the file is missing or no parquet, a column is missing or of another type, or a row has a value
            that cannot be: named by column and row (counted from 0).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(regular(path))
        table.validate(full=True)  # texts that are no UTF-8 are found here, and not where one is used
    except FileNotFoundError as error:
        raise UserError(f"{path}: the sample file is missing: restore it or evaluate again") from error
    except unreadable() as error:
        raise _damaged(path, f"it is no parquet file ({str(error).splitlines()[0][:80]})") from error
    for name, kind in COLUMNS.items():
        if name not in table.column_names:
            raise _damaged(path, f"column {name} is missing")
        found = table.schema.field(name).type
        if found != pa.type_for_alias(kind) and not (kind == "string" and pa.types.is_large_string(found)):
            raise _damaged(path, f"column {name} has type {found} instead of {kind}")
        if name not in NULLABLE and table[name].null_count:
            row = table[name].is_null().to_pylist().index(True)
            raise _damaged(path, f"column {name}, row {row} is empty")
    known = [name for name in (*COLUMNS, PROMPT_COLUMN) if table.column_names.count(name) == 1]
    # What a stranger wrote for pandas into the file, and further columns, are none of ours.
    samples: DataFrame = table.select(known).replace_schema_metadata().to_pandas()
    for name, allowed in ALLOWED.items():
        bad = ~samples[name].isin(allowed)
        if bad.any():
            row = int(bad.to_numpy().argmax())
            values = ", ".join(sorted(allowed))
            raise _damaged(path, f"column {name}, row {row}: {samples[name].iloc[row]!r} is none of {values}")
    bad = samples["response_tokens"] < 0
    if bad.any():
        row = int(bad.to_numpy().argmax())
        raise _damaged(path, f"column response_tokens, row {row}: {samples['response_tokens'].iloc[row]} is negative")
    _check_order(samples, path)
    return samples


def _check_order(samples: DataFrame, path: Path) -> None:
    """Rows of a problem are together, and its samples count from 0; every problem has as many as the first."""
    if samples.empty:
        raise _damaged(path, "it has no rows")
    starts = samples["problem_id"] != samples["problem_id"].shift()
    again = starts & samples.groupby(starts.cumsum())["problem_id"].transform("first").where(starts).duplicated()
    if again.any():
        row = int(again.to_numpy().argmax())
        raise _damaged(path, f"column problem_id, row {row}: {samples['problem_id'].iloc[row]!r} occurs in two places")
    expected = samples.groupby("problem_id", sort=False).cumcount()
    bad = samples["sample"] != expected
    if bad.any():
        row = int(bad.to_numpy().argmax())
        raise _damaged(path, f"column sample, row {row}: {samples['sample'].iloc[row]} instead of {expected.iloc[row]}")
    sizes = samples.groupby("problem_id", sort=False).size()
    uneven = sizes != sizes.iloc[0]
    if uneven.any():
        name = sizes.index[int(uneven.to_numpy().argmax())]
        raise _damaged(path, f"problem {name!r} has {sizes[name]} samples, the first problem {sizes.iloc[0]}")


def _damaged(path: Path, what: str) -> UserError:
    return UserError(f"{path}: {what}; the sample file is damaged: restore it, or delete it and evaluate again")


def right_per_problem(samples: DataFrame, grader: str) -> dict[str, int]:
    """Number of right samples of each problem, in the order of the file."""
    right = (samples[grader] == "right").groupby(samples["problem_id"], sort=False).sum()
    return {str(name): int(count) for name, count in right.items()}


def pass_at_1(samples: DataFrame, grader: str) -> float:
    """Mean over the samples of a problem, then over problems, in [0, 1]. An error is not right."""
    shares = (samples[grader] == "right").groupby(samples["problem_id"], sort=False).mean()
    return math.fsum(shares) / len(shares)


def prompts_digest(samples: DataFrame) -> str:
    """SHA-256 over (problem id, digest of its prompt), in the order of the problems."""
    pairs = samples.drop_duplicates("problem_id")[["problem_id", "prompt_sha256"]].to_numpy().tolist()
    return hashlib.sha256(canonical_json(pairs)).hexdigest()


def task_result(samples: DataFrame, task: str, sampling: Sampling, file: FileRef) -> TaskResult:
    """Everything that a record says about one task, from its samples.

    Raises:
        UserError: the samples are not as many a problem as ``sampling`` says.
    """
    counts = {grader: right_per_problem(samples, grader) for grader in GRADERS}
    ids = list(counts["published"])
    if len(samples) != len(ids) * sampling.samples_per_problem:
        raise UserError(
            f"{file.path}: {len(samples)} rows are not {sampling.samples_per_problem} for each of {len(ids)} problems: "
            "evaluate again"
        )
    return TaskResult(
        task=task,
        problems=len(ids),
        sampling=sampling,
        prompts_digest=prompts_digest(samples),
        scores={
            "published": _score(samples, "published"),
            "audited": _score(samples, "audited"),
        },
        problem_ids=ids,
        right_per_problem={
            "published": list(counts["published"].values()),
            "audited": list(counts["audited"].values()),
        },
        truncated=int((samples["finish_reason"] == "length").sum()),
        mean_response_tokens=float(samples["response_tokens"].mean()),
        samples=file,
    )


def unanswerable_note(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """What a record says about problems that cannot be answered as they stand (`tasks.datasets`), apart.

    They stay in every score, so that it compares with published ones. For each task that has some: how many, right
    samples among them, and pass@1 of the other problems, by grader.
    """
    notes = {}
    for task, result in results.items():
        described = manifest().get(task)
        apart = [one in described.unanswerable for one in result.problem_ids] if described else []
        if not any(apart):
            continue
        samples = result.sampling.samples_per_problem
        notes[task] = {
            "problems": sum(apart),
            "right": {
                grader: sum(count for count, out in zip(counts, apart, strict=True) if out)
                for grader, counts in result.right_per_problem.items()
            },
            "pass_at_1_of_others": {
                grader: math.fsum(count / samples for count, out in zip(counts, apart, strict=True) if not out)
                / max(1, len(apart) - sum(apart))
                for grader, counts in result.right_per_problem.items()
            },
        }
    return {"unanswerable": notes} if notes else {}


def _score(samples: DataFrame, grader: str) -> TaskScore:
    verdicts = samples[grader].value_counts()
    return TaskScore(
        pass_at_1=pass_at_1(samples, grader),
        right=int(verdicts.get("right", 0)),
        wrong=int(verdicts.get("wrong", 0)),
        errors=int(verdicts.get("error", 0)),
    )
