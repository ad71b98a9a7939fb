"""TRL's GRPOTrainer, run for a few policy updates, has our losses, as `docs/crosscheck.md` says."""

from __future__ import annotations

import pytest

from harness.grid import Cell
from harness.protocol import load_protocol

pytest.importorskip("trl", reason="TRL is not installed: see docs/crosscheck.md")
pytestmark = pytest.mark.slow

SHORT = {
    "update.updates": 8,
    "reuse.ratios": [4],
    "checkpoints.every_updates": 8,
    "scoring.early": [1, 4],
    "scoring.late": [5, 8],
    "collapse.for_updates": 8,
    "planning": {},
}


@pytest.mark.parametrize("method", ["grpo", "gspo", "vespo"])
def test_every_update_has_our_loss(method: str) -> None:
    from tests.crosscheck.trl.run import train

    protocol = load_protocol("tiny").with_overrides(SHORT)
    document = train(protocol, Cell(protocol.id, "tiny-qwen3", 4, method, 0), "fp32")
    checks = document["checks"]
    assert checks["largest_relative_gradient_difference"] < 1e-5
    assert (checks["largest_loss_difference"] or 0.0) < 1e-5
    assert checks["largest_log_weight_at_first_update"] < 1e-3
    # Later updates of a rollout batch must have moved, or the comparison compares nothing.
    assert max(high for high in document["updates"]["log_weight_positive_q95"] if high is not None) > 0.01
    assert document["rollouts"]["responses"] == [256, 256]
