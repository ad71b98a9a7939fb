"""Disks that are too small or full: what is said before a run, and in the middle of one."""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.plan import CellEstimate
from methods.errors import UserError

FULL_BYTES = 2 << 20
"""A disk with less than that counts as full when something on it has failed."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SAID = re.compile(r"(?:No space left on device|Disk quota exceeded)(?:: '([^']+)')?")


def free_bytes(folder: Path) -> int:
    """What is free where the folder is, or will be."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_disk(estimates: Sequence[CellEstimate], runs: Path, at_once: int) -> None:
    """Whether cells that are to run have room, by their estimates; what they have written already is counted.

    Args:
        estimates: of the cells.
        runs: the folder of runs.
        at_once: how many may train at the same time.

    Raises:
        UserError: they have not.
    """
    kept = sum(one.disk_kept for one in estimates)
    states = sorted((one.disk_peak - one.disk_kept for one in estimates), reverse=True)[:at_once]
    there = sum(_size(runs / one.cell.path) for one in estimates)
    needed, free = kept + sum(states) - there, free_bytes(runs)
    if needed > free:
        raise UserError(
            f"{runs}: {len(estimates)} cells, at most {len(states)} of them at once, need about {_in_words(needed)} "
            f"more and {_in_words(free)} are free: make room, choose another folder with --runs or fewer cells, or "
            "go on all the same with --ignore-disk"
        )


def _in_words(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def full_disk(error: BaseException, folder: Path) -> UserError | None:
    """The sentence to say when a full disk is the reason of an error; None when it is not.

    The error may come from another process, whose log may have had no room either: what is free now counts as well.

    Args:
        error: what has happened.
        folder: where the step writes.
    """
    said = _SAID.search(str(error))
    where: Path | str | None = None
    if isinstance(error, OSError) and error.errno in _FULL:
        where = error.filename or folder
    elif free_bytes(folder) < FULL_BYTES and isinstance(error, Exception) and not isinstance(error, UserError):
        where = folder
    elif said:
        where = said.group(1) or f"{folder} or {tempfile.gettempdir()}"
    if where is None:
        return None
    return UserError(f"{where}: the disk is full: make room, and give the same command again, which continues")
