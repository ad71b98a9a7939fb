"""What a policy update did with its responses: importance weights by the sign of the advantage.

Each micro-batch gives one row per response (`response_rows`). Rows of micro-batches and of ranks are simply put one
under another; `summarise` turns the rows of a policy update into what its line in `updates.jsonl` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from methods.contract import Batch, LossInputs, LossOutputs

LOG_WEIGHT_EDGES: tuple[float, ...] = (
    -10.0, -5.0, -4.0, -3.0, -2.5, -2.0, -1.5, -1.0, -0.75, -0.5, -0.25, -0.1, 0.0,
    0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0,
)  # fmt: skip
"""Inner edges of the bins of log W. A bin holds its left edge; the first and the last bin are open to infinity."""

SUPPRESSED_BELOW = 0.01
"""A token counts as clipped or suppressed when |phi| is below this share of its on-policy value, which is 1."""

COLUMNS = ("log_weight", "advantage", "mass", "length", "suppressed", "gap")
QUANTILES = {"min": 0.0, "q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95, "max": 1.0}

Floats = NDArray[np.float64]
# Numpy, not torch: an update has few responses, and what counts then is the time of a call.
_EDGES = np.array(LOG_WEIGHT_EDGES)
_LEVELS = np.array(list(QUANTILES.values()))


@torch.no_grad()
def response_rows(inputs: LossInputs, outputs: LossOutputs) -> Tensor:
    """One row per response, float64, on the device of the inputs: nothing waits for the device.

    Columns (`COLUMNS`) are sums over the response's tokens: of log pi - log pi_old, which is log W; of A; of |phi A|;
    of 1, the length; of tokens that are clipped or suppressed; of |log pi_old - log pi_engine|. What the method or the
    engine did not report is NaN.

    Args:
        inputs: what the method was called with.
        outputs: what it returned.

    Returns:
        [batch, columns].
    """
    batch = Batch(inputs)
    old = inputs.old_log_probs.to(batch.dtype)
    mass = suppressed = gap = old.new_full((), torch.nan).expand_as(old)
    if outputs.coefficient is not None:
        size = outputs.coefficient.to(batch.dtype).abs()
        mass, suppressed = size * batch.advantages.abs(), (size < SUPPRESSED_BELOW).to(batch.dtype)
    if inputs.rollout_log_probs is not None:
        gap = (old - inputs.rollout_log_probs.to(batch.dtype)).abs_()
    # One sum for all: with short responses it is the number of operators that takes time.
    tokens = torch.stack(
        [batch.log_probs - old, batch.advantages, mass, old.new_ones(()).expand_as(old), suppressed, gap]
    )
    return tokens.masked_fill_(batch.padding, 0.0).sum(dim=2).double().T


def summarise(rows: Tensor) -> dict[str, Any]:
    """The rows of one policy update, in the form of its line in ``updates.jsonl``.

    Positive means A > 0 and negative A < 0: a response with A = 0 moves nothing. Empty responses are left out.

    Args:
        rows: [responses, columns] of `response_rows`, from all micro-batches and ranks of the update.

    Returns:
        ``log_weight``: for "positive" and "negative": number of ``responses``; ``mean``, extremes and quantiles of
        log W; ``counts`` and ``mass`` (the responses' mean |phi A| per token, summed) per bin of `LOG_WEIGHT_EDGES`;
        ``mean_length`` in tokens.
        ``ess``: effective sample size of the weights W as a share of the responses, in (0, 1].
        ``clip_fraction``: share of response tokens that are clipped or suppressed.
        ``engine_gap``: mean |log pi_old - log pi_engine| per token.
        ``mean_length``: tokens.
        ``responses`` and ``zero_advantage``: how many responses there were, and how many of them had A = 0.
        What cannot be told is None; no number is NaN or infinite.
    """
    table = rows.detach().double().cpu().numpy().T
    column: dict[str, Floats] = dict(zip(COLUMNS, table[:, table[COLUMNS.index("length")] > 0], strict=True))
    length, advantage, has_gap = column["length"], column["advantage"], ~np.isnan(column["gap"])
    column["mass"] = column["mass"] / length
    return {
        "log_weight": {
            "positive": _one_sign(column, advantage > 0),
            "negative": _one_sign(column, advantage < 0),
        },
        "ess": _effective_share(column["log_weight"]),
        "clip_fraction": _ratio(column["suppressed"].sum(), length.sum()),
        "engine_gap": _ratio(column["gap"][has_gap].sum(), length[has_gap].sum()),
        "mean_length": _ratio(length.sum(), length.size),
        "responses": length.size,
        "zero_advantage": int(np.count_nonzero(advantage == 0)),
    }


def share_below(
    summaries: Iterable[Mapping[str, Any]], threshold: float = -1.0, sign: str = "positive"
) -> dict[str, float | None]:
    """The sentence "x % of positive responses lie below log W < -1 and get y % of the mass", over many updates.

    Args:
        summaries: results of `summarise`, or whole lines of ``updates.jsonl``.
        threshold: one of `LOG_WEIGHT_EDGES`.
        sign: "positive" or "negative".

    Returns:
        ``responses`` and ``mass``, shares in [0, 1]; None when there is nothing to share.

    Raises:
        ValueError: the threshold is no edge.
    """
    if threshold not in LOG_WEIGHT_EDGES:
        edges = ", ".join(f"{edge:g}" for edge in LOG_WEIGHT_EDGES)
        raise ValueError(f"threshold {threshold:g} is no bin edge: use one of {edges}")
    below = LOG_WEIGHT_EDGES.index(threshold) + 1
    totals = {"counts": [0.0, 0.0], "mass": [0.0, 0.0]}
    for summary in summaries:
        part = summary["log_weight"][sign]
        for name, (low, all_) in totals.items():
            if part[name] is not None:
                totals[name] = [low + sum(part[name][:below]), all_ + sum(part[name])]
    shares = {name: low / all_ if all_ > 0 else None for name, (low, all_) in totals.items()}
    return {"responses": shares["counts"], "mass": shares["mass"]}


def over_updates(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Many policy updates in one: histograms are summed, means weighted by what they are means of.

    Quantiles are left out, because those of the updates do not give those of the whole.

    Args:
        lines: lines of ``updates.jsonl``; ``gradient_norm`` may be missing.

    Returns:
        ``log_weight``: for "positive" and "negative": ``responses``, ``mean``, ``min``, ``max``, ``counts``, ``mass``
        and ``mean_length`` as in `summarise`; ``mass`` is None unless every update has it.
        ``ess`` and ``gradient_norm``: their ``mean``, ``min`` and ``max`` over the updates.
        ``clip_fraction`` and ``engine_gap``: means over tokens; ``mean_length``: over responses.
        ``updates``, ``responses``, ``zero_advantage``: how many. What cannot be told is None.
    """
    tokens = [(line["mean_length"] or 0.0) * line["responses"] for line in lines]
    return {
        "updates": len(lines),
        "responses": sum(line["responses"] for line in lines),
        "zero_advantage": sum(line["zero_advantage"] for line in lines),
        "log_weight": {
            sign: _one_sign_over_updates([line["log_weight"][sign] for line in lines])
            for sign in ("positive", "negative")
        },
        "ess": _range([line["ess"] for line in lines]),
        "gradient_norm": _range([line.get("gradient_norm") for line in lines]),
        "clip_fraction": _weighted_mean([line["clip_fraction"] for line in lines], tokens),
        "engine_gap": _weighted_mean([line["engine_gap"] for line in lines], tokens),
        "mean_length": _weighted_mean([line["mean_length"] for line in lines], [line["responses"] for line in lines]),
    }


def _one_sign_over_updates(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parts of one sign of the advantage, as `over_updates` describes it."""
    mass: list[float] | None = None
    if parts and all(part["mass"] is not None for part in parts):
        mass = [math.fsum(values) for values in zip(*(part["mass"] for part in parts), strict=True)]
    responses = [part["responses"] for part in parts]
    bins = len(LOG_WEIGHT_EDGES) + 1
    return {
        "responses": sum(responses),
        "mean": _weighted_mean([part["mean"] for part in parts], [sum(part["counts"]) for part in parts]),
        "min": min((part["min"] for part in parts if part["min"] is not None), default=None),
        "max": max((part["max"] for part in parts if part["max"] is not None), default=None),
        "counts": [sum(part["counts"][place] for part in parts) for place in range(bins)],
        "mass": mass,
        "mean_length": _weighted_mean([part["mean_length"] for part in parts], responses),
    }


def _range(values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "min": None, "max": None}
    return {"mean": math.fsum(known) / len(known), "min": min(known), "max": max(known)}


def _weighted_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if total > 0 else None


def _one_sign(column: Mapping[str, Floats], chosen: NDArray[np.bool_]) -> dict[str, Any]:
    log_weight, mass, length = column["log_weight"][chosen], column["mass"][chosen], column["length"][chosen]
    usable = np.isfinite(log_weight)
    log_weight, mass = log_weight[usable], mass[usable]
    bins = np.searchsorted(_EDGES, log_weight, side="right")
    masses: list[float] | None = None
    if np.isfinite(mass).all():
        masses = np.bincount(bins, mass, _EDGES.size + 1).tolist()
    return {
        "responses": length.size,
        "mean": _ratio(log_weight.sum(), log_weight.size),
        **_quantiles(log_weight),
        "counts": np.bincount(bins, minlength=_EDGES.size + 1).tolist(),
        "mass": masses,
        "mean_length": _ratio(length.sum(), length.size),
    }


def _quantiles(values: Floats) -> dict[str, float | None]:
    """`QUANTILES`, linear between neighbours. One sort for all: `numpy.quantile` costs more than the rest together."""
    if not values.size:
        return dict.fromkeys(QUANTILES)
    ordered = np.sort(values)
    place = _LEVELS * (values.size - 1)
    low = place.astype(np.intp)
    below, above = ordered[low], ordered[np.minimum(low + 1, values.size - 1)]
    return dict(zip(QUANTILES, (below + (place - low) * (above - below)).tolist(), strict=True))


def _effective_share(log_weight: Floats) -> float | None:
    """(sum W)^2 / (n sum W^2), of weights that are divided by their largest."""
    top = log_weight.max() if log_weight.size else math.nan
    if not math.isfinite(top):
        return None
    weight = np.exp(log_weight - top)
    return _ratio(weight.sum() ** 2, log_weight.size * np.square(weight).sum())


def _ratio(part: float, whole: float) -> float | None:
    """None where there is nothing to divide by, and where the result is not finite."""
    ratio = float(part) / float(whole) if whole else math.nan
    return ratio if math.isfinite(ratio) else None
