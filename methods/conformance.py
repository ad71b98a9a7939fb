"""What every method must satisfy, as a table of rows that hold or fail, each with its figure.

`reuse-bench check NAME`, the pytest plugin and the project's own tests all run these rows. They know nothing of the
method but its card, and compare it with itself: no row needs a second implementation. All inputs are made from fixed
seeds, so that a row gives the same figure every time; only the cost row measures the machine.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from methods.contract import LossInputs, LossOutputs, Method

EXACT = 1e-9
"""Largest relative difference between two float64 results that should be equal."""
ROUNDED = 2.0**-7
"""Largest relative error of a bfloat16 gradient: two roundings of 2^-8."""
LOSS_ERROR = 1e-4
"""Largest error of the float32 loss against float64, relative to the mean size of its terms."""
LONG = 16_384

Status = Literal["holds", "fails", "reported"]
Baseline = Callable[[LossInputs], Tensor]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        key: stable name.
        claim: what has to hold.
        status: "holds", "fails", or "reported" for a figure that is no verdict.
        figure: what was found.
        limit: what was allowed.
    """

    key: str
    claim: str
    status: Status
    figure: str
    limit: str


@dataclass(frozen=True)
class _Finding:
    holds: bool | None
    figure: str
    limit: str


def check(method: Method, baseline: Baseline | None = None) -> list[Row]:
    """All rows of `CHECKS` for one method, in order.

    Args:
        method: an instance, with the hyperparameters to check it at.
        baseline: the loss to which time and memory are compared: takes inputs, returns the scalar loss.
    """
    return [check_row(method, key, baseline) for key in CHECKS]


def check_row(method: Method, key: str, baseline: Baseline | None = None) -> Row:
    """One row; a method that raises, or tries to end the process, fails it."""
    claim, function = CHECKS[key]
    try:
        finding = _cost(method, baseline) if key == "cost" else function(method)
    except (Exception, SystemExit) as error:
        message = " ".join(f"raised {type(error).__name__}: {error}".split())
        finding = _Finding(False, message, "no exception")
    status: Status = "reported" if finding.holds is None else "holds" if finding.holds else "fails"
    return Row(key, claim, status, finding.figure, finding.limit)


def _on_policy(method: Method) -> _Finding:
    inputs = _inputs(1, [7] * 5, drift=0.0)
    _, gradient = _run(method, inputs)
    return _equal(gradient, -inputs.advantages / gradient.numel())


def _lengths(method: Method) -> _Finding:
    """Padding columns as a trainer adds them, on both sides; then what each token of a ragged batch weighs."""
    inputs = _inputs(2, [7, 3, 1, 5])
    tokens = inputs.log_probs.shape[1]
    _, gradient = _run(method, inputs)
    worst = 0.0
    for left, right in ((0, 9), (4, 0)):
        _, padded = _run(method, _map(inputs, partial(torch.nn.functional.pad, pad=(left, right))))
        worst = max(worst, _difference(padded[:, left : left + tokens], gradient))
    inputs = replace(inputs, log_probs=inputs.old_log_probs.clone())
    _, gradient = _run(method, inputs)
    weight = (inputs.advantages * _share(inputs, method)).abs()
    worst = max(worst, _difference((gradient * inputs.action_mask).abs(), weight))
    return _Finding(worst <= EXACT, f"largest relative difference {worst:.1e}", f"{EXACT:g}")


def _mask(method: Method) -> _Finding:
    """Masked tokens inside the response too, holding anything at all."""
    inputs = _inputs(3, [6, 2, 6, 4])
    inputs.action_mask[2, 2] = 0
    masked = inputs.action_mask == 0
    clean, _ = _run(method, inputs)
    worst, change = 0.0, 0.0
    for junk in (3.0, -80.0, math.inf, math.nan):
        filled = replace(
            inputs,
            log_probs=inputs.log_probs.masked_fill(masked, junk),
            old_log_probs=inputs.old_log_probs.masked_fill(masked, -0.5 * junk),
            advantages=inputs.advantages.masked_fill(masked, junk),
        )
        outputs, gradient = _run(method, filled)
        at_padding = gradient[masked].abs()
        worst = max(worst, math.inf if at_padding.isnan().any() else float(at_padding.max()))
        change = max(change, _difference(outputs.loss, clean.loss))
    figure = f"largest gradient {worst:.1e}, change of the loss {change:.1e}"
    return _Finding(worst == 0.0 and change <= EXACT, figure, f"0 and {EXACT:g}")


