"""What is found in a record, and what is kept of it while it is verified."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from harness.records import Record

if TYPE_CHECKING:
    from tasks.grading import GradeRequest

Level = Literal["error", "note"]
TOLERANCE = 1e-9


@dataclass(frozen=True, order=True)
class Finding:
    """What differs. ``path`` is relative to the store; ``field`` is a dotted name in the record, or empty.

    An ``error`` makes verification fail; a ``note`` says what could not be checked here.
    """

    path: str
    field: str
    message: str
    level: Level = "error"


@dataclass(frozen=True)
class Judged:
    """A stored sample that is judged again."""

    task: str
    row: int
    request: GradeRequest
    published: str
    audited: str
    shown: str


@dataclass
class Checked:
    """One record, after the checks that need nothing else."""

    path: str
    record: Record | None = None
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    samples: int = 0
    cached: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    """What is compared with other records: digests of golds, responses and curve, the first score; see `across`."""
    judged: list[Judged] = field(default_factory=list)
    key: str = ""
    before: int = 0
    """How many findings there were before anything was recomputed."""

    def error(self, name: str, message: str, path: str | None = None) -> None:
        """Add what makes verification fail."""
        self.findings.append(Finding(path or self.path, name, message))

    def failed(self) -> bool:
        """Whether an error was found."""
        return any(finding.level == "error" for finding in self.findings)

    def note(self, name: str, message: str) -> None:
        """Add what could not be checked here."""
        self.findings.append(Finding(self.path, name, message, "note"))


def compare(
    one: Checked, name: str, found: Mapping[str, Any], stated: Mapping[str, Any], leave: Iterable[str] = ()
) -> None:
    """Report every leaf that differs; floats may differ by rounding."""
    for key in found:
        if key in leave:
            continue
        here, there, place = found[key], stated.get(key), f"{name}.{key}"
        if isinstance(here, dict) and isinstance(there, dict):
            compare(one, place, here, there)
        elif isinstance(here, float) and isinstance(there, int | float):
            if not math.isclose(here, there, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
                one.error(place, f"{there!r} is recorded, {here!r} follows from the stored file")
        elif here != there:
            one.error(place, f"{shortened(there)} is recorded, {shortened(here)} follows from the stored file")


def shortened(value: Any) -> str:
    """A value as it is shown."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
