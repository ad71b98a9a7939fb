"""The losses against numbers made elsewhere: loss, gradient and phi, case by case.

`loss_vectors.json` was checked against the public implementations of GRPO, GSPO and VESPO and the published formula
of ReSPO; `public_loss_vectors.json` was made by running the functions of verl and TRL that it names.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from methods import LossInputs, Method, get

DATA = Path(__file__).parents[1] / "data"
VECTORS = json.loads((DATA / "loss_vectors.json").read_text())
PUBLIC = json.loads((DATA / "public_loss_vectors.json").read_text())
METHODS = {
    "grpo": ("grpo", {}),
    "grpo_dual_clip_3": ("grpo", {"dual_clip": 3.0}),
    "gspo": ("gspo", {}),
    "vespo": ("vespo", {}),
    "respo": ("respo", {}),
    **{name: (made["method"], made["hyperparameters"]) for name, made in PUBLIC["implementations"].items()},
}
for _case, _public in zip(VECTORS, PUBLIC["cases"], strict=True):
    assert _case["case"] == _public["case"]
    _case["expected"].update(_public["expected"])
CASES = [pytest.param(case, name, id=f"{case['case']}-{name}") for case in VECTORS for name in case["expected"]]
TOLERANCES = [(torch.float64, 1e-6), (torch.float32, 1e-4)]


def _method(name: str) -> Method:
    method, hyperparameters = METHODS[name]
    return get(method)(**hyperparameters)


def _tensor(values: list[object], dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def _close(got: Tensor, expected: Tensor, relative: float) -> None:
    """Relative to the element, with a floor far under the largest one, so that zeros can be compared."""
    floor = relative * 1e-3 * expected.abs().max().item()
    torch.testing.assert_close(got.double(), expected.double(), rtol=relative, atol=floor)


def test_every_case_and_method_is_there() -> None:
    assert len(CASES) == 10 * len(METHODS)


@pytest.mark.parametrize(("dtype", "relative"), TOLERANCES, ids=["float64", "float32"])
@pytest.mark.parametrize(("case", "name"), CASES)
def test_loss_and_gradient(case: dict, name: str, dtype: torch.dtype, relative: float) -> None:
    expected = case["expected"][name]
    mask = torch.tensor(case["mask"])
    log_probs = _tensor(case["log_probs"], dtype).requires_grad_()
    advantages = _tensor(case["advantages"], dtype).unsqueeze(1).expand_as(mask)
    outputs = _method(name)(LossInputs(log_probs, _tensor(case["old_log_probs"], dtype), advantages, mask))
    outputs.loss.backward()
    assert outputs.loss.dtype == dtype
    _close(outputs.loss.detach(), torch.tensor(expected["loss"], dtype=torch.float64), relative)
    _close(log_probs.grad, _tensor(expected["gradient"], torch.float64), relative)


@pytest.mark.parametrize(("dtype", "relative"), TOLERANCES, ids=["float64", "float32"])
@pytest.mark.parametrize(("case", "name"), [c for c in CASES if "phi" in c.values[0]["expected"][c.values[1]]])
def test_phi(case: dict, name: str, dtype: torch.dtype, relative: float) -> None:
    mask = torch.tensor(case["mask"])
    advantages = _tensor(case["advantages"], dtype).unsqueeze(1).expand_as(mask)
    inputs = LossInputs(_tensor(case["log_probs"], dtype), _tensor(case["old_log_probs"], dtype), advantages, mask)
    coefficient = _method(name)(inputs).coefficient
    assert coefficient is not None
    expected = _tensor(case["expected"][name]["phi"], torch.float64)
    first = mask.argmax(dim=1, keepdim=True)
    _close(coefficient.gather(1, first).squeeze(1), expected, relative)
