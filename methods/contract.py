"""What a policy-optimisation loss receives and returns, and the arithmetic that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class LossInputs:
    """One micro-batch of responses, as a loss sees it.

    All tensors are float, of shape [batch, tokens], padded on either side.

    Attributes:
        log_probs: log-probabilities (nats) of the response tokens under the current policy; carries the gradient.
        old_log_probs: the same under the policy that wrote the rollouts, kept for all N updates of a rollout batch.
        advantages: group-relative advantage of the response, repeated on each of its tokens.
        action_mask: 1 on response tokens, 0 on padding.
        rollout_log_probs: log-probabilities reported by the inference engine, when recorded.
        dp_size: number of data-parallel ranks that share the policy update.
        batch_num_tokens: response tokens of the whole mini-batch over all ranks.
        global_batch_size: responses of the whole mini-batch over all ranks.

    The last three make the loss of a micro-batch a summand of the mini-batch's loss, so that cutting a
    mini-batch into micro-batches or spreading it over ranks changes nothing. Without them the micro-batch
    is the whole mini-batch.
    """

    log_probs: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    action_mask: Tensor
    rollout_log_probs: Tensor | None = None
    dp_size: int | None = None
    batch_num_tokens: float | None = None
    global_batch_size: float | None = None


@dataclass(frozen=True)
class LossOutputs:
    """What a loss returns.

    Attributes:
        loss: scalar, differentiable in ``log_probs``, to be minimised.
        metrics: named scalars, detached.
        coefficient: [batch, tokens], detached: phi, what multiplies A * grad log pi at each token.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    coefficient: Tensor | None = None
