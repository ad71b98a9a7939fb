"""Time and peak memory of the losses, forward and backward, against OpenRLHF's PPO loss on the same tensors.

`pytest tests/benchmarks` prints the times; the assertions hold the ratios to their limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from methods import LossInputs, available, get
from methods.conformance import Baseline, measure
from methods.diagnostics import response_rows
from reuse_bench.commands.methods import openrlhf_ppo_loss

pytestmark = [pytest.mark.slow, pytest.mark.stack]

SHAPES = [(32, 4096), (8, 16384)]
TIME_LIMIT = 1.10
MEMORY_LIMIT = 1.00


@pytest.fixture(scope="module")
def ppo() -> Baseline:
    loss = openrlhf_ppo_loss()
    if loss is None:
        pytest.skip("OpenRLHF is not installed")
    return loss


def _inputs(responses: int, tokens: int, mask_dtype: torch.dtype = torch.int64) -> LossInputs:
    """Ragged responses in float32, mask as OpenRLHF's (int64), a per cent of drift per token."""
    generator = torch.Generator().manual_seed(0)
    shape = (responses, tokens)
    old = -torch.rand(shape, generator=generator)
    advantages = torch.randn(responses, 1, generator=generator).expand(shape).contiguous()
    lengths = torch.randint(tokens // 4, tokens + 1, (responses, 1), generator=generator)
    mask = (torch.arange(tokens) < lengths).to(mask_dtype)
    drift = 0.01 * torch.randn(shape, generator=generator)
    return LossInputs((old + drift).requires_grad_(), old, advantages, mask)


def _loss(name: str) -> Baseline:
    method = get(name)()
    return lambda inputs: method(inputs).loss


@pytest.mark.parametrize("mask_dtype", [torch.int64, torch.float32, torch.bool], ids=["int64", "float32", "bool"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_slower_and_no_larger_than_ppo(
    shape: tuple[int, int], mask_dtype: torch.dtype, ppo: Baseline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each method takes its turn with PPO; the median of the turns is compared."""
    inputs = _inputs(*shape, mask_dtype)
    worst = []
    for name in available():
        cost = measure({name: _loss(name), "ppo": ppo}, inputs, repeats=31)
        seconds = cost[name][0] / cost["ppo"][0]
        memory = cost[name][1] / cost["ppo"][1]
        worst.append((name, round(seconds, 2), round(memory, 2)))
    with capsys.disabled():
        print(f"\n{shape} {mask_dtype}, against PPO {1e3 * cost['ppo'][0]:.2f} ms, {cost['ppo'][1] / 2**20:.2f} MiB:")
        for name, seconds, memory in worst:
            print(f"  {name:12} time {seconds:.2f} memory {memory:.2f}")
    assert all(seconds <= TIME_LIMIT and memory <= MEMORY_LIMIT for _, seconds, memory in worst), worst


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["ppo", *available()])
def test_forward_and_backward(
    name: str, shape: tuple[int, int], ppo: Baseline, benchmark: Callable[..., object]
) -> None:
    inputs = _inputs(*shape)
    loss = ppo if name == "ppo" else _loss(name)

    def step() -> None:
        log_probs = inputs.log_probs.detach().requires_grad_()
        loss(replace(inputs, log_probs=log_probs)).backward()

    torch.set_num_threads(1)
    benchmark(step)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_diagnostics(shape: tuple[int, int], benchmark: Callable[..., object]) -> None:
    inputs = _inputs(*shape)
    inputs = replace(inputs, rollout_log_probs=inputs.old_log_probs)
    outputs = get("respo")()(inputs)
    torch.set_num_threads(1)
    benchmark(response_rows, inputs, outputs)
