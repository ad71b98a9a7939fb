"""Records to tables. Everything that pages, claims, comparisons and exports show is computed here, once.

All scores are in [0, 1]. A *cell* is one protocol, division, model, N and method with all its seeds. Rows are sorted,
so that the same records give the same tables in any order of files.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.curves import read_updates
from harness.records import Record, iter_records, record_folder
from leaderboard import published, statistics
from leaderboard.statistics import Floats, Population
from methods.errors import UserError

Grader = Literal["published", "audited"]
MACRO = published.MACRO
CELL = ["protocol", "division", "model", "reuse", "method"]
BLOCK = ["protocol", "division", "model", "reuse"]
BASE = "base"
SIGNIFICANCE = 0.05
LONGEST_NAME = 72


@dataclass(frozen=True)
class Results:
    """The records of a store, in the order of their cells and seeds."""

    store: Path
    records: tuple[tuple[Path, Record], ...]

    @cached_property
    def tasks(self) -> dict[str, tuple[str, ...]]:
        """Protocol -> all its benchmarks, in the order in which the records name them."""
        found: dict[str, dict[str, None]] = {}
        for _, record in self.records:
            known = found.setdefault(record.protocol.id, {})
            for task in task_order(record.evaluation):
                known.setdefault(task)
        return {protocol: tuple(known) for protocol, known in found.items()}

    def cells(self) -> dict[tuple[str, str, str, int, str], list[Record]]:
        """Cell key (protocol, division, model, N, method) -> its records, by seed."""
        grouped: dict[tuple[str, str, str, int, str], list[Record]] = {}
        for _, record in self.records:
            grouped.setdefault(cell_key(record), []).append(record)
        return grouped


def task_order(names: Iterable[str]) -> list[str]:
    """The paper's order for the paper's benchmarks, then the others by name."""
    known = {name: index for index, name in enumerate(published.TASKS)}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name))


def cell_key(record: Record) -> tuple[str, str, str, int, str]:
    """Protocol, division, model, N (0 for a base model) and method name (``base`` where nothing was trained)."""
    method = record.method.name if record.method else BASE
    return (record.protocol.id, record.division, record.model.name, record.reuse or 0, method)


def load(store: Path, *, protocol: str | None = None) -> Results:
    """Read and validate all records of a store, or those of one protocol.

    Raises:
        UserError: the folder does not exist, has no record of that protocol, or has one that is damaged or lies where
            another cell belongs.
    """
    if not store.is_dir():
        raise UserError(f"{store}: there is no such folder of records; name one, or make it with `reuse-bench run`")
    found = []
    for path, record in iter_records(store):
        if path != store / record.relative_path():
            raise UserError(
                f"{path}: the record says that it belongs at {store / record.relative_path()}; move it there"
            )
        found.append((path, record))
    if protocol is not None:
        present = sorted({record.protocol.id for _, record in found})
        if protocol not in present:
            some = f"there are some of {', '.join(present)}" if present else "make some with `reuse-bench run`"
            raise UserError(f"--protocol: {store} has no records of {protocol!r}: {some}")
        found = [(path, record) for path, record in found if record.protocol.id == protocol]
    found.sort(key=lambda item: (*cell_key(item[1]), item[1].seeds.run))
    return Results(store, tuple(found))


def runs(results: Results) -> pd.DataFrame:
    """One row a record: what was run, how it ended, its training scores and its cost."""
    rows = []
    for path, record in results.records:
        training = record.training
        rows.append(
            {
                **dict(zip(CELL, cell_key(record), strict=True)),
                "title": title(record),
                "seed": record.seeds.run,
                "kind": record.kind,
                "status": record.status,
                "early": training.early_score if training else None,
                "late": training.late_score if training else None,
                "mean": training.mean_score if training else None,
                "final": training.final_score if training else None,
                "updates": training.updates if training else 0,
                "rollouts": training.rollouts if training else 0,
                "response_tokens": training.response_tokens if training else 0,
                "collapse": training.collapse if training else None,
                "failure": record.failure,
                "gpu_hours": record.cost.gpu_hours,
                "training_seconds": record.cost.training_seconds,
                "evaluation_seconds": record.cost.evaluation_seconds,
                "commit": record.provenance.commit,
                "record": record.id,
                "path": path.relative_to(results.store).as_posix(),
            }
        )
    table = pd.DataFrame(rows, columns=list(rows[0]) if rows else [*CELL, "title", "seed", "kind", "status", "record"])
    for column in ("early", "late", "mean", "final"):
        if column in table:
            table[column] = table[column].astype(float)
    return table


def title(record: Record) -> str:
    """What a row of the record is called."""
    if record.method:
        return shown(record.method.title, record.method.name)
    return "Base model" if record.kind == "base" else "Trained elsewhere"


@cache
def shown(name: str, instead: str = "") -> str:
    """A name that a record gives, as it is printed: without control characters, which could turn the text around it,
    and not longer than a line. A cut name keeps a digest, so that no two look alike; an empty one gives ``instead``.
    """
    plain = " ".join("".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c for c in name).split())
    if len(plain) > LONGEST_NAME:
        return f"{plain[: LONGEST_NAME - 10]}… ({hashlib.sha256(name.encode(errors='replace')).hexdigest()[:6]})"
    return plain or (shown(instead) if instead else "(no name)")


def scores(results: Results, *, grader: Grader = "published", k: int = 1) -> pd.DataFrame:
    """One row a record and benchmark, and its macro average where it has all benchmarks of the protocol.

    Columns: the cell's, title, seed, task, score (pass@k), sampling_error and question_error (named errors of
    pass@k for this one checkpoint; sampling only for k = 1), problems, samples, truncated, errors, record, path.
    """
    rows: list[dict[str, Any]] = []
    for path, record in results.records:
        own = {**dict(zip(CELL, cell_key(record), strict=True)), "title": title(record), "seed": record.seeds.run}
        link = {"record": record.id, "path": path.relative_to(results.store).as_posix()}
        matrix = []
        for task in results.tasks[record.protocol.id]:
            if task not in record.evaluation:
                continue
            result = record.evaluation[task]
            n = result.sampling.samples_per_problem
            values = _values(record, task, grader, k)
            matrix.append(values)
            right = np.array(result.right_per_problem[grader])
            rows.append(
                {
                    **own,
                    "task": task,
                    "score": float(values.mean()),
                    "sampling_error": statistics.sampling_error(right, n) if k == 1 else np.nan,
                    "question_error": statistics.question_error(values),
                    "problems": result.problems,
                    "samples": n,
                    "truncated": result.truncated,
                    "errors": result.scores[grader].errors,
                    **link,
                }
            )
        if matrix and len(matrix) == len(results.tasks[record.protocol.id]) > 1:
            mine = rows[-len(matrix) :]
            rows.append(
                {
                    **own,
                    "task": MACRO,
                    "score": float(np.mean([row["score"] for row in mine])),
                    "sampling_error": float(np.sqrt(np.sum([row["sampling_error"] ** 2 for row in mine]))) / len(mine),
                    "question_error": float(np.sqrt(np.sum([row["question_error"] ** 2 for row in mine]))) / len(mine),
                    "problems": sum(row["problems"] for row in mine),
                    "samples": 0,
                    "truncated": sum(row["truncated"] for row in mine),
                    "errors": sum(row["errors"] for row in mine),
                    **link,
                }
            )
    columns = [*CELL, "title", "seed", "task", "score", "sampling_error", "question_error", "problems", "samples"]
    return pd.DataFrame(rows, columns=[*columns, "truncated", "errors", "record", "path"])


@dataclass(frozen=True)
class _Sealed:
    """A record, told from others by the digest of its content: what a cache can be asked for."""

    digest: str
    record: Record = field(compare=False)


def _values(record: Record, task: str, grader: Grader, k: int) -> Floats:
    """pass@k of each problem, [problems], in the order of the sorted problem ids; not to be written to."""
    return (_known_values if record.id else _known_values.__wrapped__)(_Sealed(record.id, record), task, grader, k)


@lru_cache(maxsize=4096)  # a few boards with all their records, benchmarks, graders and measures
def _known_values(sealed: _Sealed, task: str, grader: Grader, k: int) -> Floats:
    result = sealed.record.evaluation[task]
    n = result.sampling.samples_per_problem
    if not 1 <= k <= n:
        raise UserError(f"pass@{k} of {task} needs {k} samples a problem and there are {n}; ask for k in 1..{n}")
    right = result.right_per_problem[grader]
    return statistics.pass_at_k(np.array(right)[_by_id(tuple(result.problem_ids))], n, k)


@lru_cache(maxsize=1024)
def _by_id(problem_ids: tuple[str, ...]) -> NDArray[np.intp]:
    """Positions of the problems in the order of their ids; most records of a store share them."""
    return np.array(sorted(range(len(problem_ids)), key=problem_ids.__getitem__), dtype=np.intp)


def matrices(
    records: Sequence[Record], tasks: Sequence[str], *, grader: Grader = "published", k: int = 1
) -> list[Floats] | None:
    """The cell of `statistics`: [seeds, problems] for each task, over the records that have all of ``tasks``.

    Problems are sorted by id, so that two cells are paired whatever the order of their records. None where no record
    has them all.

    Raises:
        UserError: two records have different problems under one task name.
    """
    usable = [record for record in records if all(task in record.evaluation for task in tasks)]
    if not usable or not tasks:
        return None
    for task in tasks:
        expected = usable[0].evaluation[task].problem_ids
        for record in usable[1:]:
            found = record.evaluation[task].problem_ids
            if found != expected and sorted(found) != sorted(expected):
                raise UserError(
                    f"{record.relative_path()}: task {task} has other problems than {usable[0].relative_path()}; "
                    "evaluate both on the same data"
                )
    return [np.stack([_values(record, task, grader, k) for record in usable]) for task in tasks]


def heldout(
    results: Results,
    *,
    grader: Grader = "published",
    k: int = 1,
    population: Population = "new_questions",
    pairs: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row a cell and benchmark (and macro average): what the held-out table shows.

    ``pairs``: the `comparisons` of the same results, grader and k, where the caller has them already.

    Columns: the cell's, title, task, score, low, high (95 %), error, leaves_out (what the interval cannot know),
    sampling_error and question_error (means over seeds of the two named errors), seeds (evaluated), runs (all),
    done, collapsed, failed (counts of runs), ranked (every run has a score), problems, leader (highest ranked score of
    its block), tied (cannot be told from the leader), p_value and p_holm (against the leader), detectable (smallest
    difference to the leader that could have been found), published, verdict, verdict_reason, check_low and check_high
    (where one further run of ours would lie, which the verdict compares with the published number), gpu_hours, records
    (ids).

    A cell without any evaluated run is a row with NaN scores.
    """
    if pairs is None:
        pairs = comparisons(results, grader=grader, k=k)
    against = {
        (*(row[name] for name in BLOCK), row["task"], *sorted((row["first"], row["second"]))): row
        for row in as_rows(pairs)
    }
    by_record = scores(results, grader=grader, k=k)
    errors = by_record.groupby([*CELL, "task"], sort=False)[["sampling_error", "question_error"]].mean()
    sampling, question = errors["sampling_error"].to_dict(), errors["question_error"].to_dict()
    reference = _printed_heldout()
    rows: list[dict[str, Any]] = []
    for key, records in results.cells().items():
        tasks = results.tasks[key[0]]
        for task in columns_of(tasks):
            names = tasks if task == MACRO else (task,)
            cell = matrices(records, names, grader=grader, k=k)
            row: dict[str, Any] = {
                **dict(zip(CELL, key, strict=True)),
                "title": title(records[0]),
                "task": task,
                **dict.fromkeys(("score", "low", "high", "error"), np.nan),
                "leaves_out": "no evaluated run",
                "sampling_error": sampling.get((*key, task), np.nan),
                "question_error": question.get((*key, task), np.nan),
                "seeds": 0,
                **_run_counts(records),
                "ranked": False,
                "problems": 0,
                "published": np.nan,
                "verdict": "",
                "verdict_reason": "",
                "check_low": np.nan,
                "check_high": np.nan,
                "records": tuple(record.id for record in records),
            }
            if cell is not None:
                samples = _samples(records, names)
                left_out = str(_unscored(records, names))
                found = statistics.estimate(cell, population=population, samples=samples)
                row |= {
                    "score": found.value,
                    "low": found.low,
                    "high": found.high,
                    "error": found.error,
                    # A base model was not trained: it has no training seed to vary.
                    "leaves_out": _joined(found.leaves_out if key[-1] != BASE else "", left_out),
                    "seeds": found.seeds,
                    "ranked": not left_out,
                    "problems": sum(matrix.shape[1] for matrix in cell),
                }
            printed = reference.get((published.model_key(key[2]), key[3], key[4], task))
            if printed is not None and k == 1:
                row["published"] = printed
                if cell is None:
                    row["verdict"], row["verdict_reason"] = "no data", "no evaluated run"
                else:
                    check = statistics.check_published(printed, cell, samples=_samples(records, names))
                    row["verdict"], row["verdict_reason"] = check.verdict, check.reason
                    row["check_low"], row["check_high"] = check.low, check.high
            rows.append(row)
    columns = [*CELL, "title", "task", "score", "low", "high", "error", "leaves_out", "sampling_error"]
    columns += ["question_error", "seeds", "runs", "done", "collapsed", "failed", "gpu_hours", "ranked", "problems"]
    columns += ["published"]
    table = pd.DataFrame(rows, columns=[*columns, "verdict", "verdict_reason", "check_low", "check_high", "records"])
    return _with_leaders(table, against)


