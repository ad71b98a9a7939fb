"""The contract holds for every method, and a method that is wrong in one way fails the row for it and no other."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from methods import Batch, Card, LossInputs, LossOutputs, Method, available, get
from methods.conformance import CHECKS, check, check_row
from methods.contract import Over, Weight

pytestmark = pytest.mark.slow

VERDICTS = [key for key in CHECKS if key != "cost"]


def _card(over: Over = "tokens", exact: bool = False, weight: Weight = "response") -> Card:
    return Card("Broken", "Wrong on purpose.", "-A", "nobody", "", weight, over, exact)


class Sound(Method):
    """Policy gradient with phi = W exp(1 - W), whose slope at W = 1 is 0; what the broken ones start from."""

    name = "sound"
    card: ClassVar[Card] = _card()

    def loss(self, batch: Batch) -> LossOutputs:
        return batch.policy_gradient(self.phi(batch.log_weight))

    @staticmethod
    def phi(log_weight: Tensor) -> Tensor:
        bounded = log_weight.clamp(-20, 20)
        return torch.exp(bounded + 1 - bounded.exp())


class PaddedLength(Method):
    """Divides by the width of the batch, where it should divide by the length of the response."""

    card: ClassVar[Card] = _card("responses", exact=True, weight="token")

    def loss(self, batch: Batch) -> LossOutputs:
        log_ratio = (batch.inputs.log_probs.to(batch.dtype) - batch.old_log_probs).masked_fill(batch.padding, 0.0)
        ratio = log_ratio.clamp(-20, 20).exp()
        value = (-ratio * batch.advantages).masked_fill(batch.padding, 0.0).sum() / batch.padding.shape[1]
        total, ranks = batch.inputs.global_batch_size, batch.inputs.dp_size or 1
        responses = (batch.lengths > 0).sum().clamp(min=1) if total is None else total
        coefficient = ratio.detach().masked_fill(log_ratio.abs() > 20, 0.0)
        return LossOutputs(value * ranks / responses, {}, coefficient)


class GradientThroughPhi(Sound):
    """Forgets the stop-gradient."""

    def loss(self, batch: Batch) -> LossOutputs:
        log_probs = batch.inputs.log_probs.to(batch.dtype).masked_fill(batch.padding, 0.0)
        log_weight = (log_probs - batch.old_log_probs).sum(dim=1, keepdim=True)
        phi = self.phi(log_weight)
        return LossOutputs(
            batch.mean(-phi * batch.advantages * log_probs), {}, phi.detach().expand_as(log_probs).clone()
        )


class FlippedSign(Sound):
    """Makes good responses rarer."""

    def loss(self, batch: Batch) -> LossOutputs:
        return batch.policy_gradient(-self.phi(batch.log_weight))


class ForgottenMask(Sound):
    """Lets every position of the batch take part, padding too."""

    def loss(self, batch: Batch) -> LossOutputs:
        phi = self.phi(batch.log_weight).expand_as(batch.padding)
        log_probs = batch.inputs.log_probs.to(batch.dtype)
        return LossOutputs((-phi * batch.advantages * log_probs * batch.share).sum(), {}, phi)


class MicroBatchMean(Sound):
    """Takes the mean over the micro-batch, whatever the mini-batch is."""

    def loss(self, batch: Batch) -> LossOutputs:
        inputs = batch.inputs
        alone = LossInputs(inputs.log_probs, inputs.old_log_probs, inputs.advantages, inputs.action_mask)
        return super().loss(Batch(alone))


class NanAtTheTail(Sound):
    """Computes W itself, not in log space, and without a clamp: infinity times zero."""

    def loss(self, batch: Batch) -> LossOutputs:
        weight = batch.log_weight.exp()
        return batch.policy_gradient(weight * torch.exp(1 - weight))


class NanOfNothing(Sound):
    """Divides by the tokens of the micro-batch, which may have none."""

    def loss(self, batch: Batch) -> LossOutputs:
        tokens = batch.lengths.sum()
        return batch.policy_gradient(self.phi(batch.log_weight) * (tokens / tokens))


class OneNumber(Sound):
    """Forgets that its curve is asked for at many weights."""

    def coefficient(self, log_weight: Tensor, advantage_sign: Tensor | float) -> Tensor:
        return self.phi(log_weight).mean()


class HalfPrecision(Sound):
    """Adds up log-ratios in the precision they came in."""

    def loss(self, batch: Batch) -> LossOutputs:
        ratio = (batch.inputs.log_probs.detach() - batch.inputs.old_log_probs).masked_fill(batch.padding, 0.0)
        total = torch.zeros_like(ratio[:, :1])
        for start in range(0, 4):
            total = total + ratio[:, start::4].sum(dim=1, keepdim=True)
        return batch.policy_gradient(self.phi(total).to(batch.dtype))


class Loop(Sound):
    """Visits tokens one by one."""

    def loss(self, batch: Batch) -> LossOutputs:
        weight = torch.zeros_like(batch.lengths)
        if batch.padding.shape[1] > 300:  # keeps this test quick: long batches are not what it is about
            return super().loss(batch)
        for token in range(batch.padding.shape[1]):
            weight = weight + batch.log_ratio[:, token : token + 1]
        return batch.policy_gradient(self.phi(weight))


class LiveMetric(Sound):
    """Keeps the graph alive in a metric."""

    def loss(self, batch: Batch) -> LossOutputs:
        outputs = super().loss(batch)
        return LossOutputs(outputs.loss, {"loss": outputs.loss}, outputs.coefficient)


class WritesIntoInputs(Sound):
    """Changes the trainer's tensors, here only after it has used them."""

    def loss(self, batch: Batch) -> LossOutputs:
        outputs = super().loss(batch)
        batch.inputs.old_log_probs.add_(0.0).masked_fill_(~batch.padding & (batch.log_ratio > 0), -1.0)
        return outputs


