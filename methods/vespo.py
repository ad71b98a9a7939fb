"""VESPO: a smooth kernel on the ratio of the whole response."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from methods.contract import MAX_LOG_RATIO, Batch, Card, Hyperparameter, LossOutputs, Method, by_sign


class VESPO(Method):
    """Policy gradient weighted by phi(W) = W^k exp(lambda (1 - W)) (Shen et al. 2026); constants by the sign of A."""

    name: ClassVar[str] = "vespo"
    card: ClassVar[Card] = Card(
        title="VESPO",
        idea="The response's importance weight is reshaped by a gamma-like kernel that peaks at W = k/lambda.",
        formula=r"-\mathrm{sg}[\phi(W)]\,A\,\log\pi,\quad \log\phi(W) = \lambda + k\log W - \lambda W",
        paper="Shen et al., VESPO: Variational Sequence-Level Soft Policy Optimization, 2026",
        url="https://arxiv.org/abs/2602.10693",
        weight="response",
        over="tokens",
        exact_gradient=False,
        hyperparameters=(
            Hyperparameter("k_pos", 2.0, "Power of W for A >= 0.", 0.0, 100.0),
            Hyperparameter("lambda_pos", 3.0, "Decay in W for A >= 0.", 0.0, 100.0),
            Hyperparameter("k_neg", 3.0, "Power of W for A < 0.", 0.0, 100.0),
            Hyperparameter("lambda_neg", 2.0, "Decay in W for A < 0.", 0.0, 100.0),
        ),
        conventions=(
            "The token log-ratio is clamped to +-20 and then log W to +-20.",
            "A = 0 counts as positive.",
            "A phi that is not finite becomes 0.",
        ),
    )
    k_pos: float
    lambda_pos: float
    k_neg: float
    lambda_neg: float

    def loss(self, batch: Batch) -> LossOutputs:
        """See the card."""
        log_weight = batch.log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).sum(dim=1, keepdim=True)
        return batch.policy_gradient(self.coefficient(log_weight, batch.advantage))

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        """phi(W), in float64 inside: there are few responses, and W reaches exp(20)."""
        log_weight64 = log_weight.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        phi = by_sign(
            advantage_sign,
            _kernel(log_weight64, self.k_pos, self.lambda_pos),
            _kernel(log_weight64, self.k_neg, self.lambda_neg),
        )
        return phi.nan_to_num(nan=0.0, posinf=0.0).to(log_weight.dtype)


def _kernel(log_weight: Tensor, k: float, decay: float) -> Tensor:
    return torch.exp(decay + k * log_weight - decay * log_weight.exp())
