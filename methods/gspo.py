"""GSPO: the ratio of the whole response, length-normalised and clipped."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from methods.contract import Batch, Card, Hyperparameter, LossOutputs, Method, by_sign

MAX_LOG_MEAN_RATIO = 10.0


class GSPO(Method):
    """Clipped policy gradient on the geometric mean of a response's token ratios (Zheng et al. 2025)."""

    name: ClassVar[str] = "gspo"
    card: ClassVar[Card] = Card(
        title="GSPO",
        idea="A response is trusted as a whole while the geometric mean of its token ratios stays very close to 1.",
        formula=(
            r"-\min\bigl(s A,\ \mathrm{clip}(s, 1-\epsilon_{low}, 1+\epsilon_{high})\,A\bigr),"
            r"\quad s = W^{1/\mathrm{length}}"
        ),
        paper="Zheng et al., Group Sequence Policy Optimization, 2025",
        url="https://arxiv.org/abs/2507.18071",
        weight="mean token",
        over="responses",
        exact_gradient=True,
        hyperparameters=(
            Hyperparameter("clip_low", 3e-4, "Lower edge of the band: 1 - clip_low.", 0.0, 1.0),
            Hyperparameter("clip_high", 4e-4, "Upper edge of the band: 1 + clip_high.", 0.0, 100.0),
        ),
        conventions=(
            "The clip bounds are distances from 1 of the length-normalised ratio: far narrower than GRPO's.",
            "log s is clamped at 10 from above, and has no gradient beyond.",
            "Long responses do not count more than short ones.",
        ),
    )
    clip_low: float
    clip_high: float

    def loss(self, batch: Batch) -> LossOutputs:
        """See the card."""
        log_mean_ratio = batch.log_weight / batch.lengths.clamp(min=1.0)
        ratio, bounded = self._bound(log_mean_ratio, batch.advantage)
        clipped = bounded != ratio
        coefficient = ratio.masked_fill(clipped | (log_mean_ratio > MAX_LOG_MEAN_RATIO), 0.0)
        return batch.surrogate(bounded, coefficient, metrics={"clip_fraction": batch.fraction(clipped)})

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        """phi as a function of log s, the mean log-ratio of the response's tokens."""
        ratio, bounded = self._bound(log_weight, advantage_sign)
        return ratio.masked_fill((bounded != ratio) | (log_weight > MAX_LOG_MEAN_RATIO), 0.0)

    def _bound(self, log_mean_ratio: Tensor, sign: Tensor | float) -> tuple[Tensor, Tensor]:
        """The length-normalised ratio, and what the objective lets it be."""
        ratio = log_mean_ratio.clamp(max=MAX_LOG_MEAN_RATIO).exp()
        return ratio, by_sign(sign, ratio.clamp(max=1.0 + self.clip_high), ratio.clamp(min=1.0 - self.clip_low))
