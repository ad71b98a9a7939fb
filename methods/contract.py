"""What a policy-optimisation loss receives and returns, and the arithmetic that all of them share.

A method sees a `Batch`: the inputs in at least float32, detached, with padding set to zero. It decides two tensors,
the *surrogate* and the *coefficient*; everything else (masks, sums, normalisers, the gradient) is done here, once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are kept inside +-20 where a method says so: exp(20) is 5e8, and float32 holds it easily."""

Over = Literal["tokens", "responses"]
Weight = Literal["none", "token", "mean token", "response"]


@dataclass(frozen=True)
class LossInputs:
    """One micro-batch of responses, as a loss sees it.

    All tensors are of shape [batch, tokens], padded on either side. What lies at padding is never read.

    Attributes:
        log_probs: log-probabilities (nats) of the response tokens under the current policy; carries the gradient.
        old_log_probs: the same under the policy that wrote the rollouts, kept for all N updates of a rollout batch.
        advantages: group-relative advantage of the response, repeated on each of its tokens.
        action_mask: 1 on response tokens, 0 on padding; any dtype.
        rollout_log_probs: log-probabilities reported by the inference engine, when recorded.
        dp_size: number of data-parallel ranks that share the policy update.
        batch_num_tokens: response tokens of the whole mini-batch over all ranks.
        global_batch_size: non-empty responses of the whole mini-batch over all ranks.

    The last three make the loss of a micro-batch a summand of the mini-batch's loss, so that cutting a
    mini-batch into micro-batches or spreading it over ranks changes nothing. Without them the micro-batch
    is the whole mini-batch. OpenRLHF gives them as scalar tensors, divided by the number of accumulation
    steps, because DeepSpeed divides the loss by it again.
    """

    log_probs: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    action_mask: Tensor
    rollout_log_probs: Tensor | None = None
    dp_size: int | None = None
    batch_num_tokens: float | Tensor | None = None
    global_batch_size: float | Tensor | None = None