@cache
def _printed_heldout() -> dict[tuple[str, int, str, str], float]:
    """(Model, N, method, benchmark) -> score as published."""
    return {
        (published.model_key(row["model"]), row["reuse"], row["method"], row["task"]): float(row["score"])
        for row in as_rows(published.heldout())
    }


def as_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries."""
    return cast(list[dict[str, Any]], table.to_dict("records"))


def columns_of(tasks: Sequence[str]) -> list[str]:
    """The columns of a table: its benchmarks, and their macro average where there are several."""
    return [*tasks, MACRO] if len(tasks) > 1 else list(tasks)


def _samples(records: Sequence[Record], tasks: Sequence[str]) -> list[int]:
    first = next(record for record in records if all(task in record.evaluation for task in tasks))
    return [first.evaluation[task].sampling.samples_per_problem for task in tasks]


def _run_counts(records: Sequence[Record]) -> dict[str, Any]:
    return {
        "runs": len(records),
        **{status: sum(record.status == status for record in records) for status in ("done", "collapsed", "failed")},
        "gpu_hours": float(sum(record.cost.gpu_hours for record in records)),
    }


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _with_leaders(table: pd.DataFrame, against: dict[tuple[Any, ...], dict[str, Any]]) -> pd.DataFrame:
    """Mark the highest ranked score of each block, and who cannot be told from it after Holm's adjustment.

    The base model is not a competitor, and a cell with runs that have no score is no leader. A comparison with one seed
    on a side leaves out the seeds, so it separates nothing.
    """
    columns: dict[str, list[Any]] = {name: [False] * len(table) for name in ("leader", "tied")}
    columns |= {name: [np.nan] * len(table) for name in ("p_value", "p_holm", "detectable")}
    competing = table[(table["method"] != BASE) & table["score"].notna()]
    for block, group in groups(competing, [*BLOCK, "task"]):
        ranked = group[group["ranked"].astype(bool)]
        if ranked.empty:
            continue
        top = int(ranked.index[int(ranked["score"].to_numpy(dtype=float).argmax())])
        leader = group["method"][top]
        columns["leader"][top] = columns["tied"][top] = True
        for index, method in zip(group.index, group["method"], strict=True):
            if method == leader:
                continue
            row = against[(*block, *sorted((method, leader)))]
            for name in ("p_value", "p_holm", "detectable"):
                columns[name][index] = row[name]
            columns["tied"][index] = not row["separated"]
    for name, values in columns.items():
        table[name] = values
    return table


def mark(row: Mapping[str, Any], block: Sequence[Mapping[str, Any]]) -> Literal["", "best", "tied"]:
    """Best where nobody else is tied with the leader; tied where only some are; nothing where all are.

    A row with runs that have no score is never marked; where it cannot be told from the leader, the leader is not best.

    Args:
        row: a row of `heldout` or `training`.
        block: all rows of its benchmark or measure, model and N.
    """
    competing = [other for other in block if _is_number(other["score"]) and other["method"] != BASE]
    tied = [other for other in competing if other["tied"]]
    if len(competing) < 2 or not row["tied"] or not row["ranked"]:
        return ""
    if len(tied) == 1:
        return "best"
    return "tied" if len(tied) < len(competing) else ""


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def groups(table: pd.DataFrame, by: Any) -> Iterator[tuple[Any, pd.DataFrame]]:
    """The groups of a table, in the order of their first rows."""
    return iter(table.groupby(by, sort=False))


def comparisons(results: Results, *, grader: Grader = "published", k: int = 1) -> pd.DataFrame:
    """All pairs of methods of each block (protocol, division, model, N), benchmark by benchmark, paired by problem.

    Columns: the block's, task, first, second (method names), difference (first minus second), low, high, error,
    p_value, p_holm, detectable, separated, improvement (chance that a run of the first beats one of the second, where
    a collapsed run loses), leaves_out, problems.

    Holm's family is one table: all N and all pairs of a protocol, division and model; the macro average, the one
    figure named in advance, is a family of its own.
    """
    rows: list[dict[str, Any]] = []
    blocks: dict[tuple[Any, ...], dict[str, list[Record]]] = {}
    for key, records in results.cells().items():
        if key[-1] != BASE:
            blocks.setdefault(key[:-1], {})[key[-1]] = records
    pairs = []
    for block, methods in blocks.items():
        tasks = results.tasks[block[0]]
        for task in columns_of(tasks):
            names = tasks if task == MACRO else (task,)
            found = {name: matrices(records, names, grader=grader, k=k) for name, records in methods.items()}
            cells = {name: cell for name, cell in found.items() if cell is not None}
            pairs += [(block, task, names, cells, *pair) for pair in combinations(cells, 2)]
    families = Counter((*block[:3], task == MACRO) for block, task, *_ in pairs)
    for block, task, names, cells, first, second in pairs:
        one, two = blocks[block][first], blocks[block][second]
        among = families[*block[:3], task == MACRO]
        result = compare_cells(one, two, names, grader=grader, k=k, among=among)
        assert result is not None
        rows.append(
            {
                **dict(zip(BLOCK, block, strict=True)),
                "task": task,
                "first": first,
                "second": second,
                "difference": result.difference,
                "low": result.low,
                "high": result.high,
                "error": result.error,
                "p_value": result.p_value,
                "detectable": result.detectable,
                "improvement": statistics.probability_of_improvement(
                    _with_collapsed(cells[first], one, names), _with_collapsed(cells[second], two, names)
                ),
                "leaves_out": result.leaves_out,
                "problems": sum(matrix.shape[1] for matrix in cells[first]),
            }
        )
    columns = [*BLOCK, "task", "first", "second", "difference", "low", "high", "error", "p_value"]
    table = pd.DataFrame(rows, columns=[*columns, "detectable", "improvement", "leaves_out", "problems"])
    table["p_holm"] = np.nan
    for _, family in groups(table, [*BLOCK[:3], table["task"] == MACRO]):
        table.loc[family.index, "p_holm"] = statistics.holm(family["p_value"].to_numpy())
    table["separated"] = (table["p_holm"] < SIGNIFICANCE) & (table["leaves_out"] == "")
    return table


def _with_collapsed(cell: Sequence[Floats], records: Sequence[Record], tasks: Sequence[str]) -> list[Floats]:
    """Seed scores of each benchmark; a collapsed run counts as lower than every score."""
    collapsed = sum(record.status == "collapsed" for record in _unscored(records, tasks).left)
    return [np.append(matrix.mean(axis=1), np.full(collapsed, -1.0)) for matrix in cell]


def compare_cells(
    first: Sequence[Record],
    second: Sequence[Record],
    tasks: Sequence[str],
    *,
    grader: Grader = "published",
    k: int = 1,
    level: float = statistics.LEVEL,
    among: int = 1,
) -> statistics.Comparison | None:
    """`statistics.compare` of two cells; None where one of them has no run with all of ``tasks``.

    ``leaves_out`` also says where runs without a score forbid to call the higher side ahead.

    Raises:
        UserError: the two were evaluated on different problems.
    """
    one, two = (matrices(records, tasks, grader=grader, k=k) for records in (first, second))
    if one is None or two is None:
        return None
    require_same_problems(first, second, tasks)
    return _with_unfinished(
        statistics.compare(one, two, level=level, among=among), _unscored(first, tasks), _unscored(second, tasks)
    )


def compare_training(
    first: Sequence[Record], second: Sequence[Record], measure: str, *, level: float = statistics.LEVEL
) -> statistics.Comparison | None:
    """The same for a training score: `statistics.compare_seed_scores`."""
    one, two = (training_scores(records, measure) for records in (first, second))
    if not one or not two:
        return None
    found = statistics.compare_seed_scores(one, two, level=level)
    return _with_unfinished(found, _cut_short(first, measure), _cut_short(second, measure))


@dataclass(frozen=True)
class _Unfinished:
    """The runs of a cell that have no full score."""

    title: str
    runs: int
    left: tuple[Record, ...]

    def __str__(self) -> str:
        """Empty where all have one."""
        counts = {status: sum(record.status == status for record in self.left) for status in _ENDINGS}
        parts = [f"{count} {_ENDINGS[status]}" for status, count in counts.items() if count]
        return f"of {self.runs} runs, {' and '.join(parts)}" if parts else ""


_ENDINGS = {"collapsed": "collapsed", "failed": "failed", "done": "lack a benchmark"}


def _unscored(records: Sequence[Record], tasks: Sequence[str]) -> _Unfinished:
    left = (record for record in records if not all(task in record.evaluation for task in tasks))
    return _Unfinished(title(records[0]), len(records), tuple(left))


def _cut_short(records: Sequence[Record], measure: str) -> _Unfinished:
    """A mean over the updates of a run that ended early is not over as many as everybody's."""
    left = (
        record
        for record in records
        if _training_score(record, measure) is None or (measure == "mean" and record.status != "done")
    )
    return _Unfinished(title(records[0]), len(records), tuple(left))


