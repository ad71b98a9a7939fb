"""Properties that every registered method has, on inputs that hypothesis thinks of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from methods import Batch, LossInputs, LossOutputs, Method, available, get
from methods.registry import BUILT_IN

NAMES = [name for name, found in available().items() if found.origin == BUILT_IN]
EXACT = {"rtol": 1e-10, "atol": 1e-12}


@dataclass(frozen=True)
class Sizes:
    seed: int
    responses: int
    tokens: int
    spread: float


SIZES = st.builds(
    Sizes,
    seed=st.integers(0, 2**32 - 1),
    responses=st.integers(1, 6),
    tokens=st.integers(1, 12),
    spread=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 50.0]),
)


def _inputs(sizes: Sizes) -> LossInputs:
    """A ragged batch, left- or right-padded, with empty responses now and then; log-ratios within +-spread."""
    generator = torch.Generator().manual_seed(sizes.seed)
    shape = (sizes.responses, sizes.tokens)

    def uniform(size: tuple[int, ...]) -> Tensor:
        return torch.rand(size, generator=generator, dtype=torch.float64)

    old = -3.0 * uniform(shape)
    lengths = torch.randint(0, sizes.tokens + 1, (sizes.responses, 1), generator=generator)
    mask = torch.arange(sizes.tokens) < lengths
    left = uniform((sizes.responses, 1)) < 0.5
    mask = torch.where(left, mask.flip(1), mask)
    advantages = (4.0 * uniform((sizes.responses, 1)) - 2.0).expand(shape)
    return LossInputs(old + sizes.spread * (2.0 * uniform(shape) - 1.0), old, advantages, mask.to(torch.int64))


def _run(method: Method, inputs: LossInputs) -> tuple[LossOutputs, Tensor]:
    log_probs = inputs.log_probs.detach().clone().requires_grad_()
    outputs = method(replace(inputs, log_probs=log_probs))
    (gradient,) = torch.autograd.grad(outputs.loss, log_probs)
    return outputs, gradient


def _rows(inputs: LossInputs, rows: Tensor | slice) -> LossInputs:
    return replace(
        inputs,
        log_probs=inputs.log_probs[rows],
        old_log_probs=inputs.old_log_probs[rows],
        advantages=inputs.advantages[rows],
        action_mask=inputs.action_mask[rows],
    )


@pytest.fixture(params=NAMES)
def method(request: pytest.FixtureRequest) -> Method:
    return get(request.param)()


@given(sizes=SIZES)
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_on_policy_limit_is_the_policy_gradient(name: str, sizes: Sizes) -> None:
    """At W = 1 the gradient of every token is -A times its share in the mean."""
    inputs = _inputs(replace(sizes, spread=0.0))
    outputs, gradient = _run(get(name)(), inputs)
    mask = inputs.action_mask.double()
    lengths = mask.sum(dim=1, keepdim=True)
    by_token = mask / mask.sum().clamp(min=1)
    by_response = mask / lengths.clamp(min=1) / (lengths > 0).sum().clamp(min=1)
    share = by_response if get(name).card.over == "responses" else by_token
    torch.testing.assert_close(gradient, -inputs.advantages * share, **EXACT)
    torch.testing.assert_close(outputs.coefficient * mask, mask, **EXACT)


@given(sizes=SIZES, junk=st.sampled_from([0.0, 1e30, float("inf"), float("nan")]), extra=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_padding_is_never_read_and_gets_no_gradient(name: str, sizes: Sizes, junk: float, extra: int) -> None:
    inputs = _inputs(sizes)
    outputs, gradient = _run(get(name)(), inputs)
    wide = torch.nn.functional.pad
    padded = LossInputs(
        wide(inputs.log_probs.masked_fill(inputs.action_mask == 0, junk), (0, extra), value=junk),
        wide(inputs.old_log_probs.masked_fill(inputs.action_mask == 0, -junk), (0, extra), value=-junk),
        wide(inputs.advantages.masked_fill(inputs.action_mask == 0, junk), (0, extra), value=junk),
        wide(inputs.action_mask, (0, extra)),
    )
    padded_outputs, padded_gradient = _run(get(name)(), padded)
    torch.testing.assert_close(padded_outputs.loss, outputs.loss, **EXACT)
    torch.testing.assert_close(padded_gradient[:, : sizes.tokens], gradient, **EXACT)
    assert (padded_gradient[padded.action_mask == 0] == 0).all()
    torch.testing.assert_close(dict(padded_outputs.metrics), dict(outputs.metrics), **EXACT)


@given(sizes=SIZES)
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_order_of_responses_does_not_matter(name: str, sizes: Sizes) -> None:
    inputs = _inputs(sizes)
    order = torch.randperm(sizes.responses, generator=torch.Generator().manual_seed(sizes.seed))
    outputs, gradient = _run(get(name)(), inputs)
    moved_outputs, moved_gradient = _run(get(name)(), _rows(inputs, order))
    torch.testing.assert_close(moved_outputs.loss, outputs.loss, **EXACT)
    torch.testing.assert_close(moved_gradient, gradient[order], **EXACT)


@given(sizes=SIZES, cut=st.integers(0, 6), ranks=st.integers(1, 3), steps=st.sampled_from([1, 16]))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_micro_batches_add_up_to_the_mini_batch(name: str, sizes: Sizes, cut: int, ranks: int, steps: int) -> None:
    """With OpenRLHF's normalisers, which are divided by the accumulation steps and may be less than one."""
    inputs = _inputs(sizes)
    mask = inputs.action_mask
    normalisers = {
        "dp_size": ranks,
        "batch_num_tokens": torch.tensor(max(1.0, float(mask.sum())) / steps),
        "global_batch_size": max(1.0, float((mask.sum(dim=1) > 0).sum())) / steps,
    }
    whole, gradient = _run(get(name)(), inputs)
    parts = [_run(get(name)(), replace(_rows(inputs, rows), **normalisers)) for rows in (slice(cut), slice(cut, None))]
    torch.testing.assert_close(parts[0][0].loss + parts[1][0].loss, ranks * steps * whole.loss, **EXACT)
    torch.testing.assert_close(torch.cat([parts[0][1], parts[1][1]]), ranks * steps * gradient, **EXACT)