@dataclass(frozen=True)
class LossOutputs:
    """What a loss returns.

    Attributes:
        loss: scalar, differentiable in ``log_probs``, to be minimised.
        metrics: named scalars, detached.
        coefficient: [batch, tokens], detached: phi, what multiplies A * grad log pi at each token. What it holds
            at padding has no meaning.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    coefficient: Tensor | None = None


@dataclass(frozen=True)
class Hyperparameter:
    """One number that a method can be given.

    Attributes:
        name: the keyword.
        default: the published value; None switches an optional one off.
        meaning: what it does, in one sentence.
        minimum, maximum: the range; both ends belong to it unless ``open_minimum``.
        optional: None is allowed.
    """

    name: str
    default: float | None
    meaning: str
    minimum: float = -math.inf
    maximum: float = math.inf
    open_minimum: bool = False
    optional: bool = False

    @property
    def interval(self) -> str:
        """The range as text, such as ``[0, 1]`` or ``(1, inf)``."""
        left = "(" if self.open_minimum or math.isinf(self.minimum) else "["
        right = ")" if math.isinf(self.maximum) else "]"
        return f"{left}{self.minimum:g}, {self.maximum:g}{right}" + (" or none" if self.optional else "")

    def checked(self, method: str, value: Any) -> float | None:
        """``value`` as a float.

        Raises:
            ValueError: not a number, or outside the range.
        """
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{method}: {self.name}={value!r} is not a number: give one in {self.interval}")
        low_enough = value > self.minimum if self.open_minimum else value >= self.minimum
        if not (math.isfinite(value) and low_enough and value <= self.maximum):
            raise ValueError(f"{method}: {self.name}={value!r} is out of range: give a number in {self.interval}")
        return float(value)


@dataclass(frozen=True)
class Card:
    """What a method is: the one source for the command line, the documentation and the pages.

    Attributes:
        title: the name as people write it.
        idea: one sentence.
        formula: the loss per token, in LaTeX.
        paper: authors, title and year.
        url: where the paper is, or "" when there is none.
        weight: what importance weight the coefficient depends on: the ratio of the "token", its geometric mean over
            the response ("mean token"), the ratio of the whole "response", or "none".
        over: the loss is the mean over all response "tokens" of the mini-batch, or over its "responses" of their
            token means.
        exact_gradient: the loss is the function that is descended, so that finite differences of it give the
            gradient. False for stop-gradient forms, where the gradient is that of -sg(phi) A log pi.
        hyperparameters: with defaults and ranges.
        conventions: facts that are easy to get wrong, one sentence each.
        version: raised whenever the numbers that the method gives change.
    """

    title: str
    idea: str
    formula: str
    paper: str
    url: str
    weight: Weight
    over: Over
    exact_gradient: bool
    hyperparameters: tuple[Hyperparameter, ...] = ()
    conventions: tuple[str, ...] = ()
    version: str = "1"


class Method(ABC):
    """A policy-optimisation loss.

    A subclass gives ``name``, ``card`` and `loss`. Hyperparameters become attributes.

    Raises:
        ValueError: an unknown or invalid hyperparameter; the message names it.
    """

    name: ClassVar[str]
    card: ClassVar[Card]

    def __init__(self, **hyperparameters: float | None) -> None:
        known = {parameter.name: parameter for parameter in self.card.hyperparameters}
        for name in hyperparameters:
            if name not in known:
                names = ", ".join(known) or "none"
                raise ValueError(f"{self.name}: unknown hyperparameter {name!r}: it takes {names}")
        values = {
            name: parameter.checked(self.name, hyperparameters.get(name, parameter.default))
            for name, parameter in known.items()
        }
        self.hyperparameters: Mapping[str, float | None] = values
        for name, value in values.items():
            setattr(self, name, value)

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """The loss of one micro-batch.

        Raises:
            ValueError: tensors of different shapes; the message names the field.
        """
        return self.loss(Batch(inputs, self.card.over))

    @abstractmethod
    def loss(self, batch: Batch) -> LossOutputs:
        """The formula: usually ends in one of `Batch.surrogate`, `Batch.policy_gradient`, `Batch.differentiate`."""

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor | None:
        """phi as a function of the importance weight that ``card.weight`` names; None when there is no such curve.

        Args:
            log_weight: natural logarithm of the weight, any shape.
            advantage_sign: its sign decides the branch, and 0 counts as positive; broadcast against ``log_weight``.
        """
        return None


class Batch:
    """One micro-batch in the form that formulas want: float32 or wider, detached, zero at padding.

    Shapes are [batch, tokens], or [batch, 1] for what belongs to a response. Quantities are computed once, on first
    use; do not write into them.
    """

    def __init__(self, inputs: LossInputs, over: Over = "tokens") -> None:
        shape = inputs.log_probs.shape
        if len(shape) != 2:
            raise ValueError(f"log_probs has shape {tuple(shape)}: it must be [batch, tokens]")
        for name in ("old_log_probs", "advantages", "action_mask", "rollout_log_probs"):
            tensor = getattr(inputs, name)
            if tensor is not None and tensor.shape != shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, log_probs has {tuple(shape)}")
        self.inputs = inputs
        self.over = over
        self.dtype = torch.promote_types(inputs.log_probs.dtype, torch.float32)

    @cached_property
    def padding(self) -> Tensor:
        """True where there is no response token; bool, [batch, tokens]."""
        mask = self.inputs.action_mask
        return mask.logical_not() if mask.dtype == torch.bool else mask == 0

    @cached_property
    def lengths(self) -> Tensor:
        """Response tokens of each response, [batch, 1]."""
        tokens = self.padding.shape[1]
        return (tokens - self.padding.sum(dim=1, keepdim=True)).to(self.dtype)

    @cached_property
    def log_probs(self) -> Tensor:
        """log pi, detached; *not* cleared at padding, because `policy_gradient` does that after its product."""
        return self.inputs.log_probs.detach().to(self.dtype)

    @cached_property
    def old_log_probs(self) -> Tensor:
        """log pi_old, detached, cleared at padding; for `differentiate`."""
        return self.inputs.old_log_probs.detach().to(self.dtype).masked_fill(self.padding, 0.0)

    @cached_property
    def log_ratio(self) -> Tensor:
        """log pi - log pi_old per token, [batch, tokens]."""
        return self._clear(self.log_probs - self.inputs.old_log_probs.detach())

    @cached_property
    def log_weight(self) -> Tensor:
        """log W, the sum of ``log_ratio`` over the response, [batch, 1]."""
        return self.log_ratio.sum(dim=1, keepdim=True)

    @cached_property
    def advantages(self) -> Tensor:
        """A per token, [batch, tokens]; not cleared at padding."""
        return self.inputs.advantages.detach().to(self.dtype)

    @cached_property
    def advantage(self) -> Tensor:
        """A of the response, [batch, 1]; 0 for an empty one."""
        total = self.advantages.masked_fill(self.padding, 0.0).sum(dim=1, keepdim=True)
        return total / self.lengths.clamp(min=1.0)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over response tokens, or over responses of their token means; differentiable, a scalar.

        The normalisers are OpenRLHF's (``aggregate_loss``), so that the means of micro-batches add up.
        """
        return (self._clear(values.clone()) * self.share).sum()

    def fraction(self, flags: Tensor) -> Tensor:
        """Share of this micro-batch's response tokens with ``flags`` set, a scalar; for metrics."""
        count = flags.logical_and(self.padding.logical_not()).sum()
        return count.to(self.dtype) / self.lengths.sum().clamp(min=1.0)

    def surrogate(
        self,
        surrogate: Tensor,
        coefficient: Tensor,
        metrics: Mapping[str, Tensor] | None = None,
    ) -> LossOutputs:
        """The loss -mean(A * surrogate), whose gradient is -A * coefficient at each token.

        Args:
            surrogate: what the objective holds in place of the ratio, [batch, tokens] or [batch, 1].
            coefficient: its derivative with respect to log pi of the token, [batch, tokens] or [batch, 1]. When the
                surrogate is a function of a whole response averaged over its tokens, the derivative with respect
                to the sum of their log pi times the length.
            metrics: detached scalars to report.
        """
        products = self._clear(self.advantages * surrogate)
        return self._outputs(products.sum(dim=1, keepdim=True), coefficient, metrics)

    def policy_gradient(self, coefficient: Tensor, metrics: Mapping[str, Tensor] | None = None) -> LossOutputs:
        """The loss -mean(sg(coefficient) * A * log pi).

        Args:
            coefficient: [batch, tokens], or [batch, 1] when all tokens of a response share it.
            metrics: detached scalars to report.
        """
        products = self.advantages * self.log_probs
        if coefficient.shape == products.shape:
            totals = self._clear(products.mul_(coefficient)).sum(dim=1, keepdim=True)
        else:
            totals = self._clear(products).sum(dim=1, keepdim=True) * coefficient
        return self._outputs(totals, coefficient, metrics)

    def differentiate(
        self, token_loss: Callable[[Tensor], Tensor], metrics: Mapping[str, Tensor] | None = None
    ) -> LossOutputs:
        """Any loss, left to autograd: slower, and the coefficient is read off the gradient (0 where A is 0).

        Args:
            token_loss: takes log pi [batch, tokens], 0 at padding, and returns the loss per token, same shape.
            metrics: detached scalars to report.
        """
        with torch.enable_grad():
            log_probs = self.log_probs.masked_fill(self.padding, 0.0).requires_grad_()
            total = (token_loss(log_probs).masked_fill(self.padding, 0.0) * self.share).sum()
            (gradient,) = torch.autograd.grad(total, log_probs)
        slope = -self.advantages * self.share
        coefficient = torch.where(slope == 0, 0.0, gradient / slope)
        loss = _with_gradient(self.inputs.log_probs, total.detach(), gradient, None, self.padding, None)
        return LossOutputs(loss, metrics or {}, coefficient)

    def _outputs(self, totals: Tensor, coefficient: Tensor, metrics: Mapping[str, Tensor] | None) -> LossOutputs:
        coefficient = coefficient.detach().to(self.dtype)
        loss = _with_gradient(
            self.inputs.log_probs, -(totals * self.share).sum(), coefficient, self.advantages, self.padding, -self.share
        )
        return LossOutputs(loss, metrics or {}, coefficient.expand_as(self.padding))

    @cached_property
    def share(self) -> Tensor:
        """What one token of each response counts in the mean, [batch, 1]."""
        inputs = self.inputs
        if self.over == "tokens":
            if inputs.batch_num_tokens is None:
                share = 1.0 / self.lengths.sum().clamp(min=1.0)
            else:
                share = self._scale(inputs.batch_num_tokens)
            return share.expand_as(self.lengths)
        per_token = 1.0 / self.lengths.clamp(min=1.0)
        if inputs.global_batch_size is None:
            return per_token / (self.lengths > 0).sum().clamp(min=1)
        return per_token * self._scale(inputs.global_batch_size)

    def _scale(self, total: float | Tensor) -> Tensor:
        """dp_size / total: DeepSpeed averages gradients over ranks, and their sum is wanted."""
        dp_size = 1 if self.inputs.dp_size is None else self.inputs.dp_size
        total = torch.as_tensor(total, dtype=self.dtype, device=self.padding.device)
        return dp_size / total.clamp(min=1e-30)  # 0 when the whole mini-batch is empty: then so is every sum

    def _clear(self, fresh: Tensor) -> Tensor:
        """Zero at padding, in place: `where`, not a product, so that padding may even hold NaN."""
        return fresh.masked_fill_(self.padding, 0.0)


