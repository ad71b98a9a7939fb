"""GRPO: the token ratio, clipped on both sides."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from methods.contract import MAX_LOG_RATIO, Batch, Card, Hyperparameter, LossOutputs, Method, by_sign


class GRPO(Method):
    """Clipped policy gradient on token ratios, as in PPO, with group-relative advantages.

    Shao et al. 2024, without the KL term; the clip is that of Schulman et al. 2017, the dual clip that of
    Ye et al. 2020. The pessimistic minimum only ever binds on one side: from above for A >= 0, from below for A < 0.
    """

    name: ClassVar[str] = "grpo"
    card: ClassVar[Card] = Card(
        title="GRPO",
        idea="Each token is trusted while its own probability ratio stays inside a narrow band around 1.",
        formula=r"-\min\bigl(r_t A,\ \mathrm{clip}(r_t, 1-\epsilon_{low}, 1+\epsilon_{high})\,A\bigr)",
        paper="Shao et al., DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models, 2024",
        url="https://arxiv.org/abs/2402.03300",
        weight="token",
        over="tokens",
        exact_gradient=True,
        hyperparameters=(
            Hyperparameter("clip_low", 0.2, "Lower edge of the band: 1 - clip_low.", 0.0, 1.0),
            Hyperparameter("clip_high", 0.2, "Upper edge of the band: 1 + clip_high.", 0.0, 100.0),
            Hyperparameter(
                "dual_clip", None, "For A < 0, ratios above it give no gradient.", 1.0, open_minimum=True, optional=True
            ),
        ),
        conventions=(
            "The clip bounds are distances from 1, not the edges themselves.",
            "The token log-ratio is clamped to +-20, and has no gradient outside.",
        ),
    )
    clip_low: float
    clip_high: float
    dual_clip: float | None

    def loss(self, batch: Batch) -> LossOutputs:
        """See the card."""
        ratio, bounded = self._bound(batch.log_ratio, batch.advantages)
        clipped = bounded != ratio
        coefficient = ratio.masked_fill_(clipped, 0.0)
        coefficient.masked_fill_(batch.log_ratio.abs() > MAX_LOG_RATIO, 0.0)
        return batch.surrogate(bounded, coefficient, metrics={"clip_fraction": batch.fraction(clipped)})

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        """phi as a function of the log-ratio of the token."""
        ratio, bounded = self._bound(log_weight, advantage_sign)
        return ratio.masked_fill(bounded != ratio, 0.0).masked_fill(log_weight.abs() > MAX_LOG_RATIO, 0.0)

    def _bound(self, log_ratio: Tensor, sign: Tensor | float) -> tuple[Tensor, Tensor]:
        """The ratio, and what the objective lets it be."""
        ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp_()
        from_above = ratio.clamp(max=1.0 + self.clip_high)
        from_below = ratio.clamp(min=1.0 - self.clip_low, max=self.dual_clip)
        return ratio, by_sign(sign, from_above, from_below)
