"""Make the record of a cell from what its run directory holds, and put it with its files into the store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import methods
from harness import curves, evaluation, provenance
from harness.evaluation import TaskPlan
from harness.grid import Cell, deviations
from harness.openrlhf.worker_spec import WorkerSpec
from harness.protocol import Protocol
from harness.records import (
    Checkpoint,
    Cost,
    DataRef,
    MethodRef,
    ModelRef,
    ProtocolRef,
    Record,
    Status,
    TaskResult,
    TrainingSummary,
    file_ref,
    record_folder,
    write_atomically,
    write_record,
)
from harness.run_directory import CellState, RunDirectory, now
from harness.scoring import unanswerable_note
from harness.seeds import text_digest
from harness.tiny_model import directory_digest
from harness.training import TrainingResult, training_problems


def record_cell(
    protocol: Protocol,
    cell: Cell,
    run: RunDirectory,
    model: Path,
    spec: WorkerSpec,
    state: CellState,
    store: Path,
    *,
    status: Status,
    result: TrainingResult | None,
    plans: Sequence[TaskPlan] = (),
    samples: Mapping[str, Path] | None = None,
    command: Sequence[str] | None = None,
) -> Path:
    """Write the record and the files it points to; returns where it lies.

    A collapsed or failed run has a record too: with the curve as far as it got, and without scores.
    """
    started = state.attempts[0].started if state.attempts else now()
    collected = provenance.collect(started=started, ended=now(), command=command)
    used = json.loads(run.worker.read_text()) if run.worker.exists() else {}
    changed = deviations(protocol, cell) + evaluation.data_deviations(plans) + provenance.deviations(collected)
    registered = methods.lookup(cell.method)
    record = Record(
        kind="trained",
        status=status,
        division="open" if changed else "closed",
        deviations=changed,
        protocol=ProtocolRef(id=protocol.id, version=protocol.version, digest=protocol.digest),
        model=_model_ref(protocol, cell, model),
        method=MethodRef(
            name=cell.method,
            title=registered.card.title,
            version=registered.card.version,
            source_sha256=used.get("source_sha256", spec.source_sha256),
            origin=registered.origin,
            hyperparameters=spec.hyperparameters,
        ),
        reuse=cell.reuse,
        seeds=cell.seeds,
        data=[_training_data(protocol, run), *evaluation.data_refs(plans)],
        training=None,
        checkpoint=None,
        evaluation={},
        attempts=state.attempts,
        failure=state.detail if status == "failed" else None,
        provenance=collected,
        cost=_cost(protocol, state, used),
        notes=_notes(protocol, run, plans),
    )
    folder = record_folder(store / record.relative_path())
    building = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    training = _training_summary(protocol, cell, run, building, result)
    results: dict[str, TaskResult] = {}
    if samples:
        results = evaluation.record_results(samples, plans, building)
    checkpoint = None
    if result and result.checkpoint_digest:
        checkpoint = Checkpoint(update=result.updates, digest=result.checkpoint_digest)
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)
    notes = record.notes | unanswerable_note(results)
    complete = record.model_copy(
        update={"training": training, "evaluation": results, "checkpoint": checkpoint, "notes": notes}
    )
    return write_record(complete, store)


def _model_ref(protocol: Protocol, cell: Cell, folder: Path) -> ModelRef:
    spec = protocol.model(cell.model)
    return ModelRef(name=spec.name, source=spec.source, revision=spec.revision, digest=directory_digest(folder))


def _training_data(protocol: Protocol, run: RunDirectory) -> DataRef:
    """The training set as it was used: the digest is that of the problems and answers, not of the shuffled file."""
    problems = training_problems(protocol.data.train)
    pairs = sorted(f"{problem['problem']}\0{problem['answer']}" for problem in problems)
    return DataRef(
        name=protocol.data.train,
        role="train",
        source="generated" if protocol.data.train == "chain" else protocol.data.train,
        rows=len(problems),
        digest=text_digest(*pairs),
    )


def _training_summary(
    protocol: Protocol, cell: Cell, run: RunDirectory, folder: Path, result: TrainingResult | None
) -> TrainingSummary | None:
    lines = run.read_updates()
    if not lines:
        return None
    target = folder / run.updates.name
    write_atomically(target, run.updates.read_bytes())
    return curves.training_summary(
        lines,
        early=protocol.scoring.early,
        late=protocol.scoring.late,
        reuse=cell.reuse,
        curve=file_ref(target, folder),
        collapse=result.collapse if result else None,
    )


def _cost(protocol: Protocol, state: CellState, used: Mapping[str, Any]) -> Cost:
    runtime = protocol.runtime
    seconds = state.training_seconds * runtime.gpus + state.evaluation_seconds * runtime.evaluation_gpus
    return Cost(
        gpu_hours=0.0 if used.get("device", "cpu") == "cpu" else seconds / 3600,
        training_seconds=state.training_seconds,
        evaluation_seconds=state.evaluation_seconds,
    )


def _notes(protocol: Protocol, run: RunDirectory, plans: Sequence[TaskPlan]) -> dict[str, Any]:
    """How many prompts there were and how many were kept; what training and held-out sets share; the device."""
    notes: dict[str, Any] = {}
    if plans:
        notes["overlap"] = evaluation.overlap_note(training_problems(protocol.data.train), plans)
    counts = run.prompts.with_suffix(".json")
    if counts.exists():
        notes["prompts"] = json.loads(counts.read_text())
    if run.worker.exists():
        notes["device"] = json.loads(run.worker.read_text()).get("device")
    return notes
