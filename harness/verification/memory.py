"""What was recomputed and found right is remembered, by digest of all that it depends on."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.records import Record, canonical_json, write_atomically
from harness.verification.checked import Checked, Finding
from harness.verification.samples import GRADER, MATH_VERIFY
from methods.errors import UserError
from tasks import chain, datasets

PACKAGE = Path(__file__).parents[2]


class Memory:
    """A file in ``folder``; without a folder nothing is remembered."""

    LIMIT = 100_000

    def __init__(self, folder: Path | None) -> None:
        self.path = folder / "verified.json" if folder else None
        self.known: dict[str, dict[str, Any]] = {}
        self.changed = False
        self._sets: dict[str, str] = {}
        if self.path and self.path.is_file():
            try:
                document = json.loads(self.path.read_bytes())
                self.known = document if isinstance(document, dict) else {}
            except (OSError, ValueError):
                self.known = {}

    def key(self, record: Record, content: bytes, regrade: bool) -> str:
        """Digest of the bytes of a record, of our code, of the installed grader, and of the sets that are at hand."""
        for task in set(record.evaluation) - set(self._sets):
            self._sets[task] = _digest_of_set(task)
        sets = {task: self._sets[task] for task in record.evaluation}
        surroundings = [_code_digest(), regrade, metadata.version(MATH_VERIFY), sets]
        return hashlib.sha256(canonical_json(surroundings) + content).hexdigest()

    def recall(self, one: Checked) -> bool:
        """Whether all of it is known; if so, put into ``one`` what was found."""
        known = self.known.get(one.key)
        if known is None:
            return False
        one.facts = dict(known["facts"])
        one.findings += [Finding(one.path, name, message, "note") for name, message in known["notes"]]
        return True

    def remember(self, one: Checked) -> None:
        """Keep what was found by recomputing, which has no error in it."""
        notes = [(note.field, note.message) for note in one.findings[one.before :]]
        self.known[one.key] = {"facts": one.facts, "notes": notes}
        self.changed = True

    def save(self) -> None:
        """Write what is new."""
        if self.path and self.changed:
            recent = dict(list(self.known.items())[-self.LIMIT :])
            with suppress(OSError):  # a folder that cannot be written costs time at the next call, and no verdict
                write_atomically(self.path, canonical_json(recent))


def _digest_of_set(task: str) -> str:
    try:
        return datasets.evaluation_problems(task).digest
    except UserError:
        return ""


@cache
def _code_digest() -> str:
    """Digest of the code and protocols that a verdict depends on: another version checks again."""
    harness = PACKAGE / "harness"
    files = [harness / f"{name}.py" for name in ("verify", "scoring", "curves", "records", "evaluation")]
    files += [*Path(__file__).parent.glob("*.py"), *(harness / "protocols").glob("*.yaml")]
    files += [Path(chain.__file__), *(PACKAGE / GRADER).glob("*.py")]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()