def _order(method: Method) -> _Finding:
    inputs = _inputs(4, [7, 3, 1, 5, 6])
    order = torch.tensor([3, 0, 4, 1, 2])
    outputs, gradient = _run(method, inputs)
    moved, moved_gradient = _run(method, _map(inputs, itemgetter(order)))
    worst = max(_difference(moved.loss, outputs.loss), _difference(moved_gradient, gradient[order]))
    return _Finding(worst <= EXACT, f"largest relative difference {worst:.1e}", f"{EXACT:g}")


def _batching(method: Method) -> _Finding:
    """The sum over accumulation steps, and the mean over ranks, against the whole; with OpenRLHF's normalisers."""
    inputs = _inputs(5, [7, 3, 1, 5, 0, 6, 2, 2])
    lengths = inputs.action_mask.sum(dim=1)
    _, gradient = _run(method, inputs)
    worst = []
    for parts, ranks in (([slice(0, 3), slice(3, 4), slice(4, 8)], 1), ([slice(0, 4), slice(4, 8)], 2)):
        normalised = replace(
            inputs,
            dp_size=ranks,
            batch_num_tokens=lengths.sum().double(),
            global_batch_size=(lengths > 0).sum().double(),
        )
        pieces = [_run(method, _map(normalised, itemgetter(part)))[1] for part in parts]
        worst.append(_difference(torch.cat(pieces) / ranks, gradient))
    figure = f"micro-batches {worst[0]:.1e}, ranks {worst[1]:.1e}"
    return _Finding(max(worst) <= EXACT, figure, f"{EXACT:g}")


def _tails(method: Method) -> _Finding:
    """Every token 50 nats up, down, or to and fro; float32, as in training."""
    bad = checked = 0
    for tokens in (1, 40, LONG):
        signs = torch.ones(1, tokens)
        signs[:, 1::2] = -1.0
        up, down = torch.ones(1, tokens), -torch.ones(1, tokens)
        ratio = 50.0 * torch.cat([up, up, down, down, signs, signs])
        old = torch.full_like(ratio, -60.0)
        advantages = torch.tensor([1.0, -1.0]).repeat(3)[:, None].expand_as(ratio)
        found, total = _non_finite(method, LossInputs(old + ratio, old, advantages, torch.ones_like(ratio)))
        bad, checked = bad + found, checked + total
    return _Finding(bad == 0, f"{bad} of {checked:,} numbers not finite", "0")


def _extremes(method: Method) -> _Finding:
    """Lengths 1 and 16,384, empty responses, an empty micro-batch, equal rewards; float32."""
    bad = checked = 0
    long = _inputs(6, [LONG, 1, 0], drift=1e-3, dtype=torch.float32)
    nothing = replace(_inputs(8, [4, 4], dtype=torch.float32), action_mask=torch.zeros(2, 4))
    cases = [
        long,
        _inputs(7, [1, 1], dtype=torch.float32),
        nothing,
        replace(nothing, dp_size=2, batch_num_tokens=torch.tensor(9.0), global_batch_size=torch.tensor(3.0)),
        replace(_inputs(9, [4, 2], dtype=torch.float32), advantages=torch.zeros(2, 4)),
    ]
    for case in cases:
        found, total = _non_finite(method, case)
        bad, checked = bad + found, checked + total
    return _Finding(bad == 0, f"{bad} of {checked:,} numbers not finite", "0")


