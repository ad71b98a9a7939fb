"""When GPUs go from one step to the next, with real processes that keep a step alive and a stand-in for Ray.

On a real Ray the moment in which a process outlives its step cannot be chosen; tests/integration/test_scheduling.py
watches it there.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness import lifetime, scheduler
from harness.queueing import Queue
from harness.scheduler import Item, _Driver
from methods.errors import UserError
from tests.standin import Standin
from tests.unit.test_lifetime import JOIN, python


class FakeRay(ModuleType):
    """Ends the steps that it is told to."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.started: list[tuple[str, str, Path]] = []
        self.ended: dict[str, Exception | None] = {}

    def submit(self, _: object, work: Any, job: Any, *rest: Any) -> str:
        self.started.append((job.id, job.stage, rest[-1]))
        return f"{job.id} {job.stage} {len(self.started)}"

    def wait(self, references: list[str], **_: object) -> tuple[list[str], list[str]]:
        return [one for one in references if one in self.ended], []

    def get(self, reference: str) -> None:
        error = self.ended.pop(reference)
        if error:
            raise error


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(scheduler, "gpus_by_node", lambda: {"node": 2})
    monkeypatch.setattr(scheduler, "nodes_with_real_gpus", lambda: set())
    monkeypatch.setattr(scheduler, "_remote_step", lambda: None)
    monkeypatch.setattr(
        scheduler, "_reserve", lambda job, _: SimpleNamespace(id=bytes(f"{job.id}{job.stage}", "ascii"))
    )
    monkeypatch.setattr(scheduler, "_is_granted", lambda _: True)
    monkeypatch.setattr(scheduler, "_remove", lambda _: None)
    monkeypatch.setattr(scheduler, "_submit", fake.submit)
    monkeypatch.setattr(scheduler, "_explain", lambda error: ("work", str(error)))
    monkeypatch.setattr(scheduler, "POLL_SECONDS", 0.01)
    return fake


@pytest.fixture
def driver(ray: FakeRay, tmp_path: Path) -> Iterator[_Driver]:
    """Two cells that need both GPUs of the one node."""
    items = [Item(Standin(name, str(tmp_path)), seconds, 1.0) for name, seconds in (("first", 2.0), ("second", 1.0))]
    found = _Driver(items, "", tmp_path, io.BytesIO(), None, None, 0.0)  # type: ignore[arg-type]
    found._see_nodes(first=True)
    for item in items:
        found.queue.add(item.job("training"))
    found._start()
    return found


def test_the_next_step_waits_for_the_last_process_of_the_one_before(driver: _Driver, ray: FakeRay) -> None:
    ((_, _, file),) = ray.started
    process = python(JOIN, **{lifetime.VARIABLE: str(file)})
    assert process.stdout
    assert process.stdout.readline() == "joined\n"
    ray.ended["first training 1"] = None
    for _ in range(3):
        driver._collect()
        driver._clear()
        driver._start()
        assert len(ray.started) == 1
        assert driver.nodes.total_free == 0
    process.kill()
    process.communicate()
    driver._clear()
    driver._start()
    assert [(name, stage) for name, stage, _ in ray.started] == [("first", "training"), ("first", "evaluation")]
    assert driver.nodes.total_free == 1


def test_a_failed_step_is_not_tried_again_beside_its_own_processes(driver: _Driver, ray: FakeRay) -> None:
    driver.nodes.add("other", 2)  # there would be room
    driver._start()
    assert [name for name, _, _ in ray.started] == ["first", "second"]
    driver.nodes.add("third", 2)
    process = python(JOIN, **{lifetime.VARIABLE: str(ray.started[0][2])})
    assert process.stdout
    assert process.stdout.readline() == "joined\n"
    ray.ended["first training 1"] = RuntimeError("lost")
    driver._collect()
    time.sleep(0.01)
    driver._clear()
    driver._start()
    assert len(ray.started) == 2
    process.kill()
    process.communicate()
    driver._clear()
    driver._start()
    assert [name for name, _, _ in ray.started] == ["first", "second", "first"]


@pytest.mark.parametrize("error", [UserError("somebody else works on it"), OSError("the disk is full")])
def test_a_cell_whose_end_cannot_be_written_down_does_not_stop_the_others(
    driver: _Driver, ray: FakeRay, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(Standin, "give_up", refuse)
    monkeypatch.setattr(Standin, "wait_again", refuse)
    for number in range(1, 5):  # each of them twice
        driver._start()
        ray.ended[f"{ray.started[-1][0]} training {number}"] = RuntimeError("lost")
        driver._collect()
        driver._clear()
    assert driver.endings == {"first": "failed", "second": "failed"}


def test_each_failure_without_progress_doubles_the_pause(driver: _Driver, ray: FakeRay) -> None:
    driver.retry_seconds = 1000.0
    for number, reason, pause in ((1, "lost", 1000.0), (2, "no memory", 2000.0)):
        ray.ended[f"first training {number}"] = RuntimeError(reason)
        before = time.monotonic()
        driver._collect()
        ((moment, job),) = driver.later
        assert moment - before == pytest.approx(pause, abs=300)
        driver.later.clear()
        driver._clear()
        driver.queue = Queue()  # nothing else waits
        driver.queue.add(job)
        driver._start()


def test_a_new_driver_waits_for_what_a_dead_one_has_left(
    driver: _Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifetime.is_over(tmp_path / lifetime.FOLDER / next((tmp_path / lifetime.FOLDER).iterdir()).name)
    file = lifetime.new_step(tmp_path, "of-a-dead-driver")
    process = python(JOIN, **{lifetime.VARIABLE: str(file)})
    assert process.stdout
    assert process.stdout.readline() == "joined\n"
    monkeypatch.setattr(scheduler, "FORMER_SECONDS", 0.1)
    with pytest.raises(UserError, match=rf"process {process.pid} .* on .* of an earlier run may still use GPUs"):
        driver._let_former_end()

    # What does not end by itself is ended.
    monkeypatch.setattr(scheduler, "FORMER_SECONDS", 60.0)
    monkeypatch.setattr(scheduler, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(scheduler, "_kill", lambda file, nodes: lifetime.end_processes(file))
    driver._let_former_end()
    process.communicate(timeout=300)
    assert not file.exists()
