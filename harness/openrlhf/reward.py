"""The reward function that OpenRLHF loads by path (``--reward.remote_url``) and calls in the engine's process."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch

from harness.openrlhf.worker_spec import WorkerSpec
from tasks.reward import RewardBatch, chance_rewards, rewards


@cache
def _worker_spec() -> WorkerSpec:
    return WorkerSpec.from_environment()


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict[str, Any]:
    """Rewards in the form that OpenRLHF reads; it asks for one response at a time.

    Args:
        queries: decoded texts, each a prompt and its response with the end token, if there is one.
        prompts: their prompts.
        labels: JSON with the answer (``gold``), the number of the prompt's ``row`` and the end token (``eos``).

    Returns:
        ``rewards`` and ``scores``: the same float32 tensor, [responses]; ``extra_logs``: two such tensors, on how many
        responses the graders disagree and how many the rewarding one gave no verdict on, repeated for each response.
    """
    facts = [json.loads(label) for label in labels]
    responses = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=True)]
    finished = [response.endswith(fact["eos"]) for response, fact in zip(responses, facts, strict=True)]
    texts = [response.removesuffix(fact["eos"]) for response, fact in zip(responses, facts, strict=True)]
    batch = _rewards(texts, facts, finished)
    values = torch.tensor(batch.rewards, dtype=torch.float32)
    extra = {
        "grader_disagreement": torch.full_like(values, float(batch.disagreements)),
        "grader_error": torch.full_like(values, float(batch.errors)),
    }
    return {"rewards": values, "scores": values, "extra_logs": extra}


def _rewards(texts: list[str], facts: list[dict[str, Any]], finished: list[bool]) -> RewardBatch:
    worker = _worker_spec()
    spec = worker.reward
    if spec.grader == "chance":
        coins = [(worker.run_seed, fact["row"]) for fact in facts]
        return chance_rewards(texts, coins, right=spec.right, wrong=spec.wrong)
    return rewards(
        texts,
        [fact["gold"] for fact in facts],
        task=spec.task,
        grader=spec.grader,
        right=spec.right,
        wrong=spec.wrong,
        finished=finished,
    )
