"""CISPO: the token ratio, clipped but never cut off from the gradient."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from methods.contract import MAX_LOG_RATIO, Batch, Card, Hyperparameter, LossOutputs, Method


class CISPO(Method):
    """Policy gradient weighted by the clipped token ratio, under stop-gradient (MiniMax 2025)."""

    name: ClassVar[str] = "cispo"
    card: ClassVar[Card] = Card(
        title="CISPO",
        idea="Importance weights are clipped instead of updates, so that no token ever loses its gradient.",
        formula=r"-\mathrm{sg}\bigl[\mathrm{clip}(r_t, 1-\epsilon_{low}, 1+\epsilon_{high})\bigr]\,A\,\log\pi_t",
        paper="MiniMax, MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention, 2025",
        url="https://arxiv.org/abs/2506.13585",
        weight="token",
        over="tokens",
        exact_gradient=False,
        hyperparameters=(
            Hyperparameter("clip_low", 1.0, "Lower edge of the weight: 1 - clip_low.", 0.0, 1.0),
            Hyperparameter("clip_high", 4.0, "Upper edge of the weight: 1 + clip_high.", 0.0, 100.0),
        ),
        conventions=(
            "The clip bounds are distances from 1: clip_high = 4 means a weight of at most 5.",
            "The paper sets no lower bound (clip_low = 1) and does not state the upper one; 5 is the recommendation of "
            "ScaleRL (Khatri et al. 2025).",
            "The token log-ratio is clamped to +-20.",
        ),
    )
    clip_low: float
    clip_high: float

    def loss(self, batch: Batch) -> LossOutputs:
        """See the card."""
        coefficient = self.coefficient(batch.log_ratio, 1.0)
        clipped = (coefficient == 1.0 + self.clip_high) | (coefficient == 1.0 - self.clip_low)
        return batch.policy_gradient(coefficient, metrics={"clip_fraction": batch.fraction(clipped)})

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        """phi as a function of the log-ratio of the token; the same for both signs."""
        ratio = log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp_()
        return ratio.clamp_(1.0 - self.clip_low, 1.0 + self.clip_high)
