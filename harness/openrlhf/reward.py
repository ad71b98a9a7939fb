"""The reward function that OpenRLHF loads by path (``--reward.remote_url``) and calls in the engine's process."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch

from harness.openrlhf.worker_spec import RewardSpec, WorkerSpec
from tasks.reward import rewards


@cache
def _spec() -> RewardSpec:
    return WorkerSpec.from_environment().reward


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict[str, Any]:
    """Rewards of decoded prompt-and-response texts; a label is JSON with ``gold``, ``row`` and ``eos``."""
    spec = _spec()
    facts = [json.loads(label) for label in labels]
    responses = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=True)]
    finished = [response.endswith(fact["eos"]) for response, fact in zip(responses, facts, strict=True)]
    batch = rewards(
        [response.removesuffix(fact["eos"]) for response, fact in zip(responses, facts, strict=True)],
        [fact["gold"] for fact in facts],
        task=spec.task,
        grader=spec.grader,
        right=spec.right,
        wrong=spec.wrong,
        finished=finished,
    )
    values = torch.tensor(batch.rewards, dtype=torch.float32)
    extra = {
        "grader_disagreement": torch.full_like(values, float(batch.disagreements)),
        "grader_error": torch.full_like(values, float(batch.errors)),
    }
    return {"rewards": values, "scores": values, "extra_logs": extra}
