"""ReSPO: a two-branch kernel on the ratio of the whole response."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from methods.contract import MAX_LOG_RATIO, Batch, Card, Hyperparameter, LossOutputs, Method, by_sign


class ReSPO(Method):
    """Policy gradient weighted by phi(W) = phi0 exp(lambda (1 - phi0)), phi0 a power mean of 1 and W.

    With the published constants the positive branch falls from e/2 at W = 0, and the negative branch vanishes at both
    ends with its peak at W = 1/4; both pass W = 1 with value 1 and slope -1/2.
    """

    name: ClassVar[str] = "respo"
    card: ClassVar[Card] = Card(
        title="ReSPO",
        idea=(
            "Positive responses that the policy has drifted away from keep their weight, negative ones lose it, "
            "through one kernel family with a branch for each sign of the advantage."
        ),
        formula=(
            r"-\mathrm{sg}[\phi(W)]\,A\,\log\pi,\quad"
            r"\phi_0(W) = \bigl[(1-\beta) + \beta W^{\alpha-1}\bigr]^{1/(\alpha-1)},\quad"
            r"\phi(W) = \phi_0\,e^{\lambda(1-\phi_0)}"
        ),
        paper="ReSPO, 2026",
        url="",
        weight="response",
        over="tokens",
        exact_gradient=False,
        hyperparameters=(
            Hyperparameter("alpha_pos", 2.0, "Order of the mean for A >= 0; at 1 it is geometric.", -9.0, 11.0),
            Hyperparameter("beta_pos", 0.5, "Share of W in the mean for A >= 0.", 0.0, 1.0),
            Hyperparameter("lambda_pos", 2.0, "Decay of the kernel for A >= 0.", 0.0, 100.0),
            Hyperparameter("alpha_neg", 1.0, "Order of the mean for A < 0; at 1 it is geometric.", -9.0, 11.0),
            Hyperparameter("beta_neg", 0.5, "Share of W in the mean for A < 0.", 0.0, 1.0),
            Hyperparameter("lambda_neg", 2.0, "Decay of the kernel for A < 0.", 0.0, 100.0),
        ),
        conventions=(
            "log W is clamped to +-20; the token log-ratios are not clamped.",
            "A = 0 counts as positive.",
            "A phi that is not finite becomes 0.",
        ),
    )
    alpha_pos: float
    beta_pos: float
    lambda_pos: float
    alpha_neg: float
    beta_neg: float
    lambda_neg: float

    def loss(self, batch: Batch) -> LossOutputs:
        """See the card."""
        return batch.policy_gradient(self.coefficient(batch.log_weight, batch.advantage))

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        """phi(W), in float64 inside: there are few responses, and alpha near 1 cancels."""
        log_weight64 = log_weight.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        phi = by_sign(
            advantage_sign,
            _kernel(log_weight64, self.alpha_pos, self.beta_pos, self.lambda_pos),
            _kernel(log_weight64, self.alpha_neg, self.beta_neg, self.lambda_neg),
        )
        return phi.nan_to_num(nan=0.0, posinf=0.0).to(log_weight.dtype)


def _kernel(log_weight: Tensor, alpha: float, beta: float, decay: float) -> Tensor:
    order = alpha - 1.0
    if order == 0.0 or beta == 1.0:
        log_phi0 = beta * log_weight
    else:
        # log[(1 - beta) + beta W^order] / order, in the form that keeps its digits as order goes to 0.
        log_phi0 = torch.log1p(beta * torch.expm1(order * log_weight)) / order
    return torch.exp(log_phi0 + decay * (1.0 - log_phi0.exp()))