@given(sizes=SIZES, dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows_at_fifty_nats_a_token(name: str, sizes: Sizes, dtype: torch.dtype) -> None:
    inputs = _inputs(replace(sizes, spread=50.0))
    inputs = replace(
        inputs,
        log_probs=torch.where(inputs.log_probs > inputs.old_log_probs, 50.0, -50.0).to(dtype),
        old_log_probs=torch.zeros_like(inputs.old_log_probs, dtype=dtype),
        advantages=inputs.advantages.to(dtype),
    )
    outputs, gradient = _run(get(name)(), inputs)
    assert outputs.loss.isfinite()
    assert outputs.loss.dtype == torch.promote_types(dtype, torch.float32)
    assert gradient.isfinite().all()
    assert gradient.dtype == dtype
    assert outputs.coefficient is not None
    assert outputs.coefficient.isfinite().all()


@given(sizes=SIZES)
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_minus_a_times_the_reported_coefficient(name: str, sizes: Sizes) -> None:
    inputs = _inputs(sizes)
    outputs, gradient = _run(get(name)(), inputs)
    mask = inputs.action_mask.double()
    lengths = mask.sum(dim=1, keepdim=True)
    share = mask / mask.sum().clamp(min=1)
    if get(name).card.over == "responses":
        share = mask / lengths.clamp(min=1) / (lengths > 0).sum().clamp(min=1)
    torch.testing.assert_close(gradient, -inputs.advantages * outputs.coefficient * share, rtol=1e-9, atol=1e-12)


def test_inputs_that_do_not_fit_are_named(method: Method) -> None:
    good = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"advantages has shape \(2, 1\)"):
        method(LossInputs(good, good, torch.zeros(2, 1), good))
    with pytest.raises(ValueError, match=r"log_probs has shape \(3,\)"):
        method(LossInputs(good[0], good[0], good[0], good[0]))


