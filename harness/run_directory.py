"""The folder of one cell: where its files lie, what state it is in, and the lock that keeps a second driver out.

Every step leaves its result here under a name that exists only when it is complete, so that any step can be rerun
alone, and a killed run continues from what is there.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.grid import Cell
from harness.records import Attempt, canonical_json, regular, write_atomically
from methods.errors import UserError

TAIL_BYTES = 1 << 16
LOCK_SECONDS = 1.0
"""How long a lock is tried: `RunDirectory.is_locked` holds it for a moment too."""

CellStatus = Literal["waiting", "training", "trained", "evaluating", "done", "collapsed", "failed", "interrupted"]


class CellState(BaseModel):
    """``cell.json``: what the driver knows of the cell. Times are ISO 8601 in UTC."""

    model_config = ConfigDict(extra="forbid")

    cell: str
    protocol_digest: str
    status: CellStatus = "waiting"
    detail: str | None = Field(default=None, description="why it failed or collapsed, in one line")
    began: str | None = Field(default=None, description="when the latest step was started")
    began_at_update: int = Field(default=0, description="policy updates from which the latest training step started")
    attempts: list[Attempt] = Field(default_factory=list)
    training_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    record: str | None = Field(default=None, description="id of the record that was made of it")


def now() -> str:
    """The present moment, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class RunDirectory:
    """Paths of one cell below the folder that holds all runs."""

    root: Path

    @classmethod
    def of(cls, runs: Path, cell: Cell) -> RunDirectory:
        """The cell's folder: ``<runs>/<protocol>/<model>/n<N>/<method>/seed<k>``."""
        return cls(runs / cell.id)

    @property
    def state_file(self) -> Path:
        """What the driver knows of the cell."""
        return self.root / "cell.json"

    @property
    def training(self) -> Path:
        """Everything that training reads and writes."""
        return self.root / "training"

    @property
    def prompts(self) -> Path:
        """Training prompts in the order in which they are used."""
        return self.training / "prompts.jsonl"

    @property
    def updates(self) -> Path:
        """One line per policy update."""
        return self.training / "updates.jsonl"

    @property
    def worker(self) -> Path:
        """What the training worker says of the loss that it uses."""
        return self.training / "worker.json"

    @property
    def log(self) -> Path:
        """Output of OpenRLHF and its workers."""
        return self.training / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """DeepSpeed checkpoints, to resume from."""
        return self.training / "checkpoints"

    @property
    def final(self) -> Path:
        """The final checkpoint, as safetensors: the one that is evaluated."""
        return self.training / "final"

    @property
    def trained(self) -> Path:
        """Written last: exists when training is complete, or ended as collapsed."""
        return self.training / "complete.json"

    @property
    def evaluation(self) -> Path:
        """One parquet file of samples per held-out task."""
        return self.root / "evaluation"

    def read_state(self) -> CellState | None:
        """The state, or None when the cell was never started.

        Raises:
            UserError: ``cell.json`` is damaged.
        """
        if not self.state_file.exists():
            return None
        try:
            return CellState.model_validate_json(regular(self.state_file).read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "document"
            raise UserError(
                f"{self.state_file}: field {field}: {first['msg']}; the state is damaged: delete the file, and the "
                "cell continues from its last complete step"
            ) from error

    def write_state(self, state: CellState) -> None:
        """Replace the state at once."""
        write_atomically(self.state_file, canonical_json(state.model_dump(mode="json")))

    def read_updates(self) -> list[dict[str, Any]]:
        """The complete lines of the update log, in order; a line cut by a crash is left out.

        Raises:
            UserError: a line is damaged.
        """
        if not self.updates.exists():
            return []
        content = regular(self.updates).read_bytes()
        return [self._update(f"line {number}", line) for number, line in enumerate(content.split(b"\n")[:-1], start=1)]

    def last_update(self) -> dict[str, Any] | None:
        """The last complete line of the update log, without reading the others; None when there is none.

        Raises:
            UserError: it is damaged.
        """
        if not self.updates.exists():
            return None
        with regular(self.updates).open("rb") as stream:
            end, tail = stream.seek(0, os.SEEK_END), b""
            while end and tail.count(b"\n") < 2:  # the end of the line before it, and its own
                start = max(0, end - TAIL_BYTES)
                stream.seek(start)
                tail, end = stream.read(end - start) + tail, start
        lines = tail.split(b"\n")[:-1]
        return self._update("the last line", lines[-1]) if lines else None

    def _update(self, where: str, line: bytes) -> dict[str, Any]:
        try:
            update = json.loads(line)
        except (ValueError, RecursionError):
            update = None
        wanted = {"update": int, "score": int | float | None}
        if not isinstance(update, dict) or any(not isinstance(update.get(key, ""), wanted[key]) for key in wanted):
            raise UserError(
                f"{self.updates}: {where} is no update with a number and a score: the log is damaged: delete "
                f"the folder {self.root}, and run the cell again"
            )
        return update

    @property
    def _lock(self) -> Path:
        return self.root / ".lock"

    def check_files(self) -> None:
        """See that there is nothing in the folder that could not be read to its end.

        Raises:
            UserError: there is something that is neither a regular file nor a folder.
        """
        for folder, _, files in os.walk(self.root):
            for name in files:
                regular(Path(folder, name))

    def is_locked(self) -> bool:
        """Whether a process works on this cell.

        Raises:
            UserError: as `check_files`.
        """
        self.check_files()
        if not self._lock.exists():
            return False
        with self._lock.open() as stream:
            return not _try_lock(stream, fcntl.LOCK_SH)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; the lock goes with the process, however it ends.

        Raises:
            UserError: another process holds it; or as `check_files`.
        """
        self.check_files()
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as stream:
            deadline = time.monotonic() + LOCK_SECONDS
            while not _try_lock(stream, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{self.root}: another reuse-bench process is working on this cell; wait for it, or choose "
                        "another folder with --runs"
                    )
                time.sleep(LOCK_SECONDS / 20)
            yield


def _try_lock(stream: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