def _with_unfinished(found: statistics.Comparison, first: _Unfinished, second: _Unfinished) -> statistics.Comparison:
    """Note what forbids to call the higher side ahead.

    A mean over the runs that did not collapse flatters a method, so it can show that the method is behind, never that
    it is ahead. A run that failed could have ended anyhow: it forbids both.
    """
    ahead, behind = (first, second) if found.difference > 0 else (second, first)
    forbid = [ahead] if ahead.left else []
    if any(record.status != "collapsed" for record in behind.left):
        forbid.append(behind)
    notes = (f"{side.title}: {side}, and the score is of the others" for side in forbid)
    return replace(found, leaves_out=_joined(found.leaves_out, *notes))


def stability(results: Results, *, grader: Grader = "published", splits: int = 1000, seed: int = 0) -> pd.DataFrame:
    """One row a block: how far the order of its methods is the same on two random halves of the problems.

    Columns: the block's, methods (how many), problems, stability (mean Spearman correlation, at most 1; NaN for fewer
    than two methods). Every benchmark's problems count alike. Cells with runs that have no score are left out.
    """
    blocks: dict[tuple[Any, ...], list[Floats]] = {}
    for key, records in results.cells().items():
        tasks = results.tasks[key[0]]
        cell = matrices(records, tasks, grader=grader) if key[-1] != BASE else None
        if cell is not None and not _unscored(records, tasks).left:
            blocks.setdefault(key[:-1], []).append(np.concatenate([matrix.mean(axis=0) for matrix in cell]))
    rows = []
    for block, methods in blocks.items():
        table = np.stack(methods)
        rng = np.random.default_rng(seed)
        rows.append(
            {
                **dict(zip(BLOCK, block, strict=True)),
                "methods": table.shape[0],
                "problems": table.shape[1],
                "stability": statistics.rank_stability(table, splits=splits, rng=rng),
            }
        )
    return pd.DataFrame(rows, columns=[*BLOCK, "methods", "problems", "stability"])


