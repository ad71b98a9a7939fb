"""A method, called the way OpenRLHF calls its policy loss, with the diagnostics of each policy update."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harness.openrlhf.worker_spec import WorkerSpec
from methods import LossInputs, get
from methods.diagnostics import response_rows
from methods.registry import source_digest


class LossMismatchError(RuntimeError):
    """The loss in the worker is not the one that the driver recorded."""


class MethodLoss(nn.Module):
    """OpenRLHF's loss interface on a `methods.Method`.

    It keeps one row of diagnostics per response until `take_rows`, so that they can be summarised over micro-batches
    and ranks exactly.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__()
        self.source_sha256 = source_digest(spec.method)
        if self.source_sha256 != spec.source_sha256:
            raise LossMismatchError(
                f"method {spec.method}: the worker holds source {self.source_sha256[:12]}, the driver recorded "
                f"{spec.source_sha256[:12]}; install the same version of the method on every node"
            )
        self.method = get(spec.method)(**spec.hyperparameters)
        self._rows: list[Tensor] = []

    def forward(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        action_mask: Tensor,
        rollout_log_probs: Tensor | None = None,
        **batch: Any,
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """The method's loss, as OpenRLHF asks for it.

        Args:
            log_probs: log-probabilities (nats) under the current policy, [batch, tokens]; carries the gradient.
            old_log_probs: those before the first update of the rollout batch; shape as above, like the next three.
            advantages: of the response, repeated on each of its tokens.
            action_mask: 1 on response tokens.
            rollout_log_probs: what the engine reported.
            batch: the normalisers of `methods.LossInputs`.

        Returns:
            OpenRLHF's five values: the loss; the method's clip fraction, 0 where it reports none; the mean over tokens
            of log pi_old - log pi, an estimate of KL(pi_old || pi) in nats; and two that are off.
        """
        inputs = LossInputs(log_probs, old_log_probs, advantages, action_mask, rollout_log_probs, **batch)
        outputs = self.method(inputs)
        with torch.no_grad():
            self._rows.append(response_rows(inputs, outputs))
            tokens = action_mask.sum().clamp(min=1)
            kl = ((old_log_probs - log_probs).float() * action_mask).sum() / tokens
        clip = outputs.metrics.get("clip_fraction", torch.zeros((), device=log_probs.device))
        return outputs.loss, clip, kl, None, None

    def take_rows(self) -> Tensor:
        """The rows since the last call, [responses, columns]."""
        rows = torch.cat(self._rows)
        self._rows = []
        return rows
