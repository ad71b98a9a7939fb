"""The curves phi(W): the published closed forms, their landmarks, and the same numbers as in the loss."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from methods import LossInputs, get

W = torch.logspace(-8, 4, 400, dtype=torch.float64)


def _phi(name: str, weight: Tensor, sign: float, **hyperparameters: float) -> Tensor:
    phi = get(name)(**hyperparameters).coefficient(weight.log(), sign)
    assert phi is not None
    return phi


def _slope_at_one(name: str, sign: float) -> float:
    around = _phi(name, torch.tensor([1 - 1e-6, 1 + 1e-6], dtype=torch.float64), sign)
    return float((around[1] - around[0]) / 2e-6)


def test_respo_has_its_published_closed_forms() -> None:
    torch.testing.assert_close(_phi("respo", W, 1.0), (1 + W) / 2 * torch.exp(1 - W), rtol=1e-10, atol=0)
    negative = W.sqrt() * torch.exp(2 * (1 - W.sqrt()))
    torch.testing.assert_close(_phi("respo", W, -1.0), negative, rtol=1e-10, atol=0)


def test_respo_landmarks() -> None:
    small = torch.tensor([1e-8], dtype=torch.float64)
    assert float(_phi("respo", small, 1.0)) == pytest.approx(math.e / 2, rel=1e-7)
    assert float(_phi("respo", small, -1.0)) == pytest.approx(1e-4 * math.exp(2 * (1 - 1e-4)), rel=1e-9)
    assert float(W[_phi("respo", W, -1.0).argmax()]) == pytest.approx(0.25, rel=0.04)
    for sign in (1.0, -1.0):
        assert float(_phi("respo", torch.ones(1, dtype=torch.float64), sign)) == 1.0
        assert _slope_at_one("respo", sign) == pytest.approx(-0.5, rel=1e-6)


@pytest.mark.parametrize("offset", [1e-12, 1e-8, 1e-4, 1e-2])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_respo_is_continuous_in_alpha_at_one(offset: float, side: float) -> None:
    """The difference to the limit is of first order in alpha - 1, without cancellation on the way."""
    inside = W[(W > 1e-3) & (W < 20)]
    limit = _phi("respo", inside, -1.0)
    near = _phi("respo", inside, -1.0, alpha_neg=1.0 + side * offset)
    bound = 20 * offset * limit + 1e-14
    assert ((near - limit).abs() <= bound).all()


@pytest.mark.parametrize("alpha", [-9.0, 0.0, 1.0, 5.0])
def test_respo_with_one_share_is_one_term_of_the_mean(alpha: float) -> None:
    """With all of the share the mean is W itself, with none of it 1, whatever its order."""
    whole = _phi("respo", W, 1.0, alpha_pos=alpha, beta_pos=1.0)
    torch.testing.assert_close(whole, W * torch.exp(2 * (1 - W)), rtol=1e-9, atol=1e-300)
    assert (_phi("respo", W, 1.0, alpha_pos=alpha, beta_pos=0.0) == 1).all()


@pytest.mark.parametrize("alpha", [-9.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 11.0])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_respo_family_is_finite_and_one_at_one(alpha: float, beta: float) -> None:
    extremes = torch.tensor([-60.0, -20.0, 0.0, 20.0, 60.0], dtype=torch.float64).exp()
    phi = _phi("respo", extremes, 1.0, alpha_pos=alpha, beta_pos=beta)
    assert phi.isfinite().all()
    assert (phi >= 0).all()
    assert float(phi[2]) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("sign", "k", "decay"), [(1.0, 2.0, 3.0), (-1.0, 3.0, 2.0)])
def test_vespo_form_and_peak(sign: float, k: float, decay: float) -> None:
    torch.testing.assert_close(_phi("vespo", W, sign), W**k * torch.exp(decay * (1 - W)), rtol=1e-9, atol=1e-300)
    assert float(W[_phi("vespo", W, sign).argmax()]) == pytest.approx(k / decay, rel=0.04)


def test_grpo_is_cut_on_one_side_for_each_sign() -> None:
    ratio = torch.tensor([0.1, 0.79, 0.81, 1.0, 1.19, 1.21, 5.0], dtype=torch.float64)
    kept = torch.tensor([1, 1, 1, 1, 1, 0, 0])
    torch.testing.assert_close(_phi("grpo", ratio, 1.0), ratio * kept)
    torch.testing.assert_close(_phi("grpo", ratio, -1.0), ratio * torch.tensor([0, 0, 1, 1, 1, 1, 1]))
    dual = _phi("grpo", ratio, -1.0, dual_clip=3.0)
    torch.testing.assert_close(dual, ratio * torch.tensor([0, 0, 1, 1, 1, 1, 0]))


@pytest.mark.parametrize("name", ["grpo", "gspo", "vespo", "respo", "cispo", "clip_higher", "reinforce"])
def test_the_curve_is_the_coefficient_of_the_loss(name: str) -> None:
    """For responses of one token all three kinds of weight are the same; also where log-ratios are clamped."""
    near = torch.linspace(-4, 4, 75, dtype=torch.float64)
    log_weight = torch.cat([near, torch.tensor([-25.0, -15.0, 9.5, 10.5, 19.0, 21.0], dtype=torch.float64)])
    for sign in (1.0, -1.0, 0.0):
        inputs = LossInputs(
            log_weight[:, None], torch.zeros(81, 1), torch.full((81, 1), sign), torch.ones(81, 1, dtype=torch.bool)
        )
        found = get(name)()(inputs).coefficient
        assert found is not None
        torch.testing.assert_close(found[:, 0], _phi(name, log_weight.exp(), sign))


def test_a_ratio_that_is_held_has_no_gradient() -> None:
    """Where A < 0 nothing clips from above: GRPO holds the ratio of a token at e^20, GSPO the mean of all at e^10."""
    for name, last in (("grpo", 20.0), ("gspo", 10.0)):
        inside, outside = (_phi(name, torch.tensor(last + by, dtype=torch.float64).exp(), -1.0) for by in (-0.1, 0.1))
        assert float(inside) == pytest.approx(math.exp(last - 0.1))
        assert float(outside) == 0.0


@pytest.mark.parametrize(("name", "log_weight"), [("vespo", 20.0 - 19.0), ("respo", 22.0 - 19.0)])
def test_which_log_ratios_of_tokens_are_clamped(name: str, log_weight: float) -> None:
    """VESPO clamps those of tokens to +-20 and ReSPO does not; both clamp their sum."""
    ratios = torch.tensor([[22.0, -19.0]], dtype=torch.float64)
    inputs = LossInputs(ratios, torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2))
    found = get(name)()(inputs).coefficient
    assert found is not None
    torch.testing.assert_close(found[0, :1], _phi(name, torch.tensor([log_weight], dtype=torch.float64).exp(), 1.0))


@pytest.mark.parametrize("name", ["vespo", "respo"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_weight_of_a_response_is_held_at_both_ends(name: str, sign: float) -> None:
    held, beyond = (_phi(name, torch.tensor([-by, by], dtype=torch.float64).exp(), sign) for by in (20.0, 25.0))
    torch.testing.assert_close(beyond, held, rtol=1e-9, atol=0)
    assert float(held[0]) > 0
