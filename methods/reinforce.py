"""REINFORCE: the policy gradient without any correction; the control."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from methods.contract import Batch, Card, LossOutputs, Method


class Reinforce(Method):
    """Plain policy gradient that treats every rollout as if the current policy had written it (Williams 1992)."""

    name: ClassVar[str] = "reinforce"
    card: ClassVar[Card] = Card(
        title="REINFORCE",
        idea="No correction at all: old rollouts count as if they were new.",
        formula=r"-A\,\log\pi",
        paper=(
            "Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning, 1992"
        ),
        url="https://doi.org/10.1007/BF00992696",
        weight="none",
        over="tokens",
        exact_gradient=True,
        conventions=("It is the control: what a method gains by correcting for stale rollouts, it gains over this.",),
    )

    def loss(self, batch: Batch) -> LossOutputs:
        """See the card."""
        return batch.policy_gradient(torch.ones_like(batch.lengths))

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        """1 everywhere."""
        return torch.ones_like(log_weight)