def _precision(method: Method) -> _Finding:
    """bfloat16 log-probabilities, handled in float32: against float64 on the very same numbers."""
    coarse = _inputs(10, [256] * 8, drift=2e-3, dtype=torch.bfloat16)
    wide = _map(coarse, lambda values: values.double())
    outputs, gradient = _run(method, coarse)
    exact, exact_gradient = _run(method, wide)
    size = float((wide.advantages * wide.log_probs).abs().mean())
    loss_error = abs(float(outputs.loss) - float(exact.loss)) / size
    gradient_error = _difference(gradient.double(), exact_gradient)
    kept = outputs.loss.dtype == torch.float32 and exact.loss.dtype == torch.float64
    figure = f"loss {loss_error:.1e} ({str(outputs.loss.dtype).removeprefix('torch.')}), gradient {gradient_error:.1e}"
    holds = kept and loss_error <= LOSS_ERROR and gradient_error <= ROUNDED
    return _Finding(holds, figure, f"loss {LOSS_ERROR:g} in float32, gradient {ROUNDED:.1e}")


def _repeatable(method: Method) -> _Finding:
    inputs = _inputs(11, [9, 4, 6], dtype=torch.float32)
    before = _map(inputs, torch.clone)
    first, first_gradient = _run(method, inputs)
    second, second_gradient = _run(method, inputs)
    same = torch.equal(first.loss, second.loss) and torch.equal(first_gradient, second_gradient)
    given = replace(inputs, log_probs=inputs.log_probs.clone().requires_grad_())  # `_run` keeps its own to itself
    method(given)
    changed = [
        field.name
        for field in fields(given)
        if isinstance(value := getattr(given, field.name), Tensor)
        and not torch.equal(value, getattr(before, field.name))
    ]
    figure = ("same bits" if same else "different bits") + (f"; writes into {', '.join(changed)}" if changed else "")
    return _Finding(same and not changed, figure, "same bits, inputs untouched")


def _gradient(method: Method) -> _Finding:
    """What backward gives against what the loss is: by finite differences, or by the stop-gradient form.

    In -mean(sg(phi) A log pi) the loss is linear in log pi, so that the sum of gradient times log pi is the loss
    itself. The coefficient that a method reports must be the one in its gradient.
    """
    inputs = _inputs(12, [6] * 4, drift=0.05)
    outputs, gradient = _run(method, inputs)
    worst = 0.0
    if outputs.coefficient is not None:
        worst = _difference(-inputs.advantages * outputs.coefficient / gradient.numel(), gradient)
    if not method.card.exact_gradient:
        linear = float((gradient * inputs.log_probs).sum())
        size = float((gradient * inputs.log_probs).abs().sum())
        form = abs(linear - float(outputs.loss.detach())) / max(size, 1e-300)
        holds = worst <= EXACT and form <= EXACT
        return _Finding(holds, f"stop-gradient form {form:.1e}, coefficient {worst:.1e}", f"{EXACT:g}")
    difference = _finite_differences(method, inputs, gradient)
    holds = worst <= EXACT and difference <= 1e-5
    figure = f"finite differences {difference:.1e}, coefficient {worst:.1e}"
    return _Finding(holds, figure, f"1e-05 and {EXACT:g}")


def _finite_differences(method: Method, inputs: LossInputs, gradient: Tensor, step: float = 1e-6) -> float:
    """Largest error relative to the largest gradient; kinks, where the two sides differ, are left out."""
    here = float(method(inputs).loss)
    scale = max(float(gradient.abs().max()), 1e-300)
    errors = []
    for index in range(gradient.numel()):
        sides = []
        for signed in (step, -step):
            moved = inputs.log_probs.clone()
            moved.view(-1)[index] += signed
            sides.append((float(method(replace(inputs, log_probs=moved)).loss) - here) / signed)
        if abs(sides[0] - sides[1]) < 1e-3 * scale:
            errors.append(abs(sum(sides) / 2 - float(gradient.view(-1)[index])) / scale)
    return max(errors, default=math.inf)


