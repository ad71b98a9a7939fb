"""A finished training run, as the tests look at it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.run_directory import RunDirectory


@dataclass(frozen=True)
class Trained:
    """A finished training run."""

    run: RunDirectory

    @cached_property
    def updates(self) -> list[dict[str, Any]]:
        return self.run.read_updates()

    @cached_property
    def rollouts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run.training / "rollouts.jsonl").read_text().splitlines()]

    @cached_property
    def weights(self) -> bytes:
        return (self.run.final / "model.safetensors").read_bytes()