class _WithGradient(torch.autograd.Function):
    """A scalar whose value and gradient are both known, so that nothing else has to be kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        log_probs: Tensor,
        value: Tensor,
        coefficient: Tensor,
        advantages: Tensor | None,
        padding: Tensor,
        share: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(coefficient, advantages, padding, share)
        ctx.dtype = log_probs.dtype
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        coefficient, advantages, padding, share = ctx.saved_tensors
        if advantages is None:
            gradient = coefficient * grad_output
        elif coefficient.shape == advantages.shape:
            gradient = (coefficient * advantages).mul_(share * grad_output)
        else:
            gradient = advantages * (coefficient * share * grad_output)
        return gradient.masked_fill_(padding, 0.0).to(ctx.dtype), None, None, None, None, None


def _with_gradient(log_probs: Tensor, value: Tensor, *saved: Tensor | None) -> Tensor:
    loss: Tensor = _WithGradient.apply(log_probs, value, *saved)  # type: ignore[no-untyped-call]
    return loss


def by_sign(advantage_sign: Tensor | float, positive: Tensor, negative: Tensor) -> Tensor:
    """``positive`` where the advantage is at least 0, ``negative`` elsewhere."""
    if isinstance(advantage_sign, Tensor):
        return torch.where(advantage_sign >= 0, positive, negative)
    return positive if advantage_sign >= 0 else negative
