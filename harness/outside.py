"""Records of checkpoints that no cell trained: base models, and checkpoints trained elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import evaluation, provenance
from harness.evaluation import EngineOptions, Progress, TaskPlan
from harness.models import resolve_model
from harness.protocol import BaseModelSpec, Protocol, drift
from harness.records import Cost, ModelRef, ProtocolRef, Record, Seeds, record_folder, write_record
from harness.run_directory import now
from harness.scoring import unanswerable_note
from harness.seeds import derived_seed
from harness.tiny_model import directory_digest


@dataclass(frozen=True)
class Outside:
    """What is evaluated.

    Attributes:
        spec: name in the store, and where the weights are.
        kind: "base" for a model of the protocol, "external" for any other.
        stated: where an external checkpoint comes from, in its owner's words.
    """

    spec: BaseModelSpec
    kind: Literal["base", "external"]
    stated: str | None = None


def choose(protocol: Protocol, model: str, name: str | None, revision: str | None, stated: str | None) -> Outside:
    """A model of the protocol by its name or source, else an outside checkpoint."""
    for spec in protocol.models:
        if model in (spec.name, spec.source) and revision in (None, spec.revision) and stated is None:
            return Outside(spec, "base")
    said = name or evaluation.name_of(model)
    return Outside(BaseModelSpec(name=said, source=model, revision=revision, stated="command line"), "external", stated)


def evaluate_outside(
    outside: Outside,
    protocol: Protocol,
    plans: Sequence[TaskPlan],
    out: Path,
    *,
    seed: int,
    limit: int | None = None,
    engine: EngineOptions,
    data: Path | None = None,
    store: Path | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Path], Path | None]:
    """Evaluate the checkpoint; with ``store``, write its record there too.

    Returns the sample files by task, and the record's path.

    Raises:
        UserError, EvaluationError: as `harness.evaluation.evaluate_checkpoint`.
    """
    started = now()
    seeds = Seeds(
        run=seed,
        training=derived_seed(seed, "training"),
        rollout=derived_seed(seed, "rollout"),
        evaluation=derived_seed(seed, "evaluation"),
    )
    data_used = evaluation.data_refs(plans, data)  # before a model is fetched: this is what may be missing
    folder = resolve_model(outside.spec)
    files = evaluation.evaluate_checkpoint(
        folder, plans, out, seed=seeds.evaluation, limit=limit, engine=engine, progress=progress, data=data
    )
    if store is None:
        return files, None
    seconds = evaluation.seconds_taken(out)
    collected = provenance.collect(started=started, ended=now())
    deviations = _deviations(outside, protocol, plans, limit, data) + provenance.deviations(collected)
    record = Record(
        kind=outside.kind,
        status="done",
        division="open" if deviations else "closed",
        deviations=deviations,
        protocol=ProtocolRef(id=protocol.id, version=protocol.version, digest=protocol.digest),
        model=ModelRef(
            name=outside.spec.name,
            source=outside.spec.source,
            revision=outside.spec.revision,
            digest=directory_digest(folder),
        ),
        method=None,
        reuse=None,
        seeds=seeds,
        data=data_used,
        training=None,
        checkpoint=None,
        evaluation={},
        attempts=[],
        provenance=collected,
        cost=Cost(
            gpu_hours=seconds * engine.gpus / 3600 if collected.hardware.get("gpus") else 0.0,
            training_seconds=0.0,
            evaluation_seconds=seconds,
        ),
        notes={"stated_provenance": outside.stated} if outside.stated else {},
    )
    place = record_folder(store / record.relative_path())
    results = evaluation.record_results(files, plans, place)
    complete = {"evaluation": results, "notes": record.notes | unanswerable_note(results)}
    return files, write_record(record.model_copy(update=complete), store)


def _deviations(
    outside: Outside, protocol: Protocol, plans: Sequence[TaskPlan], limit: int | None, data: Path | None
) -> list[str]:
    lines = drift(protocol) + evaluation.data_deviations(plans, data)
    if outside.kind == "external":
        lines.append("model: trained elsewhere; what is known of it is what its owner states")
    missing = [task for task in protocol.evaluation.tasks if task not in {plan.task for plan in plans}]
    if missing:
        lines.append(f"evaluation.tasks: {', '.join(missing)} left out")
    if limit is not None:
        lines.append(f"evaluation: only the first {limit} problems of each task")
    return lines