def require_same_problems(first: Sequence[Record], second: Sequence[Record], tasks: Sequence[str]) -> None:
    """Refuse to pair cells that were evaluated on different problems.

    Raises:
        UserError: it names the two records and the benchmark.
    """
    sides = [[r for r in records if all(task in r.evaluation for task in tasks)][:1] for records in (first, second)]
    if all(sides):
        matrices([sides[0][0], sides[1][0]], tasks)


def training(results: Results) -> pd.DataFrame:
    """One row a cell and measure (early, late, mean): what the training table shows.

    Columns: the cell's, title, measure, score, low, high (Student's t over seeds; NaN with one), error, seeds, runs,
    done, collapsed, failed, gpu_hours, ranked, leaves_out, leader, tied, p_value, p_holm, published, verdict,
    verdict_reason, records.
    """
    reference = {
        (published.model_key(row["model"]), row["reuse"], row["method"]): row for row in as_rows(published.training())
    }
    rows: list[dict[str, Any]] = []
    for key, records in results.cells().items():
        if key[-1] == BASE:
            continue
        for measure in ("early", "late", "mean"):
            known = training_scores(records, measure)
            row: dict[str, Any] = {
                **dict(zip(CELL, key, strict=True)),
                "title": title(records[0]),
                "measure": measure,
                **dict.fromkeys(("score", "low", "high", "error"), np.nan),
                "seeds": len(known),
                **_run_counts(records),
                "ranked": False,
                "leaves_out": "no run has this score",
                "published": np.nan,
                "verdict": "",
                "verdict_reason": "",
                "records": tuple(record.id for record in records),
            }
            if known:
                found = statistics.mean_over_seeds(known)
                row |= {"score": found.value, "low": found.low, "high": found.high, "error": found.error}
                left_out = str(_cut_short(records, measure))
                row |= {"leaves_out": _joined(found.leaves_out, left_out), "ranked": not left_out}
            printed = reference.get((published.model_key(key[2]), key[3], key[4]), {}).get(measure)
            if printed is not None:
                row["published"] = printed
                if known:
                    check = statistics.check_published_seeds(float(printed), known)
                    row["verdict"], row["verdict_reason"] = check.verdict, check.reason
                else:
                    row["verdict"], row["verdict_reason"] = "no data", "no run has this score"
            rows.append(row)
    columns = [*CELL, "title", "measure", "score", "low", "high", "error", "seeds", "runs", "done", "collapsed"]
    columns += ["failed", "gpu_hours", "ranked", "leaves_out", "published", "verdict", "verdict_reason", "records"]
    table = pd.DataFrame(rows, columns=columns)
    return _with_training_leaders(table, results.cells())


