"""Protocol `small` on a Llama with tied embeddings, random weights and a chat template, through OpenRLHF and vLLM."""

from __future__ import annotations

import json

import pytest

from harness.grid import Cell
from harness.protocol import load_protocol
from tests import chat_model, word_problems
from tests.trained import Trained

pytestmark = [pytest.mark.slow, pytest.mark.stack]

MAX_GAP = 0.02
"""nats: how far trainer and engine may be apart, on average over tokens, on a bf16 model."""


@pytest.fixture(scope="module")
def run(ray_address: str, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two updates of one rollout batch, then two of the next, for which the engine must have the new weights."""
    from harness.runner import CellJob, Places, train_only

    folder = tmp_path_factory.mktemp("small")
    chat_model.save_llama(folder / "model")
    word_problems.put("gsm8k", folder / "data")
    protocol = load_protocol("small").with_overrides(
        {
            "models.0.source": str(folder / "model"),
            "update.updates": 4,
            "update.prompts_per_update": 2,
            "reuse.ratios": [2],
            "checkpoints.every_updates": 4,
            "scoring.early": [1, 2],
            "scoring.late": [3, 4],
            "data.max_prompt_tokens": 512,  # a token is a byte here
            "rollout.max_response_tokens": 16,
            # Random weights are never right: without a coin there would be no advantage and no step.
            "reward.grader": "chance",
            "optimiser.learning_rate": 3e-3,
        }
    )
    cell = Cell(protocol.id, protocol.models[0].name, 2, "respo", 0)
    job = CellJob(protocol, cell, Places(folder / "runs", folder / "results"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REUSE_BENCH_DATA", str(folder / "data"))
        train_only(job, ray_address)
    return Trained(job.run)


def test_it_trains_and_the_engine_follows_a_tied_llama(run: Trained) -> None:
    assert [(line["rollout"], line["mini_batch"]) for line in run.updates] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert max(line["gradient_norm"] for line in run.updates) > 0
    assert max(line["engine_gap"] for line in run.updates) < MAX_GAP


def test_prompts_are_word_problems_in_the_chat_template(run: Trained) -> None:
    rows = [json.loads(line) for line in run.run.prompts.read_text().splitlines()]
    assert len(rows) == 8
    assert all(row["input"].endswith("put your final answer within \\boxed{}.") for row in rows)
    assert {json.loads(row["label"])["eos"] for row in rows} == {"<|im_end|>"}
    assert {json.loads(row["label"])["gold"] for row in rows} <= {"588", "2500", "6", "108", "45", "32"}
    # The model's own template has put more around them: its tokens count as the prompt's.
    assert "<|im_start|>" not in rows[0]["input"]


def test_the_final_weights_are_tied(run: Trained) -> None:
    """OpenRLHF writes the head too; it must be the embedding, as either may be read."""
    from safetensors.torch import load_file

    weights = load_file(run.run.final / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    assert weights.get("lm_head.weight", embedding).equal(embedding)
    assert json.loads((run.run.final / "config.json").read_text())["tie_word_embeddings"]
