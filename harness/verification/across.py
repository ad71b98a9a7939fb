"""Between records: copies, shared seeds, one task with different problems, first rollouts that differ, and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.records import canonical_json
from harness.verification.checked import Checked, Finding

STEERING = ("OMP_", "MKL_", "VLLM_", "TORCH_")
"""Variables that change what a CPU computes in the last bit."""


def across(checked: Sequence[Checked]) -> list[Finding]:
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


def _first_rollout(one: Checked, known: dict[tuple[Any, ...], tuple[str, str]]) -> list[Finding]:
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


def _gaps(checked: Sequence[Checked]) -> list[Finding]:
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
