"""A grading process: ``python -m tasks.grading.worker``, spoken to over its standard input and output.

It reads frames (four bytes of length, then JSON), each a batch of jobs, and answers one frame a verdict, as soon as
it is reached. The work is done in a forked child, which costs milliseconds to replace. The limit on processor time is
the kernel's: a timer with the default action ends the child, whatever code is running, and whether or not anybody
still listens. The limit on memory is the address space.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import struct
from pathlib import Path
from typing import Any

from tasks.grading.types import Grader, Judgement, error

OUT_OF_MEMORY = 3  # exit status of a child
MEMORY = 1 << 30  # bytes that grading may take on top of the imported libraries
HEADER = struct.Struct(">I")


def frame(document: Any) -> bytes:
    """The bytes of one frame."""
    data = json.dumps(document).encode()
    return HEADER.pack(len(data)) + data


def _write(descriptor: int, document: Any) -> None:
    data = memoryview(frame(document))
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int) -> Any:
    """One frame; None at the end of the stream."""
    header = _read_exactly(descriptor, HEADER.size)
    data = _read_exactly(descriptor, HEADER.unpack(header)[0]) if header else None
    return json.loads(data) if data else None


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _limit_memory() -> None:
    """Allow `MEMORY` bytes more than the process has now, and no core file when it is killed."""
    size = 0
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        size = int(statistics.read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if size:
        limit = size + MEMORY if hard == resource.RLIM_INFINITY else min(size + MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Graders:
    """Both graders, loaded once a process."""

    def __init__(self) -> None:
        from tasks.grading.audited import AuditedGrader
        from tasks.grading.published import PublishedGrader

        self.audited = AuditedGrader()
        self.published = PublishedGrader()

    def __call__(self, grader: Grader, gold: str, response: str, task: str | None) -> Judgement:
        if grader == "audited":
            return self.audited(gold, response, task)
        return self.published(gold, response)


def _serve(graders: _Graders, source: int, sink: int) -> None:
    """Answer batches until the input ends."""
    while (batch := _read(source)) is not None:
        for number, wanted, gold, response, task in batch["jobs"]:
            for grader in wanted:
                signal.setitimer(signal.ITIMER_PROF, batch["timeout"])
                try:
                    judgement = graders(grader, gold, response, task)
                except MemoryError:
                    os._exit(OUT_OF_MEMORY)  # what is left of the heap is not to be trusted
                except Exception as caught:
                    judgement = error(f"{type(caught).__name__}: {caught}"[:200])
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                _write(sink, [number, grader, judgement.verdict, judgement.reason])


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; Linux only


def main() -> None:
    """Load the graders once, and fork a child that serves; when it is killed, say so and fork the next."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when to end
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # nothing that a library prints may get between the frames
    try:
        graders = _Graders()
        _limit_memory()
    except Exception as caught:
        _write(sink, {"fatal": f"{type(caught).__name__}: {caught}"})
        return
    gc.freeze()
    _write(sink, {"ready": True})
    while True:
        child = os.fork()
        if child == 0:
            _end_with_parent()
            try:
                _serve(graders, source, sink)
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:  # the input has ended
            return
        _write(sink, {"died": status})


if __name__ == "__main__":
    main()
