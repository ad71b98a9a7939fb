"""OpenRLHF's own trainer with our losses, on a real Ray with a real vLLM."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from harness.protocol import Protocol
from methods import get
from methods.registry import source_digest
from tests.trained import Trained

pytestmark = [pytest.mark.slow, pytest.mark.stack]

Train = Callable[[str, str], Trained]

MAX_GAP = 0.02
"""nats: how far trainer and engine may be apart, on average over tokens, on a bf16 model."""


def signs(line: dict[str, dict[str, dict[str, float]]]) -> list[dict[str, float]]:
    return [part for part in line["log_weight"].values() if part["responses"]]


def test_every_rollout_batch_feeds_n_updates_and_the_run_ends_on_time(trained: Train, tied_smoke: Protocol) -> None:
    run = trained("grpo", "first")
    total = tied_smoke.update.updates
    assert [line["update"] for line in run.updates] == list(range(1, total + 1))
    assert [line["rollout"] for line in run.updates] == [1 + index // 4 for index in range(total)]
    assert [line["mini_batch"] for line in run.updates] == [index % 4 for index in range(total)]
    assert [line["first_row"] for line in run.rollouts] == [0, 4 * tied_smoke.update.prompts_per_update]
    assert {line["responses"] for line in run.updates} == {tied_smoke.responses_per_update}


def test_the_score_is_the_mean_reward_of_the_rollout_batch(trained: Train) -> None:
    updates = trained("grpo", "first").updates
    for batch in (updates[:4], updates[4:]):
        mean = math.fsum(line["reward"] for line in batch) / 4
        assert {line["score"] for line in batch} == {batch[0]["score"]}
        assert math.isclose(batch[0]["score"], (mean + 1) / 2, rel_tol=1e-5)


def test_old_log_probs_are_those_before_the_first_update(trained: Train) -> None:
    for line in trained("grpo", "first").updates:
        extremes = [abs(part[name]) for part in signs(line) for name in ("min", "max")]
        if line["mini_batch"] == 0:
            assert extremes
            assert max(extremes) == 0.0, line["update"]
        else:
            assert max(extremes) > 0.0, line["update"]


def test_engine_and_trainer_agree_after_every_weight_sync_with_tied_embeddings(trained: Train) -> None:
    gaps = [line["engine_gap"] for line in trained("grpo", "first").updates]
    assert max(gaps) < MAX_GAP
    # Updates really moved the weights, so that a stale copy would have shown.
    assert trained("grpo", "first").updates[-1]["gradient_norm"] > 0


def test_the_worker_reports_the_loss_that_it_used(trained: Train) -> None:
    for method in ("grpo", "respo"):
        report = json.loads(trained(method, "first").run.worker.read_text())
        assert report["source_sha256"] == source_digest(method)
        assert report["hyperparameters"] == dict(get(method)().hyperparameters)


def test_two_methods_from_one_seed_start_alike_and_part(trained: Train) -> None:
    grpo, respo = trained("grpo", "first"), trained("respo", "first")
    assert grpo.rollouts[0] == respo.rollouts[0]
    assert grpo.updates[0]["score"] == respo.updates[0]["score"]
    assert grpo.updates[1]["loss"] != respo.updates[1]["loss"]
    assert grpo.weights != respo.weights


def test_one_method_twice_from_one_seed(trained: Train) -> None:
    first, second = trained("grpo", "first"), trained("grpo", "second")
    assert first.rollouts[0] == second.rollouts[0]
    for ours, theirs in zip(first.updates[:4], second.updates[:4], strict=True):
        assert math.isclose(ours["loss"], theirs["loss"], rel_tol=1e-3, abs_tol=1e-4)
        assert math.isclose(ours["gradient_norm"], theirs["gradient_norm"], rel_tol=1e-2)


def test_prompts_come_in_the_order_of_the_file(trained: Train, tied_smoke: Protocol) -> None:
    run = trained("grpo", "first").run
    rows = [json.loads(line) for line in run.prompts.read_text().splitlines()]
    assert len(rows) == tied_smoke.prompts
    assert [json.loads(row["label"])["row"] for row in rows] == list(range(len(rows)))
    assert run.prompts.read_bytes() == trained("respo", "first").run.prompts.read_bytes()


def test_a_finished_run_given_again_does_nothing(trained: Train, tied_smoke: Protocol) -> None:
    from harness.training import read_result

    run = trained("grpo", "first").run
    result = read_result(run)
    assert result.updates == tied_smoke.update.updates
    assert result.collapse is None
    assert not run.checkpoints.exists()
