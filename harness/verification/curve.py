"""Training: what a record says of it, against the stored curve and the protocol's rule of collapse."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.curves import read_updates, training_summary
from harness.protocol import Protocol, available, collapse_reason, load_protocol
from harness.records import Record
from harness.verification.checked import Checked, compare
from harness.verification.files import CURVE
from methods.errors import UserError


def check_training(one: Checked, record: Record, folder: Path) -> None:
    """Summary, status and updates per rollout, recomputed from the curve."""
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
    compare(one, "training", found.model_dump(), stated.model_dump(), leave=unknown | {"curve"})
    if (record.status == "collapsed") != (stated.collapse is not None):
        one.error("training.collapse", f"{stated.collapse!r}, but the status is {record.status}")
    if protocol is not None:
        reason = collapse_reason(protocol.collapse, [x.get("loss") for x in lines], [x["score"] for x in lines])
        if reason and record.status == "done":
            one.error("status", f"done, but by the protocol's rule the run collapsed: {reason}")
        if reason is None and record.status == "collapsed":
            one.error("status", "collapsed, but the curve does not meet the protocol's rule")


def _check_lines(one: Checked, lines: Sequence[Mapping[str, Any]], reuse: int) -> None:
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


def _protocol(record: Record) -> Protocol | None:
    """The protocol of the package that the record says it followed, if it is still the same."""
    if record.protocol.id not in available():
        return None
    protocol = load_protocol(record.protocol.id)
    return protocol if protocol.digest == record.protocol.digest else None
