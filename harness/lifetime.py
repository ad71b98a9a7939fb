"""How long the processes of a step live: none longer than who started it, and the next step waits for all of them.

A process joins a step by itself (`join_step`); those that it starts through `multiprocessing`, as vLLM starts its
engine, join as well, and end when it does, in whatever way that is.

Ray counts the GPUs of a dead driver, or of a removed placement group, as free at once, and ends the processes that use
them a moment later. So each process of a step keeps a shared lock on the step's file in the folder of runs as long as
it lives, however it ends, and the scheduler gives the step's GPUs away when nobody keeps a lock any more. The file is
removed then: a process of the step that comes later finds none, and ends.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import spawn, util
from pathlib import Path
from typing import IO, Any, NamedTuple

VARIABLE = "REUSE_BENCH_STEP_FILE"
"""Where the processes of a step find its file; not set outside the scheduler."""
FOLDER = ".steps"
LOOK_SECONDS = 1.0

_kept: dict[int, IO[str]] = {}
"""By process: a fork finds what its parent has."""


def end_with_parent() -> None:
    """Have this process, and the group that it leads, killed when its parent ends: nobody would watch it.

    Call it early: a parent that has ended before is not noticed.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


# In the processes of a step -------------------------------------------------------------------------------------


def join_step(name: str | None = None) -> None:
    """Belong to the step that the environment names, if it does, to the end of this process.

    Args:
        name: what the process is called when a person is told of it.

    Raises:
        SystemExit: the step is over.
    """
    path, pid = os.environ.get(VARIABLE), os.getpid()
    if path and pid not in _kept:
        stream = _lock(Path(path))
        called = (name or Path(sys.argv[0]).stem or "python").replace(" ", "-")
        stream.write(f"{socket.gethostname()} {pid} {_started(pid)} {called}\n")
        stream.flush()
        _kept[pid] = stream
        _take_children_along()


def join_as_child(name: str, parent: int) -> None:
    """Join the step of the process that has started this one through `multiprocessing`, and end when that one does."""
    if os.getpid() not in _kept:
        join_step(name)
        threading.Thread(target=_end_with, args=(parent, _started(parent)), daemon=True).start()


def _end_with(parent: int, began: str | None) -> None:
    """Not by the pipe that `multiprocessing` has for this: whoever was forked in between holds it open as well."""
    while began and _started(parent) == began:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


@cache
def _take_children_along() -> None:
    """From now on, have every process that this one starts through `multiprocessing` join."""
    util.register_after_fork(_join_after_fork, lambda join: join())
    prepared = spawn.get_preparation_data

    def with_join(name: str) -> dict[str, Any]:
        return {**prepared(name), "join": _JoinAfterSpawn(name)}

    spawn.get_preparation_data = with_join


def _join_after_fork() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    assert parent.pid
    join_as_child(multiprocessing.current_process().name, parent.pid)


@dataclass(frozen=True)
class _JoinAfterSpawn:
    """A new process unpickles this before anything else."""

    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        # It does not know yet where modules are.
        where = str(Path(__file__).resolve().parents[1])
        join = f"from harness.lifetime import join_as_child; join_as_child({self.name!r}, {os.getpid()})"
        return exec, (f"import sys; sys.path.append({where!r}); {join}", {})


@contextmanager
def step(path: Path) -> Iterator[None]:
    """Belong to a step while the block lasts; processes that are started in it find it in their environment."""
    stream = _lock(path)
    os.environ[VARIABLE] = str(path)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        stream.close()


def _lock(path: Path) -> IO[str]:
    over = SystemExit(f"{path.name}: this step is over")
    try:
        stream = os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND), "a+")  # and not made anew
    except FileNotFoundError:
        raise over from None
    fcntl.flock(stream, fcntl.LOCK_SH)
    if not path.exists() or not os.path.samestat(path.stat(), os.fstat(stream.fileno())):
        raise over
    return stream


def _started(pid: int) -> str | None:
    """When a process of this machine was started, in the kernel's ticks; None when it has ended.

    Numbers of processes are used again. One that nobody has asked for its exit code yet has ended all the same.
    """
    try:
        _, _, rest = Path("/proc", str(pid), "stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = rest.split()
    return None if state in "ZX" else fields[18]


# In the driver --------------------------------------------------------------------------------------------------


def new_step(runs: Path, name: str) -> Path:
    """The file of a step that is about to start."""
    path = runs / FOLDER / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path.resolve()


def is_over(path: Path) -> bool:
    """Whether no process of the step is left; removes its file then."""
    try:
        with path.open("r+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def lingering(runs: Path) -> list[Path]:
    """The files of steps of which processes are left."""
    return [path for path in sorted((runs / FOLDER).glob("*")) if not is_over(path)]


class Member(NamedTuple):
    """A process of a step: where it runs, its number there, and what it is called."""

    host: str
    pid: int
    name: str


def processes_of(path: Path) -> list[Member]:
    """The processes that have joined the step; without those that have ended on this machine."""
    here = socket.gethostname()
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        host, pid, started, name = line.split()
        if host != here or _started(int(pid)) == started:
            found.append(Member(host, int(pid), name))
    return found


def end_processes(path: Path) -> None:
    """Kill those that are on this machine."""
    for one in processes_of(path):
        if one.host == socket.gethostname():
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)


def said(path: Path) -> str:
    """The processes of a step, for a person to look at."""
    return ", ".join(f"process {pid} ({name}) on {host}" for host, pid, name in processes_of(path)) or "an unknown one"
