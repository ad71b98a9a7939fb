"""Processes of a step: the next step waits for all of them, and none outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import lifetime

ROOT = Path(__file__).resolve().parents[2]
JOIN = "from harness import lifetime; lifetime.join_step(); print('joined', flush=True); input()"


def python(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def eventually(condition: Callable[[], bool], seconds: float = 300) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_step_is_over_when_its_last_process_is_killed(tmp_path: Path) -> None:
    path = lifetime.new_step(tmp_path, "a")
    with lifetime.step(path):
        assert os.environ[lifetime.VARIABLE] == str(path)
        process = python(JOIN)
        assert process.stdout
        assert process.stdout.readline() == "joined\n"
    assert lifetime.VARIABLE not in os.environ
    assert lifetime.lingering(tmp_path) == [path]  # the block has ended, the process has not
    assert [one.pid for one in lifetime.processes_of(path)] == [process.pid]
    assert f"process {process.pid} (-c) on " in lifetime.said(path)
    lifetime.end_processes(path)
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert lifetime.processes_of(path) == []
    assert lifetime.said(path) == "an unknown one"
    assert lifetime.is_over(path)
    assert lifetime.lingering(tmp_path) == []
    assert not path.exists()


def test_who_comes_after_the_end_of_the_step_ends(tmp_path: Path) -> None:
    path = lifetime.new_step(tmp_path, "a")
    assert lifetime.is_over(path)
    late = python(JOIN, **{lifetime.VARIABLE: str(path)})
    output, errors = late.communicate(timeout=300)
    assert (output, late.returncode) == ("", 1)
    assert "this step is over" in errors
    assert not path.exists()
    with pytest.raises(SystemExit), lifetime.step(path):
        pass


def test_outside_a_step_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lifetime.VARIABLE, raising=False)
    lifetime.join_step()
    assert os.getpid() not in lifetime._kept


def test_a_group_ends_with_the_parent_of_its_leader(tmp_path: Path) -> None:
    leader = (
        "import os, subprocess, sys; from harness.lifetime import end_with_parent; end_with_parent()\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        "print(os.getpid(), inner.pid, flush=True); inner.wait()\n"
    )
    parent = python(
        f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {leader!r}], start_new_session=True).wait()\n"
    )
    assert parent.stdout
    pids = parent.stdout.readline().split()
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    assert eventually(lambda: not any(_is_alive(pid) for pid in pids))
    parent.communicate()


FAMILY = """
import multiprocessing, os, sys, time
from harness import lifetime
lifetime.join_step()
inner = "import multiprocessing, time; c = multiprocessing.get_context('{}')\\n"
inner += "p = c.Process(target=time.sleep, args=(300,)); p.start(); p.join()"
children = []
for method in ("spawn", "fork", "forkserver"):
    context = multiprocessing.get_context(method)
    children.append(context.Process(target=exec, args=(inner.format(method),), name='engine'))
    children[-1].start()
print("ready", flush=True)
children[0].join()
"""


def test_processes_that_multiprocessing_starts_join_and_end_with_who_started_them(tmp_path: Path) -> None:
    """As vLLM starts its engine, and the engine its workers."""
    path = lifetime.new_step(tmp_path, "a")
    starter = python(FAMILY, **{lifetime.VARIABLE: str(path)})
    assert starter.stdout
    assert starter.stdout.readline() == "ready\n"
    assert eventually(lambda: len(lifetime.processes_of(path)) == 7)  # with a child and a grandchild of each kind
    joined = [one.pid for one in lifetime.processes_of(path)]
    assert len(set(joined)) == 7
    assert [one.name for one in lifetime.processes_of(path)].count("engine") == 3
    # As long as one of them is left, the step is not over; one that is stopped cannot end by itself.
    last = max(joined)
    os.kill(last, signal.SIGSTOP)
    starter.kill()
    starter.wait()
    assert eventually(lambda: [one.pid for one in lifetime.processes_of(path)] == [last])
    assert not lifetime.is_over(path)
    os.kill(last, signal.SIGCONT)
    assert eventually(lambda: lifetime.is_over(path))
    starter.communicate()


def _is_alive(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