def _outputs(method: Method) -> _Finding:
    """Metrics: detached finite scalars with the same names every time; coefficients of the right shape."""
    faults, names = [], []
    points = torch.linspace(-3, 3, 7, dtype=torch.float64)
    for curve in (method.coefficient(points, sign) for sign in (1.0, -1.0)):  # what the pages draw
        if curve is not None and not (isinstance(curve, Tensor) and curve.shape == points.shape):
            faults.append("coefficient() gives no number for each weight")
    for seed, drift in ((13, 0.0), (14, 0.3), (15, 3.0)):
        inputs = _inputs(seed, [6, 3, 0, 5], drift=drift)
        outputs, _ = _run(method, inputs)
        names.append(sorted(outputs.metrics))
        for name, value in outputs.metrics.items():
            if not isinstance(value, Tensor) or value.dim() != 0 or value.requires_grad or not value.isfinite():
                faults.append(f"{name} is no detached finite scalar")
        coefficient = outputs.coefficient
        if coefficient is not None and (coefficient.shape != inputs.log_probs.shape or coefficient.requires_grad):
            faults.append("coefficient is not detached or not [batch, tokens]")
        if outputs.loss.dim() != 0:
            faults.append("loss is no scalar")
    if any(some != names[0] for some in names):
        faults.append("names change from call to call")
    described = ", ".join(names[0]) or "none"
    return _Finding(not faults, "; ".join(dict.fromkeys(faults)) or f"metrics: {described}", "detached, stable")


def _vectorised(method: Method) -> _Finding:
    """Work in Python must not grow with the batch: lines run and operators called, small against large."""
    small = _work(method, _inputs(16, [8] * 2))
    large = _work(method, _inputs(16, [64] * 6))
    figure = f"operators {small[0]} and {large[0]}, lines {small[1]} and {large[1]}"
    return _Finding(small == large, figure, "equal at [2, 8] and [6, 64]")


def _cost(method: Method, baseline: Baseline | None) -> _Finding:
    """Time and peak memory of forward and backward at [32, 4096], float32; against the baseline, when there is one."""
    inputs = _inputs(17, [4096] * 32, drift=1e-2, dtype=torch.float32)
    losses: dict[str, Baseline] = {"method": lambda given: method(given).loss}
    if baseline is not None:
        losses["baseline"] = baseline
    cost = measure(losses, inputs)
    seconds, peak = cost["method"]
    figure = f"{1e3 * seconds:.2f} ms, {peak / 2**20:.1f} MiB"
    if "baseline" in cost:
        figure += f"; {seconds / cost['baseline'][0]:.2f} and {peak / cost['baseline'][1]:.2f} of OpenRLHF's PPO loss"
    return _Finding(None, figure, "no verdict; 1.10 and 1.00 are good")


CHECKS: Mapping[str, tuple[str, Callable[[Method], _Finding]]] = {
    "on_policy": ("At W = 1 the gradient is the plain policy gradient.", _on_policy),
    "lengths": ("Padding does not matter, and tokens count as the card says.", _lengths),
    "mask": ("Masked tokens get exactly zero gradient and are never read.", _mask),
    "order": ("The order of the batch does not matter.", _order),
    "batching": ("Micro-batches and ranks give the gradient of the whole mini-batch.", _batching),
    "tails": ("Loss and gradient are finite at log-ratios of +-50 per token.", _tails),
    "extremes": ("They are finite for 1 and 16,384 tokens, empty responses and equal rewards.", _extremes),
    "precision": ("bfloat16 is handled in float32, and float64 stays float64.", _precision),
    "repeatable": ("The same inputs give the same bits, and are left as they were.", _repeatable),
    "gradient": ("The gradient is that of the loss, in the form that the card states.", _gradient),
    "outputs": ("Metrics are detached scalars with stable names.", _outputs),
    "vectorised": ("No Python loop runs over tokens or responses.", _vectorised),
    "cost": ("Time and memory of forward and backward at [32, 4096].", lambda method: _cost(method, None)),
}
"""The rows: key -> claim and check."""


