"""Our training beside that of TRL's GRPOTrainer: ``docs/crosscheck.md``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.protocol import load_protocol
from harness.records import iter_records
from methods.errors import UserError
from tests.crosscheck.compare import (
    DIAGNOSTICS,
    SCORES,
    TRL_RESULTS,
    Run,
    differing,
    equal_losses,
    our_runs,
    pooled,
    report,
    rows,
    trl_runs,
)

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(TRL_RESULTS.rglob("*.json"))
MASTER = TRL_RESULTS / "master"


def shifted(run: Run, points: float) -> Run:
    return replace(run, values={name: value + points / 100 for name, value in run.values.items()})


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_trl_had_our_loss_at_every_update(path: Path) -> None:
    document = json.loads(path.read_bytes())
    checks = document["checks"]
    assert len(document["updates"]["loss"]) == 256
    assert sum(document["rollouts"]["responses"]) == 256 * 64
    assert (checks["largest_loss_difference"] or 0.0) < 1e-6
    assert checks["largest_log_weight_at_first_update"] == 0.0
    assert checks["largest_relative_gradient_difference"] < 1e-5
    assert checks["tokens_that_differ_at_a_clip_bound"] <= 1


def test_both_sides_had_one_protocol_and_one_base_model() -> None:
    theirs = [json.loads(path.read_bytes()) for path in FILES]
    ours = [record for _, record in iter_records(ROOT / "results") if record.protocol.id == "tiny"]
    tiny = load_protocol("tiny")
    assert {record.protocol.digest for record in ours} == {tiny.digest}
    # Some runs of TRL are older than REINFORCE's place among the protocol's methods; nothing else has changed.
    listed = {name: values for name, values in tiny.methods.hyperparameters.items() if name != "reinforce"}
    without = tiny.model_copy(update={"methods": tiny.methods.model_copy(update={"hyperparameters": listed})})
    assert {one["protocol_digest"] for one in theirs} <= {tiny.digest, without.digest}
    assert {one["model_digest"] for one in theirs} == {record.model.digest for record in ours}


def test_both_methods_were_run_at_both_ends() -> None:
    assert {("grpo", 8), ("grpo", 32), ("gspo", 8), ("gspo", 32)} <= set(trl_runs(MASTER))


def test_the_trainers_agree() -> None:
    ours, theirs = our_runs(ROOT / "results"), trl_runs(MASTER)
    assert all(len(runs) > 1 and len(ours[setting]) > 1 for setting, runs in theirs.items())
    assert not differing(rows(ours, theirs, SCORES))


def test_the_document_says_what_the_runs_say() -> None:
    document = (ROOT / "docs" / "crosscheck.md").read_text(encoding="utf-8")
    ours, theirs = our_runs(ROOT / "results"), trl_runs(MASTER)
    tables = f"{equal_losses(sorted(TRL_RESULTS.iterdir()))}\n{report(ours, theirs)}"
    lines = [line for line in tables.splitlines() if line.startswith(("| grpo", "| gspo"))]
    assert len(lines) == 2 + 4 * (len(SCORES) + len(DIAGNOSTICS))
    assert [line for line in lines if line not in document] == []
    prose = " ".join(document.split())
    early, late, mean = (pooled(ours, theirs, name) for name in SCORES)
    for found, said in ((early, "our early score is {:.1f} points above TRL's"), (late, "the late one {:.1f} below")):
        assert (
            f"{said.format(abs(100 * found.difference))} ({100 * found.low:+.1f} to {100 * found.high:+.1f})" in prose
        )
    assert f"the mean over the run {abs(100 * mean.difference):.1f} below" in prose
    diagnostics = rows(ours, theirs, DIAGNOSTICS)
    apart = [row for row in diagnostics if row.comparison.low > 0 or row.comparison.high < 0]
    assert {row.setting[0] for row in apart} == {"gspo"}
    assert (len(apart), len(diagnostics)) == (3, 20)
    assert f"the smallest p being {min(row.p_value for row in diagnostics):.3f}" in prose
    assert not differing(diagnostics)


def test_a_difference_would_be_found() -> None:
    theirs = {setting: runs for setting, runs in trl_runs(MASTER).items() if len(runs) > 1}
    assert not differing(rows(theirs, theirs, SCORES))
    other = {setting: [shifted(run, -40) for run in runs] for setting, runs in theirs.items()}
    assert differing(rows(other, theirs, SCORES))
    assert pooled(other, theirs, "mean").high < 0
    assert "ours is -40.00 points" in report(other, theirs)


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "grpo-n8-seed0.json").write_text("{}")
    with pytest.raises(UserError, match=r"grpo-n8-seed0\.json: no result"):
        trl_runs(tmp_path)
