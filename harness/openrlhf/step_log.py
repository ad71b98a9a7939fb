"""The logs of a training run: one line of JSON per policy update or rollout batch, written by Ray workers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DIGITS = 7
"""Decimal digits of a number: those of a 32-bit float, which is what most of them were. It halves the files."""


class StepLog:
    """One line of JSON per step, each written at once and whole.

    A resumed run starts at ``done`` steps: lines of steps that the checkpoint does not know are dropped.
    """

    def __init__(self, path: Path, key: str, done: int) -> None:
        self.path = path
        kept = [line for line in _lines(path) if json.loads(line)[key] <= done]
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(f"{line}\n" for line in kept))
        temporary.replace(path)

    def write(self, line: dict[str, Any]) -> None:
        """Append one step. A number that JSON cannot carry is written as null; others with the digits they have."""
        text = json.dumps(_as_json(line), allow_nan=False)
        with self.path.open("a") as stream:
            stream.write(f"{text}\n")


def _lines(path: Path) -> Iterator[str]:
    """The complete lines of a file that may not exist and whose last line may be cut."""
    if path.exists():
        text = path.read_text()
        yield from text[: text.rfind("\n") + 1].splitlines()


def _as_json(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _as_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    return value