def test_a_loss_without_gradient_can_be_asked_for(method: Method) -> None:
    good = torch.zeros(2, 3)
    assert not method(LossInputs(good, good, good, torch.ones(2, 3))).loss.requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_hyperparameters_are_checked_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="'nonsense'"):
        get(name)(nonsense=1.0)
    for parameter in get(name).card.hyperparameters:
        for bad in ("text", True, float("nan"), parameter.minimum - 1e9):
            with pytest.raises(ValueError, match=rf"{name}: {parameter.name}="):
                get(name)(**{parameter.name: bad})
        assert get(name)().hyperparameters[parameter.name] == parameter.default


class _AutogradGRPO(Method):
    """GRPO as one would write it down, left to autograd."""

    name = "autograd_grpo"
    card = get("grpo").card
    clip_low: float
    clip_high: float

    def loss(self, batch: Batch) -> LossOutputs:
        def token_loss(log_probs: Tensor) -> Tensor:
            ratio = (log_probs - batch.old_log_probs).clamp(-20, 20).exp()
            advantages = batch.advantages.masked_fill(batch.padding, 0.0)
            clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
            return -torch.minimum(ratio * advantages, clipped * advantages)

        return batch.differentiate(token_loss)


@given(sizes=SIZES)
@settings(max_examples=25, deadline=None)
def test_autograd_gives_the_loss_gradient_and_coefficient_of_the_closed_form(sizes: Sizes) -> None:
    inputs = _inputs(sizes)
    closed, closed_gradient = _run(get("grpo")(), inputs)
    found, gradient = _run(_AutogradGRPO(), inputs)
    mask = inputs.action_mask.double()
    torch.testing.assert_close(found.loss, closed.loss, **EXACT)
    torch.testing.assert_close(gradient, closed_gradient, **EXACT)
    torch.testing.assert_close(found.coefficient * mask, closed.coefficient * mask, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method_class", [*map(get, NAMES), _AutogradGRPO], ids=lambda one: one.name)
def test_a_loss_that_is_scaled_scales_its_gradient(method_class: type[Method]) -> None:
    """As DeepSpeed does, which divides the loss by the accumulation steps."""
    inputs = _inputs(Sizes(seed=1, responses=4, tokens=6, spread=0.1))
    _, gradient = _run(method_class(), inputs)
    log_probs = inputs.log_probs.clone().requires_grad_()
    (method_class()(replace(inputs, log_probs=log_probs)).loss / 8).backward()
    assert gradient.any()
    torch.testing.assert_close(log_probs.grad, gradient / 8, **EXACT)


def test_the_coefficient_that_autograd_cannot_tell_is_zero() -> None:
    """Where A is 0, nothing of the gradient is left to divide by it."""
    inputs = replace(_inputs(Sizes(seed=1, responses=4, tokens=6, spread=0.1)), advantages=torch.zeros(4, 6))
    outputs, gradient = _run(_AutogradGRPO(), inputs)
    assert (gradient == 0).all()
    assert outputs.coefficient is not None
    assert (outputs.coefficient == 0).all()


def test_an_empty_mini_batch_is_no_division_by_zero(method: Method) -> None:
    """OpenRLHF's normalisers are then 0."""
    zero, values = torch.tensor(0.0), torch.randn(2, 3)
    inputs = LossInputs(
        values, values, values, torch.zeros(2, 3), dp_size=8, batch_num_tokens=zero, global_batch_size=zero
    )
    outputs, gradient = _run(method, inputs)
    assert outputs.loss == 0
    assert (gradient == 0).all()