def measure(losses: Mapping[str, Baseline], inputs: LossInputs, repeats: int = 15) -> dict[str, tuple[float, int]]:
    """Median processor seconds and peak bytes of forward and backward, on one thread, turn by turn in one process.

    Peak bytes are what is allocated on top of the inputs, the gradient included.
    """

    def once(loss: Baseline) -> None:
        log_probs = inputs.log_probs.detach().clone().requires_grad_()
        given = replace(inputs, log_probs=log_probs)
        # Of this thread, the only one that works here: what else the machine does is no property of a loss.
        start = time.thread_time()
        torch.autograd.backward(loss(given))
        seconds.append(time.thread_time() - start)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times: dict[str, list[float]] = {name: [] for name in losses}
        for _ in range(repeats + 3):
            for name, loss in losses.items():
                seconds: list[float] = []
                once(loss)
                times[name] += seconds
        own = inputs.log_probs.numel() * inputs.log_probs.element_size()
        peaks = {name: peak_bytes(partial(once, loss)) - own for name, loss in losses.items()}
    finally:
        torch.set_num_threads(threads)
    return {name: (sorted(times[name][3:])[repeats // 2], peaks[name]) for name in losses}


def peak_bytes(call: Callable[[], object]) -> int:
    """Most bytes of CPU tensors that were alive at once during the call, from the profiler's allocation events."""
    call()
    allocations = sorted(
        (event.start_ns(), event.nbytes()) for event in _trace(call, memory=True) if event.name() == "[memory]"
    )
    alive = peak = 0
    for _, size in allocations:
        alive += size
        peak = max(peak, alive)
    return peak


def _trace(call: Callable[[], object], memory: bool = False) -> list[Any]:
    """What the profiler saw of a call."""
    with _silent_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=memory) as trace:
        call()
    return list(trace.profiler.kineto_results.events()) if trace.profiler else []


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler's native code writes to the file descriptor when it starts and stops."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _work(method: Method, inputs: LossInputs) -> tuple[int, int]:
    """Operators called and lines of Python run by one forward and backward, after a first one has warmed up."""
    _run(method, inputs)
    lines = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    operators = sum(event.name().startswith("aten::") for event in _trace(lambda: _run(method, inputs)))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _run(method, inputs)
    finally:
        sys.settrace(before)
    return operators, lines


def _inputs(seed: int, lengths: list[int], drift: float = 0.3, dtype: torch.dtype = torch.float64) -> LossInputs:
    """Responses of the given lengths, right-padded, with advantages of both signs; never 0."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(1, *lengths))

    def normal(size: tuple[int, ...]) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    mask = (torch.arange(shape[1]) < torch.tensor(lengths)[:, None]).to(torch.int64)
    old = -0.2 - normal(shape).abs()
    log_probs = (old + drift * normal(shape)) * mask
    advantages = 0.1 + normal((shape[0], 1)).abs()
    advantages[1::2] *= -1.0
    return LossInputs(log_probs.to(dtype), (old * mask).to(dtype), (advantages * mask).to(dtype), mask)


def _map(inputs: LossInputs, function: Callable[[Tensor], Tensor]) -> LossInputs:
    """The same with ``function`` applied to the tensors of shape [batch, tokens]."""
    changed: dict[str, Any] = {
        field.name: function(value)
        for field in fields(inputs)
        if isinstance(value := getattr(inputs, field.name), Tensor) and value.dim() == 2
    }
    return replace(inputs, **changed)


def _run(method: Method, inputs: LossInputs) -> tuple[LossOutputs, Tensor]:
    log_probs = inputs.log_probs.detach().clone().requires_grad_()
    outputs = method(replace(inputs, log_probs=log_probs))
    (gradient,) = torch.autograd.grad(outputs.loss, log_probs)
    return replace(outputs, loss=outputs.loss.detach()), gradient


def _share(inputs: LossInputs, method: Method) -> Tensor:
    """What each token counts in the mean that the card states."""
    mask = inputs.action_mask.double()
    if method.card.over == "tokens":
        return mask / mask.sum()
    lengths = mask.sum(dim=1, keepdim=True)
    return mask / lengths.clamp(min=1) / (lengths > 0).sum()


def _non_finite(method: Method, inputs: LossInputs) -> tuple[int, int]:
    outputs, gradient = _run(method, inputs)
    numbers = [outputs.loss.reshape(1), gradient.reshape(-1)]
    return sum(int((~part.isfinite()).sum()) for part in numbers), sum(part.numel() for part in numbers)


def _difference(got: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest expected number; infinite when something is not finite."""
    error = (got - expected).abs().max()
    scale = expected.abs().max().clamp(min=1e-300)
    return float(error / scale) if error.isfinite() and scale.isfinite() else math.inf


def _equal(got: Tensor, expected: Tensor) -> _Finding:
    worst = _difference(got, expected)
    return _Finding(worst <= EXACT, f"largest relative difference {worst:.1e}", f"{EXACT:g}")
