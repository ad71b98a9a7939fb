"""Hostile answers end in time and in bounds, wherever grading is called from, and the next answer is graded."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tasks.grading import Grade, GradeRequest, GraderUnavailable, grade_many, grade_one, pool
from tasks.reward import rewards
from tests.grading_hostile import HOSTILE

TIMEOUT = 0.1
AFTER = GradeRequest(r"\frac{1}{2}", r"So it is $\boxed{0.5}$.")
SOUND = Grade("0.5", "right", "right", None)


def requests() -> list[GradeRequest]:
    """Each hostile answer, and after each one that is harmless but different, so that it is graded anew."""
    made = []
    for number, response in enumerate(HOSTILE.values()):
        made.append(GradeRequest("5", response))
        made.append(GradeRequest(f"{number + 2}", rf"Then $x = \boxed{{{number + 2}}}$."))
    return made


def check(grades: list[Grade], seconds: float) -> None:
    assert len(grades) == 2 * len(HOSTILE)
    for name, hostile, harmless in zip(HOSTILE, grades[::2], grades[1::2], strict=True):
        assert hostile.audited in ("wrong", "error"), name
        assert hostile.published in ("wrong", "error"), name
        assert hostile.reason, name
        assert (harmless.published, harmless.audited) == ("right", "right"), f"after {name}: {harmless}"
    # Both graders may use up their time on each, one of them twice; replacing a process must not cost as much again.
    assert seconds < len(HOSTILE) * ((2 + pool.SECOND_TRY) * TIMEOUT + 1) + 20


def graded() -> tuple[list[Grade], float]:
    """The grades, and the processor seconds that the grading processes took for them."""
    before = _used()
    grades = grade_many(requests(), timeout=TIMEOUT)
    return grades, _used() - before


def _used() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        if "tasks.grading.worker" in process.cmdline():
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def test_there_are_at_least_forty():
    assert len(HOSTILE) >= 40


@pytest.mark.slow
def test_pool_survives_hostile_answers():
    """In a process of its own, whose only children are the grading processes: so their memory can be told."""
    code = (
        "import resource\n"
        "from tasks.grading import pool\n"
        "from tests.integration.test_grading_hostile import check, graded\n"
        "check(*graded())\n"
        "pool._workers.clear()\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | _paths()
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert 10_000 < int(done.stdout) < 2_000_000, f"a grading process took {done.stdout} kB"


@pytest.mark.slow
def test_thread_survives_hostile_answers():
    with ThreadPoolExecutor(1) as executor:
        check(*executor.submit(graded).result())


@pytest.mark.slow
@pytest.mark.stack
def test_ray_actors_survive_hostile_answers():
    ray = pytest.importorskip("ray")

    class Sync:
        def grade(self):
            return graded()

    class Async:
        async def grade(self):
            return graded()

        async def grade_beside_the_loop(self):
            return await asyncio.get_running_loop().run_in_executor(None, grade_one, AFTER)

    started = not ray.is_initialized()  # otherwise other tests of this session have
    if started:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        environment = {"env_vars": _paths()}
        sync, asynchronous = (ray.remote(one).options(runtime_env=environment).remote() for one in (Sync, Async))
        check(*ray.get(sync.grade.remote(), timeout=600))
        assert ray.get(asynchronous.grade_beside_the_loop.remote(), timeout=600) == SOUND
        check(*ray.get(asynchronous.grade.remote(), timeout=600))
    finally:
        if started:
            ray.shutdown()


def _paths() -> dict[str, str]:
    import tasks

    root = os.path.dirname(os.path.dirname(tasks.__file__))  # noqa: PTH120
    return {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def test_timeout_is_an_error_and_the_process_is_replaced():
    start = time.monotonic()
    grades = grade_many([GradeRequest("5", HOSTILE["factorial of factorial"]), AFTER], workers=1, timeout=TIMEOUT)
    assert grades[0].published == "error"
    assert "time limit" in grades[0].reason
    assert grades[1] == SOUND
    assert time.monotonic() - start < 30


@pytest.fixture
def patient(monkeypatch):
    """Grading processes whose published grader needs as many seconds as the gold says, and then says right."""
    code = (
        "import time\n"
        "from tasks.grading import worker\n"
        "from tasks.grading.types import RIGHT\n"
        "class Slow:\n"
        "    def __call__(self, grader, gold, response, task):\n"
        "        until = time.process_time() + (float(gold) if grader == 'published' else 0)\n"
        "        while time.process_time() < until:\n"
        "            pass\n"
        "        return RIGHT\n"
        "worker._Graders = Slow\n"
        "worker.main()\n"
    )
    start = subprocess.Popen
    monkeypatch.setattr(pool, "_workers", pool._Workers())
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: start([command[0], "-c", code], **options))
    yield
    pool._workers.clear()


def slow_answers(seconds: list[str]) -> list[GradeRequest]:
    return [GradeRequest(gold, rf"\boxed{{{number}}}") for number, gold in enumerate(seconds)]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_what_used_up_its_time_is_tried_again_alone():
    """A verdict does not depend on a limit that is a little too tight; one that never comes is an error."""
    done: list[int] = []
    asked = slow_answers(["0", "0.6", "1000", "0", "0.7", "0"])
    grades = grade_many(asked, workers=1, timeout=0.25, progress=done.append)
    assert [grade.published for grade in grades] == ["right", "right", "error", "right", "right", "right"]
    assert {grade.audited for grade in grades} == {"right"}
    assert grades[2].reason == "published: time limit"
    assert done == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_many_endless_answers_do_not_hold_up_a_call():
    """Only the first of them are tried again, so that a model gone astray costs a bounded time."""
    done: list[int] = []
    grades = grade_many(slow_answers(["0.6"] * 6), workers=2, timeout=0.25, second_tries=2, progress=done.append)
    assert [grade.published for grade in grades] == ["right"] * 2 + ["error"] * 4
    assert done == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_rollout_does_not_wait_for_a_second_try():
    """Its reward would be that of a wrong answer for an error, too."""
    answers = slow_answers(["0", "0.6"])
    batch = rewards(
        [one.response for one in answers], [one.gold for one in answers], task=None, grader="published", timeout=0.25
    )
    assert (batch.rewards, batch.errors) == ([1.0, -1.0], 1)


def test_memory_is_bounded(monkeypatch):
    """A grader that takes memory without end is stopped by the limit, and says so."""
    code = (
        "import os, sys\n"
        "from tasks.grading import worker\n"
        "class Greedy:\n"
        "    def __call__(self, grader, gold, response, task):\n"
        "        return [bytes(1 << 20) for _ in range(1 << 20)]\n"
        "worker._Graders = Greedy\n"
        "worker.main()\n"
    )
    start = subprocess.Popen

    def greedy(command, **options):
        assert command[-1] == "tasks.grading.worker"
        return start([command[0], "-c", code], **options)

    monkeypatch.setattr(pool, "_workers", pool._Workers())
    monkeypatch.setattr(subprocess, "Popen", greedy)
    grade = grade_one(AFTER, timeout=20)
    pool._workers.clear()
    assert (grade.published, grade.audited) == ("error", "error")
    assert "out of memory" in grade.reason


@pytest.mark.slow
def test_killed_process_costs_no_verdict(monkeypatch):
    """A process that somebody else kills in the middle of its work is replaced, and the answer is tried again."""
    monkeypatch.setattr(pool, "_workers", pool._Workers())
    kill_once = threading.Event()
    receive = pool._Worker.receive

    def receive_after_kill(self, seconds):
        if not kill_once.is_set() and self.process.poll() is None and hasattr(self, "_greeted"):
            kill_once.set()
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self._greeted = True
        return receive(self, seconds)

    monkeypatch.setattr(pool._Worker, "receive", receive_after_kill)
    assert grade_one(AFTER) == SOUND
    assert kill_once.is_set()
    pool._workers.clear()


def test_many_threads_share_a_few_processes(monkeypatch):
    """As in a trainer, whose threads ask for one answer each."""
    started = []
    start = subprocess.Popen

    def counted(command, **options):
        started.append(command)
        return start(command, **options)

    monkeypatch.setattr(pool, "_workers", pool._Workers())
    monkeypatch.setattr(subprocess, "Popen", counted)
    asked = [GradeRequest(str(number), rf"$\boxed{{{number % 7}}}$") for number in range(64)]
    with ThreadPoolExecutor(32) as executor:
        grades = list(executor.map(grade_one, asked))
    pool._workers.clear()
    assert [grade.audited == "right" for grade in grades] == [number < 7 for number in range(64)]
    assert 1 <= len(started) <= pool._processors()


@pytest.mark.slow
def test_idle_process_that_died_is_not_used(monkeypatch):
    monkeypatch.setattr(pool, "_workers", pool._Workers())
    assert grade_one(AFTER) == SOUND
    (idle,) = pool._workers._idle
    idle.process.kill()
    idle.process.wait()
    assert grade_one(GradeRequest("3", r"\boxed{3}")).audited == "right"
    pool._workers.clear()


@pytest.mark.slow
def test_processes_end_with_their_caller():
    code = (
        "import os, signal\n"
        "from tasks.grading import GradeRequest, grade_one, pool\n"
        "grade_one(GradeRequest('3', r'\\boxed{3}'))\n"
        "print(pool._workers._idle[0].process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=os.environ | _paths()
    )
    pid = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    state = open(f"/proc/{pid}/stat").read().split()[2]  # noqa: PTH123, SIM115
    assert state == "Z", "the grading process outlives its caller"


def test_no_signal_is_set_in_the_caller():
    handlers = [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGINT)]
    grade_one(AFTER)
    assert [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGINT)] == handlers


def test_fork_does_not_share_processes():
    assert grade_one(AFTER) == SOUND
    child = os.fork()
    if child == 0:
        os._exit(0 if not pool._workers._idle and grade_one(AFTER) == SOUND else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert grade_one(AFTER) == SOUND


def test_missing_math_verify_is_said(monkeypatch):
    start = subprocess.Popen
    monkeypatch.setattr(pool, "_workers", pool._Workers())
    broken = "import sys; sys.modules['math_verify'] = None; from tasks.grading.worker import main; main()"
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: start([command[0], "-c", broken], **options))
    with pytest.raises(GraderUnavailable, match="did not start: ModuleNotFoundError"):
        grade_one(AFTER)