def training_scores(records: Sequence[Record], measure: str) -> list[float]:
    """The early, late or mean score of each record that has one."""
    return [value for record in records if (value := _training_score(record, measure)) is not None]


def _training_score(record: Record, measure: str) -> float | None:
    if record.training is None:
        return None
    return {
        "early": record.training.early_score,
        "late": record.training.late_score,
        "mean": record.training.mean_score,
    }[measure]


def _with_training_leaders(
    table: pd.DataFrame, cells: Mapping[tuple[str, str, str, int, str], list[Record]]
) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {name: [False] * len(table) for name in ("leader", "tied")}
    columns |= {name: [np.nan] * len(table) for name in ("p_value", "p_holm")}
    records = [cells[tuple(row[name] for name in CELL)] for row in as_rows(table)]
    for (*_, measure), family in groups(table, [*BLOCK[:3], "measure"]):
        by_reuse = [group for _, group in groups(family[family["score"].notna()], ["reuse"])]
        # All pairs, and not those with the highest alone: which one is highest is told by the same scores.
        pairs: dict[frozenset[int], statistics.Comparison] = {}
        for group in by_reuse:
            for first, second in combinations(group.index, 2):
                result = compare_training(records[first], records[second], measure)
                if result is not None:
                    pairs[frozenset((first, second))] = result
        adjusted = dict(zip(pairs, statistics.holm([one.p_value for one in pairs.values()]), strict=True))
        for group in by_reuse:
            ranked = group[group["ranked"].astype(bool)]
            if ranked.empty:
                continue
            top = int(ranked.index[int(ranked["score"].to_numpy(dtype=float).argmax())])
            columns["leader"][top] = columns["tied"][top] = True
            for index in group.index:
                pair = frozenset((top, index))
                if pair in pairs:
                    columns["p_value"][index], columns["p_holm"][index] = pairs[pair].p_value, adjusted[pair]
                    columns["tied"][index] = bool(pairs[pair].leaves_out) or not adjusted[pair] < SIGNIFICANCE
    for name, values in columns.items():
        table[name] = values
    return table