class Restless(Sound):
    """Different every time, in the last bits."""

    def loss(self, batch: Batch) -> LossOutputs:
        noise = 1e-6 if batch.dtype == torch.float32 else 0.0
        return batch.policy_gradient(self.phi(batch.log_weight) * (1 + noise * torch.rand(())))


class NeighbourLeaks(Sound):
    """Shifts every advantage by that of the first response; gone when the batch is on-policy."""

    def loss(self, batch: Batch) -> LossOutputs:
        phi = self.phi(batch.log_weight)
        phi = torch.cat([phi[:1] * (1 + 0.01 * torch.tanh(batch.log_weight[:1].abs())), phi[1:]])
        return batch.policy_gradient(phi)


BROKEN = [
    (PaddedLength, "lengths"),
    (GradientThroughPhi, "gradient"),
    (FlippedSign, "on_policy"),
    (ForgottenMask, "mask"),
    (MicroBatchMean, "batching"),
    (NanAtTheTail, "tails"),
    (NanOfNothing, "extremes"),
    (HalfPrecision, "precision"),
    (Loop, "vectorised"),
    (LiveMetric, "outputs"),
    (OneNumber, "outputs"),
    (Restless, "repeatable"),
]


def _failed(method: Method) -> set[str]:
    return {row.key for row in check(method) if row.status == "fails"}


@pytest.mark.parametrize("key", CHECKS)
@pytest.mark.parametrize("name", list(available()))
def test_every_method_holds_every_row(name: str, key: str) -> None:
    row = check_row(get(name)(), key)
    assert row.status == ("reported" if key == "cost" else "holds"), row


def test_the_sound_method_holds_every_row() -> None:
    assert _failed(Sound()) == set()


@pytest.mark.parametrize(("broken", "row"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_method_fails_its_row_and_no_other(broken: type[Method], row: str) -> None:
    broken.name = "broken"
    assert _failed(broken()) == {row}


def test_writing_into_inputs_fails() -> None:
    row = check_row(WritesIntoInputs(), "repeatable")
    assert row.status == "fails"
    assert "writes into old_log_probs" in row.figure


def test_writing_into_the_policys_own_log_probs_fails() -> None:
    class WritesBehindTheGradient(Sound):
        def loss(self, batch: Batch) -> LossOutputs:
            outputs = super().loss(batch)
            batch.inputs.log_probs.detach().clamp_(min=-0.5)  # shares the memory
            return outputs

    row = check_row(WritesBehindTheGradient(), "repeatable")
    assert row.status == "fails"
    assert "writes into log_probs" in row.figure


def test_dependence_on_the_order_fails() -> None:
    assert "order" in _failed(NeighbourLeaks())


def test_a_method_that_raises_fails_with_its_message() -> None:
    class Raises(Sound):
        def loss(self, batch: Batch) -> LossOutputs:
            raise RuntimeError("no\nluck")

    for row in check(Raises()):
        assert row.status == "fails"
        assert row.figure == "raised RuntimeError: no luck"


def test_a_method_that_ends_the_process_fails() -> None:
    class Exits(Sound):
        def loss(self, batch: Batch) -> LossOutputs:
            raise SystemExit(0)

    assert check_row(Exits(), "on_policy").status == "fails"


def test_cost_compares_with_the_baseline() -> None:
    """A slow baseline makes any method look fast."""

    def slow(inputs: LossInputs) -> Tensor:
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            pass
        return inputs.log_probs.sum()

    row = check_row(Sound(), "cost", slow)
    assert row.status == "reported"
    ratio = float(row.figure.split("; ")[1].split()[0])
    assert ratio < 0.9
