"""Grading in processes that can be killed.

The workers are plain child processes that run `tasks.grading.worker`: nothing of the caller is imported in them, no
signal is set in the caller, and any thread, event loop or Ray actor may call. They start with the first request that
needs one, are kept for the next call, and end with their caller.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.grading.extract import last_box, last_result
from tasks.grading.rules import Rule, rule_of
from tasks.grading.types import GRADERS, RIGHT, Grade, Grader, GradeRequest, Judgement, error, wrong
from tasks.grading.worker import HEADER, OUT_OF_MEMORY, frame

DEFAULT_TIMEOUT = 5.0  # seconds of processor time for each grader on each answer
# Math-Verify needs some ten seconds to tell two differential equations apart. Whether that is an error must not depend
# on the machine: what used up its time is tried once more, alone, with so many times as much. A model that has gone
# astray may write any number of such answers: of one call so many are tried again, the first ones, and the rest are
# errors at once.
SECOND_TRY = 6
SECOND_TRIES = 32
_BATCH = 16  # jobs sent at once
_BATCH_CHARACTERS = 1 << 20
_START_SECONDS = 120.0
_LIMITS = {-signal.SIGPROF: "time limit", OUT_OF_MEMORY: "out of memory"}
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


class GraderUnavailable(RuntimeError):  # noqa: N818
    """No grading process can be started: Math-Verify is not installed, for example."""


class _Ended(Exception):  # noqa: N818
    """The worker has ended, or stayed silent for too long."""


class _ChildDied(Exception):  # noqa: N818
    """The worker's child was ended; the worker goes on with another."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Worker:
    """One child process. Used by one thread at a time."""

    def __init__(self) -> None:
        path = [_PACKAGE_PARENT, os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tasks.grading.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        try:
            greeting = self.receive(_START_SECONDS)
        except _Ended:
            greeting = {"fatal": f"it ended with exit status {self.kill()}"}
        if "fatal" in greeting:
            self.kill()
            raise GraderUnavailable(f"the grading process did not start: {greeting['fatal']}")

    def send(self, document: Any, seconds: float) -> None:
        """Write one frame, within the given time."""
        data = memoryview(frame(document))
        deadline = time.monotonic() + seconds
        while data:
            _wait(self._stdin.fileno(), select.POLLOUT, deadline)
            try:
                data = data[os.write(self._stdin.fileno(), data) :]
            except BlockingIOError:
                continue
            except OSError as caught:
                raise _Ended from caught

    def receive(self, seconds: float) -> Any:
        """Read one frame, within the given time."""
        deadline = time.monotonic() + seconds
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline))
        return json.loads(self._read(length, deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        data = b""
        while len(data) < size:
            _wait(self._stdout.fileno(), select.POLLIN, deadline)
            part = os.read(self._stdout.fileno(), size - len(data))
            if not part:
                raise _Ended
            data += part
        return data

    def kill(self) -> int:
        """End the process now and say how it ended."""
        self.process.kill()
        status = self.process.wait()
        self._stdin.close()
        self._stdout.close()
        return status

    def usable(self) -> bool:
        """Whether it runs and has nothing left to say."""
        poll = select.poll()
        poll.register(self._stdout.fileno(), select.POLLIN)
        return self.process.poll() is None and not poll.poll(0)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise _Ended


def _processors() -> int:
    """Workers that a call has by default: the processors that this process may use, but no more than 16.

    On a large node many actors grade at the same time, and each worker takes some 80 MB.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        count = os.cpu_count() or 1
    return min(max(count, 1), 16)


class _Workers:
    """The workers of this process: those that wait for the next call, and how many there may be.

    A call takes one out for each of its threads, so none is ever shared. A trainer may call from dozens of threads at
    once, one answer each: they wait for their turn, rather than start a worker each and end it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._free = threading.Semaphore(_processors())

    def take(self) -> _Worker:
        self._free.acquire()
        try:
            while True:
                with self._lock:
                    worker = self._idle.pop() if self._idle else None
                if worker is None:
                    return _Worker()
                if worker.usable():
                    return worker
                worker.kill()
        except BaseException:
            self._free.release()
            raise

    def give(self, worker: _Worker) -> None:
        """Back, for the next one."""
        with self._lock:
            self._idle.append(worker)
        self._free.release()

    def drop(self, worker: _Worker) -> int:
        """End one that was taken, and say how it ended."""
        self._free.release()
        return worker.kill()

    def clear(self) -> None:
        with self._lock:
            workers, self._idle = self._idle, []
        for worker in workers:
            worker.kill()


_workers = _Workers()
atexit.register(lambda: _workers.clear())


def _forget() -> None:
    """In a forked child: the workers are the parent's, and so may be the lock."""
    global _workers
    _workers = _Workers()


os.register_at_fork(after_in_child=_forget)


@dataclass
class _Job:
    """One answer on its way: who has spoken, and who has yet to."""

    request: GradeRequest
    extracted: str | None
    copies: int = 0
    judgements: dict[Grader, Judgement] = field(default_factory=dict)
    accidents: int = 0

    @property
    def wanted(self) -> list[Grader]:
        return [grader for grader in GRADERS if grader not in self.judgements]

    def grade(self) -> Grade:
        audited, published = self.judgements["audited"], self.judgements["published"]
        reason = audited.reason
        if published.verdict == "error":
            reason = "; ".join(filter(None, [reason, f"published: {published.reason}"]))
        return Grade(self.extracted, published.verdict, audited.verdict, reason)


class _Try:
    """One try of all jobs of a call: the threads that carry them to the workers, in batches or each alone.

    ``slow``: the jobs whose time ran out in the published grader.
    """

    def __init__(self, jobs: list[_Job], timeout: float, *, alone: bool = False) -> None:
        self.jobs = jobs
        self.timeout = timeout
        self.batch = 1 if alone else _BATCH
        self.slow: set[int] = set()
        self.waiting = deque(range(len(jobs)))
        self.done: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self.stopped = threading.Event()
        # The worker's own clock counts processor time, of which a busy machine may give it one part in fifty. This
        # clock is for a worker that is stopped; an answer that takes too long never gets as far.
        self.patience = 600 * timeout + 60

    def run(self, workers: int | None, tell: Callable[[int], None]) -> None:
        """Until all jobs are done; ``tell`` is called in this thread with the number of each."""
        threads = [
            threading.Thread(target=self.serve, name="grading", daemon=True)
            for _ in range(min(workers or _processors(), len(self.jobs)))
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in self.jobs:
                finished = self.done.get()
                if isinstance(finished, BaseException):
                    raise finished
                tell(finished)
        except BaseException:
            self.stopped.set()
            raise
        for thread in threads:
            thread.join()

    def serve(self) -> None:
        """Body of a thread: feed one worker after the other until nothing waits."""
        worker: _Worker | None = None
        try:
            while not self.stopped.is_set() and (batch := self._next_batch()):
                worker = worker or _workers.take()
                try:
                    self._run(worker, batch)
                except _ChildDied as caught:
                    limit = _LIMITS.get(caught.status)
                    reason = limit or f"the grading process ended with status {caught.status}"
                    self._blame(batch, reason, certain=caught.status == -signal.SIGPROF)
                    if limit is None:  # killed by somebody else, perhaps in the middle of a frame
                        _workers.drop(worker)
                        worker = None
                except _Ended:
                    silent = worker.process.poll() is None
                    status = _workers.drop(worker)
                    worker = None
                    reason = "time limit" if silent else f"the grading process ended with status {status}"
                    self._blame(batch, reason, certain=silent)
        except BaseException as caught:
            self.done.put(caught)
        finally:
            if worker is not None:
                if self.stopped.is_set():
                    _workers.drop(worker)
                else:
                    _workers.give(worker)

    def _next_batch(self) -> list[int]:
        batch: list[int] = []
        characters = 0
        # A fair share near the end, so that no worker idles while another has a full batch.
        size = max(1, min(self.batch, len(self.waiting) // (2 * _processors())))
        while len(batch) < size and characters < _BATCH_CHARACTERS:
            try:
                number = self.waiting.popleft()
            except IndexError:
                break
            batch.append(number)
            characters += len(self.jobs[number].request.response)
        return batch

    def _run(self, worker: _Worker, batch: list[int]) -> None:
        rows = []
        for number in batch:
            job = self.jobs[number]
            rows.append((number, job.wanted, job.request.gold, job.request.response, job.request.task))
        worker.send({"timeout": self.timeout, "jobs": rows}, self.patience)
        for number in batch:
            for _ in self.jobs[number].wanted:
                if self.stopped.is_set():
                    return
                said = worker.receive(self.patience)
                if isinstance(said, dict):
                    raise _ChildDied(said["died"])
                got, grader, verdict, reason = said
                self.jobs[got].judgements[grader] = Judgement(verdict, reason)
            self.done.put(number)

    def _blame(self, batch: list[int], reason: str, certain: bool) -> None:
        """The first missing verdict is the one that ended the child; the others get another child.

        What ended by a signal from elsewhere, or where the memory may have been full of earlier answers, goes back
        once. What used up its time does not; `grade_many` tries some of those again, when all others are done.
        """
        unfinished = [number for number in batch if self.jobs[number].wanted]
        if not unfinished:
            return
        first = self.jobs[unfinished[0]]
        first.accidents += not certain
        if certain or first.accidents > 1:
            grader = first.wanted[0]
            first.judgements[grader] = error(reason)
            if certain and grader == "published":
                self.slow.add(unfinished[0])
            if not first.wanted:
                self.done.put(unfinished.pop(0))
        self.waiting.extendleft(reversed(unfinished))


def grade_many(
    requests: Iterable[GradeRequest],
    *,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    second_tries: int = SECOND_TRIES,
    progress: Callable[[int], None] | None = None,
) -> list[Grade]:
    """Judge answers by both graders, each different answer once.

    Args:
        requests: what to judge.
        workers: number of processes; None: as many as there are processors, 16 at most.
        timeout: processor seconds that each grader may take for one answer; more gives the verdict "error".
        second_tries: how many answers on which the published grader ran out of time it gets again, at the end, with
            `SECOND_TRY` times as many seconds. The audited one is done in milliseconds, or never.
        progress: called in the caller's thread with the number of requests done so far.

    Returns:
        Grades in the order of the requests.

    Raises:
        GraderUnavailable: no grading process can be started.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if not timeout > 0:
        raise ValueError(f"timeout must be positive, not {timeout}")
    jobs: list[_Job] = []
    known: dict[tuple[Rule, str, str, bool], _Job] = {}
    by_request: list[_Job] = []
    done = 0
    for request in requests:
        rule = rule_of(request.task)
        key = (rule, request.gold, request.response, request.finished)
        job = known.get(key)
        if job is None:
            job = known[key] = _new_job(request, rule)
            if job.wanted:
                jobs.append(job)
        job.copies += 1
        done += not job.wanted
        by_request.append(job)
    if progress and done:
        progress(done)
    # Neighbours share a gold, and with it what a worker remembers.
    jobs.sort(key=lambda job: job.request.gold)

    def tell(job: _Job) -> None:
        nonlocal done
        done += job.copies
        if progress:
            progress(done)

    first = _Try(jobs, timeout)
    first.run(workers, lambda number: None if number in first.slow else tell(jobs[number]))
    slow = [jobs[number] for number in sorted(first.slow)]
    for job in slow[second_tries:]:
        tell(job)
    again = slow[:second_tries]
    for job in again:
        del job.judgements["published"]
    _Try(again, timeout * SECOND_TRY, alone=True).run(workers, lambda number: tell(again[number]))
    return [job.grade() for job in by_request]


def grade_one(request: GradeRequest, *, timeout: float = DEFAULT_TIMEOUT) -> Grade:
    """Judge one answer. For more than a few, `grade_many` is much faster."""
    return grade_many([request], workers=1, timeout=timeout)[0]


def _new_job(request: GradeRequest, rule: Rule) -> _Job:
    if rule.family != "chain":
        return _Job(request, last_box(request.response))
    job = _Job(request, last_result(request.response))
    judgement = _judge_chain(job.extracted, request)
    job.judgements = {"audited": judgement, "published": judgement}
    return job


def _judge_chain(answer: str | None, request: GradeRequest) -> Judgement:
    if not request.finished:
        return wrong("truncated")
    if answer is None:
        return wrong("the chain has no result at its end")
    return RIGHT if answer == request.gold else wrong("not equal")
