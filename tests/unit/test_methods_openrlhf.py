"""GRPO, clip-higher and GSPO against OpenRLHF's own loss, with its normalisers, on random batches."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import LossInputs, get
from reuse_bench.commands.methods import openrlhf_loss_module

pytestmark = [pytest.mark.slow, pytest.mark.stack]

PAIRS = {
    "grpo": ("grpo", {}, {}),
    "grpo_dual": ("grpo", {"dual_clip": 3.0}, {"dual_clip": 3.0}),
    "clip_higher": ("clip_higher", {}, {"clip_eps_high": 0.28}),
    "gspo": ("gspo", {}, {"policy_loss_type": "gspo", "clip_eps_low": 3e-4, "clip_eps_high": 4e-4}),
}


@pytest.fixture(scope="module")
def openrlhf() -> ModuleType:
    module = openrlhf_loss_module()
    if module is None:
        pytest.skip("OpenRLHF is not installed")
    return module


@pytest.mark.parametrize("name", PAIRS)
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([1e-3, 0.1, 1.0, 5.0]),
    normalised=st.booleans(),
    dp_size=st.integers(1, 8),
)
@settings(max_examples=60, deadline=None)
def test_loss_and_gradient_are_those_of_openrlhf(
    openrlhf: ModuleType, name: str, seed: int, spread: float, normalised: bool, dp_size: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    responses, tokens = 5, 9

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    lengths = torch.randint(0, tokens + 1, (responses, 1), generator=generator)
    lengths[0] = tokens
    mask = (torch.arange(tokens) < lengths).to(torch.int64)
    old = -normal(responses, tokens).abs()
    advantages = normal(responses, 1).expand(responses, tokens)
    info: dict[str, Any] = {"dp_size": dp_size}
    if normalised:
        info |= {"batch_num_tokens": torch.tensor(12.5), "global_batch_size": torch.tensor(4.25)}
    method, hyperparameters, arguments = PAIRS[name]

    ours = (old + spread * normal(responses, tokens)).requires_grad_()
    loss = get(method)(**hyperparameters)(LossInputs(ours, old, advantages, mask, **info)).loss
    loss.backward()
    theirs = ours.detach().clone().requires_grad_()
    expected = openrlhf.PolicyLoss(**arguments)(theirs, old, advantages, action_mask=mask, **info)[0]
    expected.backward()

    torch.testing.assert_close(loss, expected, rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-10)


def test_the_package_itself_stays_importable_or_unimported(openrlhf: ModuleType) -> None:
    """The loss is loaded past the package: no half-made package may be left for others to stumble over."""
    assert "openrlhf.models" not in sys.modules or hasattr(sys.modules["openrlhf.models"], "Actor")