def curves(results: Results, *, column: str = "score") -> pd.DataFrame:
    """Mean and 95 % band over seeds of one column of ``updates.jsonl``, by cell and update.

    Columns: the cell's, title, update, mean, low, high (NaN where fewer than two seeds reached the update), seeds.
    """
    rows = []
    paths = {record.id: path for path, record in results.records}
    for key, records in results.cells().items():
        series = {}
        for record in records:
            if record.training is not None:
                path = record_folder(paths[record.id]) / record.training.curve.path
                lines = read_updates(path, record.training)
                series[record.seeds.run] = {
                    line["update"]: float(line[column]) for line in lines if line.get(column) is not None
                }
        if not any(series.values()):
            continue
        frame = pd.DataFrame(series).sort_index()
        count = frame.notna().sum(axis=1).to_numpy()
        mean = frame.mean(axis=1).to_numpy()
        half = statistics.t_half_width(frame.std(axis=1).to_numpy(), count)
        rows.append(
            pd.DataFrame(
                {
                    **dict(zip(CELL, key, strict=True)),
                    "title": title(records[0]),
                    "update": frame.index,
                    "mean": mean,
                    "low": mean - half,
                    "high": mean + half,
                    "seeds": count,
                }
            )
        )
    columns = [*CELL, "title", "update", "mean", "low", "high", "seeds"]
    return pd.concat(rows, ignore_index=True)[columns] if rows else pd.DataFrame(columns=columns)
