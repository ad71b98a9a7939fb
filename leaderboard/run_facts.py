"""One run, finished or not: what was run, what came out, and what its updates did with their responses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import curves
from harness.grid import Cell
from harness.records import Record, read_record, record_folder, regular
from harness.run_directory import RunDirectory
from methods.diagnostics import LOG_WEIGHT_EDGES, over_updates, share_below
from methods.errors import UserError

THRESHOLD = -1.0
"""Below this log W the paper asks how many responses lie, and what share of the mass they get."""

_RECORD_ID = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True)
class Found:
    """A run by its record, or by its folder while it has none."""

    path: Path
    record: Record | None = None


def find(name: str, store: Path, runs: Path) -> Found:
    """The run that a name means.

    Args:
        name: the first six or more characters of a record's id, the id of a cell, the path of a record, or a folder
            with a ``cell.json``.
        store: where records lie.
        runs: where running cells lie.

    Raises:
        UserError: nothing is called so, or more than one record, or the record is damaged.
    """
    for path in (Path(name), store / name, store / f"{name}.json"):
        if path.suffix == ".json" and path.is_file():
            return Found(path, read_record(path))
    for folder in (Path(name), runs / name):
        if (folder / "cell.json").is_file():
            return Found(folder)
    if _RECORD_ID.fullmatch(name):
        paths = [path for path in sorted(store.glob("*/*/n*/*/seed*.json")) if _id_of(path).startswith(name)]
        if len(paths) == 1:
            return Found(paths[0], read_record(paths[0]))
        if paths:
            raise UserError(f"run {name}: {len(paths)} records of {store} have ids that start so: give more characters")
    raise UserError(
        f"run {name}: neither {store} nor {runs} has it: give six or more characters of a record's id, a cell such as "
        "tiny/tiny-qwen3/n32/respo/seed0, or a path"
    )


def _id_of(path: Path) -> str:
    """The id that a file states; empty where it states none: another record's damage is not asked about here."""
    try:
        stated = json.loads(regular(path).read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return stated if isinstance(stated, str) else ""


def facts(found: Found, first_updates: int | None = None) -> dict[str, Any]:
    """Everything that `reuse-bench show run` prints, as plain values.

    Scores are in [0, 1]. ``diagnostics`` are those of `window_facts`; None for a run without policy updates.

    Args:
        found: the run.
        first_updates: how many policy updates the diagnostics are of, from the first; all by default.

    Raises:
        UserError: its curve is missing or damaged.
    """
    described = _of_record(found.path, found.record) if found.record else _of_folder(RunDirectory(found.path))
    curve, lines = _curve(found)
    lines = lines[:first_updates]
    for line in lines:
        curves.check_diagnostics(line, curve)
    return {**described, "diagnostics": window_facts(lines) if lines else None}


def window_facts(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The diagnostics of some policy updates, with the inner bin ``edges`` of log W.

    ``below`` says, by sign of the advantage, what share of the responses lies below log W = -1 and what share of the
    mass it gets; ``sentence`` says it of the positive ones in words.
    """
    below = {sign: share_below(lines, THRESHOLD, sign) for sign in ("positive", "negative")}
    return {
        "first_update": lines[0]["update"],
        "last_update": lines[-1]["update"],
        **over_updates(lines),
        "edges": list(LOG_WEIGHT_EDGES),
        "below": {"threshold": THRESHOLD, **below},
        "sentence": _sentence(below["positive"]),
    }


def _sentence(share: Mapping[str, float | None]) -> str:
    responses, mass = share["responses"], share["mass"]
    if responses is None:
        return "There are no positive responses."
    text = f"{100 * responses:.1f} % of positive responses lie below log W = {THRESHOLD:g}"
    return f"{text} and get {100 * mass:.1f} % of the mass." if mass is not None else f"{text}; no mass is reported."


def _of_record(path: Path, record: Record) -> dict[str, Any]:
    training = record.training
    return {
        "cell": record.relative_path().with_suffix("").as_posix(),
        "id": record.id,
        "path": str(path),
        "status": record.status,
        "reason": record.failure or (training.collapse if training else None),
        "division": record.division,
        "deviations": record.deviations,
        "method": record.method.model_dump(mode="json") if record.method else None,
        "seeds": record.seeds.model_dump(mode="json"),
        "updates": training.updates if training else 0,
        "early_score": training.early_score if training else None,
        "late_score": training.late_score if training else None,
        "mean_score": training.mean_score if training else None,
        "evaluation": {
            name: {
                "problems": task.problems,
                "samples_per_problem": task.sampling.samples_per_problem,
                **{grader: score.pass_at_1 for grader, score in task.scores.items()},
            }
            for name, task in record.evaluation.items()
        },
    }


def _of_folder(run: RunDirectory) -> dict[str, Any]:
    """A run without a record: what only a record states is None."""
    run.check_files()
    state = run.read_state()
    assert state is not None  # the folder was found by its state
    cell = Cell.from_id(state.cell)
    worker = json.loads(run.worker.read_text()) if run.worker.exists() else {}
    lines = run.read_updates()
    return {
        "cell": state.cell,
        "id": None,
        "path": str(run.root),
        "status": state.status,
        "reason": state.detail,
        "division": None,
        "deviations": [],
        "method": {
            "name": cell.method,
            "source_sha256": worker.get("source_sha256"),
            "hyperparameters": worker.get("hyperparameters", {}),
        },
        "seeds": cell.seeds.model_dump(mode="json"),
        "updates": len(lines),
        "early_score": None,
        "late_score": None,
        "mean_score": curves.mean_score(lines),
        "evaluation": {},
    }


def _curve(found: Found) -> tuple[Path, list[dict[str, Any]]]:
    """The curve file and its lines: none of a run that has not updated its policy."""
    if found.record is None:
        run = RunDirectory(found.path)
        return run.updates, run.read_updates()
    if found.record.training is None:
        return found.path, []
    path = record_folder(found.path) / found.record.training.curve.path
    return path, curves.read_updates(path, found.record.training)
