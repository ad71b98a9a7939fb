"""Importance-weight diagnostics against numpy, and their sum over micro-batches and ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from methods import LossInputs, LossOutputs, get
from methods.diagnostics import (
    COLUMNS,
    LOG_WEIGHT_EDGES,
    SUPPRESSED_BELOW,
    over_updates,
    response_rows,
    share_below,
    summarise,
)


def _inputs(responses: int = 40, tokens: int = 30, seed: int = 0) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)
    shape = (responses, tokens)
    old = -torch.rand(shape, generator=generator, dtype=torch.float64)
    mask = torch.arange(tokens) < torch.randint(0, tokens + 1, (responses, 1), generator=generator)
    mask[3] = False
    advantages = torch.randn(responses, 1, generator=generator, dtype=torch.float64)
    advantages[5] = 0.0
    mask[5, 0] = True
    drift = 0.4 * torch.randn(shape, generator=generator, dtype=torch.float64)
    engine = old + 0.01 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return LossInputs(old + drift, old, advantages.expand(shape), mask, engine)


def _run(name: str, inputs: LossInputs) -> tuple[LossOutputs, Tensor]:
    outputs = get(name)()(inputs)
    return outputs, response_rows(inputs, outputs)


@pytest.mark.parametrize("name", ["grpo", "gspo", "respo", "vespo"])
def test_summary_equals_numpy(name: str) -> None:
    inputs = _inputs()
    outputs, rows = _run(name, inputs)
    got = summarise(rows)

    mask = inputs.action_mask.numpy()
    full = mask.sum(1) > 0
    log_w = ((inputs.log_probs - inputs.old_log_probs).numpy() * mask).sum(1)[full]
    advantage = inputs.advantages[:, 0].numpy()[full]
    phi = np.abs(outputs.coefficient.numpy())
    lengths = mask.sum(1)[full]
    mass = (phi * np.abs(inputs.advantages.numpy()) * mask).sum(1)[full] / lengths
    edges = np.array([-np.inf, *LOG_WEIGHT_EDGES, np.inf])
    for sign, chosen in (("positive", advantage > 0), ("negative", advantage < 0)):
        part = got["log_weight"][sign]
        assert part["responses"] == chosen.sum()
        assert part["counts"] == np.histogram(log_w[chosen], edges)[0].tolist()
        assert part["mass"] == pytest.approx(np.histogram(log_w[chosen], edges, weights=mass[chosen])[0].tolist())
        assert part["mean"] == pytest.approx(log_w[chosen].mean())
        assert part["mean_length"] == pytest.approx(lengths[chosen].mean())
        for key, level in (("min", 0), ("q05", 0.05), ("q25", 0.25), ("q50", 0.5), ("q95", 0.95), ("max", 1)):
            assert part[key] == pytest.approx(np.quantile(log_w[chosen], level))
    weight = np.exp(log_w)
    assert got["ess"] == pytest.approx(weight.sum() ** 2 / (weight**2).sum() / len(weight))
    assert got["clip_fraction"] == pytest.approx(((phi < SUPPRESSED_BELOW) & mask).sum() / mask.sum())
    gap = np.abs((inputs.old_log_probs - inputs.rollout_log_probs).numpy())
    assert got["engine_gap"] == pytest.approx((gap * mask).sum() / mask.sum())
    assert got["mean_length"] == pytest.approx(lengths.mean())
    assert got["responses"] == full.sum()
    assert got["zero_advantage"] == 1


@pytest.mark.parametrize("name", ["grpo", "respo"])
def test_rows_of_micro_batches_and_ranks_are_those_of_the_whole(name: str) -> None:
    inputs = _inputs()
    _, whole = _run(name, inputs)
    parts = []
    for part in (slice(0, 7), slice(7, 8), slice(8, 40)):
        micro = LossInputs(
            inputs.log_probs[part],
            inputs.old_log_probs[part],
            inputs.advantages[part],
            inputs.action_mask[part],
            inputs.rollout_log_probs[part],
            dp_size=2,
            batch_num_tokens=500.0,
            global_batch_size=39.0,
        )
        parts.append(_run(name, micro)[1])
    joined = torch.cat(parts)
    assert joined.shape == (40, len(COLUMNS))
    torch.testing.assert_close(joined, whole)
    torch.testing.assert_close(joined[torch.randperm(40)].sum(0), whole.sum(0))


def test_clipped_tokens_of_grpo_are_the_suppressed_ones() -> None:
    inputs = _inputs()
    outputs, rows = _run("grpo", inputs)
    assert summarise(rows)["clip_fraction"] == pytest.approx(outputs.metrics["clip_fraction"].item())
    assert summarise(rows)["clip_fraction"] > 0.2


def test_on_policy_every_weight_is_exactly_one() -> None:
    inputs = _inputs()
    inputs = LossInputs(inputs.old_log_probs, inputs.old_log_probs, inputs.advantages, inputs.action_mask)
    got = summarise(_run("respo", inputs)[1])
    zero = LOG_WEIGHT_EDGES.index(0.0) + 1
    for sign in ("positive", "negative"):
        part = got["log_weight"][sign]
        assert part["min"] == part["max"] == 0.0
        assert part["counts"][zero] == part["responses"] == sum(part["counts"])
    assert got["ess"] == pytest.approx(1.0)
    assert got["engine_gap"] is None


def test_what_is_missing_or_not_finite_is_none_and_json_can_hold_it() -> None:
    inputs = _inputs()
    outputs = LossOutputs(torch.zeros(()))
    got = summarise(response_rows(inputs, outputs))
    assert got["clip_fraction"] is None
    assert got["log_weight"]["positive"]["mass"] is None
    rows = _run("respo", inputs)[1]
    rows[0, 0] = torch.nan
    rows[1, 0] = torch.inf
    json.dumps(summarise(rows), allow_nan=False)
    json.dumps(summarise(rows[:0]), allow_nan=False)
    assert summarise(rows[:0])["responses"] == 0


def test_share_below_counts_responses_and_mass_over_updates() -> None:
    """One update with log W = -2 and -1 (which is not below -1), one with -3 and 0."""

    def update(log_weights: list[float], masses: list[float]) -> dict:
        rows = torch.zeros(len(log_weights), len(COLUMNS), dtype=torch.float64)
        rows[:, COLUMNS.index("log_weight")] = torch.tensor(log_weights)
        rows[:, COLUMNS.index("mass")] = torch.tensor(masses)
        rows[:, COLUMNS.index("advantage")] = 1.0
        rows[:, COLUMNS.index("length")] = 10.0
        return summarise(rows)

    updates = [update([-2.0, -1.0], [3.0, 1.0]), update([-3.0, 0.0], [2.0, 2.0])]
    assert share_below(updates, -1.0) == {"responses": 0.5, "mass": pytest.approx(5 / 8)}
    assert share_below(updates, sign="negative") == {"responses": None, "mass": None}
    with pytest.raises(ValueError, match=r"-1\.1 is no bin edge"):
        share_below(updates, -1.1)


@pytest.mark.parametrize("name", ["grpo", "respo"])
def test_many_updates_say_what_all_their_rows_say_at_once(name: str) -> None:
    rows = _run(name, _inputs(responses=60))[1]
    whole = summarise(rows)
    parts = [summarise(part) for part in rows.split([25, 1, 34])]
    lines = [{"gradient_norm": norm, **part} for norm, part in zip((0.5, None, 2.0), parts, strict=True)]
    got = over_updates(lines)
    assert got["updates"] == 3
    for key in ("responses", "zero_advantage"):
        assert got[key] == whole[key]
    for key in ("clip_fraction", "engine_gap", "mean_length"):
        assert got[key] == pytest.approx(whole[key], rel=1e-12)
    for sign, part in got["log_weight"].items():
        expected = {key: value for key, value in whole["log_weight"][sign].items() if not key.startswith("q")}
        assert part.keys() == expected.keys()
        for key, value in expected.items():
            assert part[key] == pytest.approx(value, rel=1e-12), (sign, key)
    assert got["gradient_norm"] == {"mean": 1.25, "min": 0.5, "max": 2.0}
    shares = [part["ess"] for part in parts]
    assert got["ess"] == {"mean": pytest.approx(np.mean(shares)), "min": min(shares), "max": max(shares)}


def test_what_no_update_reports_is_none_over_all() -> None:
    inputs = _inputs()
    inputs = LossInputs(inputs.log_probs, inputs.old_log_probs, inputs.advantages, inputs.action_mask)
    blind = summarise(response_rows(inputs, LossOutputs(torch.zeros(()))))
    got = over_updates([blind, blind])
    assert got["clip_fraction"] is None
    assert got["engine_gap"] is None
    assert got["gradient_norm"] == {"mean": None, "min": None, "max": None}
    assert got["log_weight"]["positive"]["mass"] is None
    assert sum(got["log_weight"]["positive"]["counts"]) == 2 * blind["log_weight"]["positive"]["responses"]
    assert over_updates([])["log_weight"]["negative"]["mean"] is None
