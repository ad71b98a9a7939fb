"""Real training that is killed, twice, against training that is left alone; and a disk that is full for a while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import lifetime
from harness.run_directory import RunDirectory
from tests import small_disk as disks

pytestmark = [pytest.mark.slow, pytest.mark.stack]

ROOT = Path(__file__).resolve().parents[2]
UPDATES = 16
"""Eight rollout batches at N = 2, and a save point every 4 updates."""
LOSS_GAP = 1e-3
"""How far losses may be apart: stated in docs/cluster.md. Sums of floats depend on the order of threads."""


class Command:
    """`reuse-bench train` of one cell, on the session's Ray; all processes that it starts join one step."""

    def __init__(self, folder: Path, address: str, *options: str) -> None:
        self.folder, self.address, self.options = folder, address, options
        self.step = folder / "never started"

    def start(self) -> subprocess.Popen[str]:
        self.folder.mkdir(exist_ok=True)
        self.step = lifetime.new_step(self.folder, f"{time.monotonic_ns()}")
        chosen = ["--protocol", "smoke", "--method", "respo", "--reuse", "2", "--seed", "0"]
        places = ["--runs", str(self.folder / "runs"), "--results", str(self.folder / "results")]
        # The learning rate rises until the twelfth update: a resumed run has to know where it was.
        settings = ["--set", f"update.updates={UPDATES}", "--set", "optimiser.warmup_ratio=0.75"]
        settings += ["--address", self.address, *self.options]
        return subprocess.Popen(
            [sys.executable, "-m", "reuse_bench.main", "train", *chosen, *places, *settings],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), lifetime.VARIABLE: str(self.step)},
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def finish(self, code: int = 0) -> str:
        process = self.start()
        _, errors = process.communicate(timeout=900)
        assert process.returncode == code, errors
        self.wait_for_end()
        return errors

    def wait_for_end(self) -> float:
        """Seconds until no process of the run is left."""
        started = time.monotonic()
        wait_until(lambda: lifetime.is_over(self.step), 60)
        return time.monotonic() - started

    @property
    def run(self) -> RunDirectory:
        # More updates make it an open variant of the protocol, with an id of its own.
        found = sorted((self.folder / "runs").glob("smoke.open-*"))
        return RunDirectory((found or [self.folder])[0] / "tiny-qwen3" / "n2" / "respo" / "seed0")

    @property
    def latest(self) -> Path:
        return self.run.checkpoints / "_actor" / "latest"

    def trainer(self) -> int | None:
        """The process that trains, when it has said so in this attempt."""
        if not self.run.worker.exists():
            return None
        pid: int = json.loads(self.run.worker.read_text())["pid"]
        return pid if pid in [one.pid for one in lifetime.processes_of(self.step)] else None

    def rollouts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run.training / "rollouts.jsonl").read_text().splitlines()]


def wait_until(condition: Callable[[], Any], seconds: float, every: float = 0.05) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(every)


@pytest.fixture
def left_alone(tmp_path: Path, ray_address: str) -> Command:
    command = Command(tmp_path / "left-alone", ray_address)
    command.finish()
    return command


def cut_short(command: Command) -> tuple[subprocess.Popen[str], Path]:
    """Kill the trainer while it writes the first checkpoint; the driver, and the folder that is not complete."""
    process = command.start()
    wait_until(command.trainer, 600)
    states = command.run.checkpoints / "_actor" / "global_step2"
    trainer = command.trainer()
    assert trainer
    wait_until(states.exists, 600, every=0.001)
    os.kill(trainer, signal.SIGKILL)
    return process, states


def test_killed_twice_and_left_alone_come_to_the_same(left_alone: Command, tmp_path: Path, ray_address: str) -> None:
    # The trainer, while it writes the first checkpoint: nothing is complete yet.
    for number in range(5):
        killed = Command(tmp_path / f"killed{number}", ray_address)
        process, states = cut_short(killed)
        if not killed.latest.exists():
            break
        process.kill()  # a busy machine let it write the checkpoint before this process had its turn
        process.communicate()
    assert not killed.latest.exists(), "the checkpoint was always written before it could be cut short"
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 1, errors
    killed.wait_for_end()
    assert states.exists()
    assert not killed.latest.exists()

    # The driver, in the middle: what it has started ends too.
    process = killed.start()
    wait_until(lambda: killed.trainer() and len(killed.run.read_updates()) >= 9, 600)
    process.kill()
    process.communicate()
    print(f"all processes had ended {killed.wait_for_end():.1f} s after the driver was killed")
    at = killed.latest.read_text()
    killed.finish()

    ours, theirs = killed.run.read_updates(), left_alone.run.read_updates()
    for exact in ("update", "rollout", "mini_batch", "learning_rate", "responses"):
        assert [line[exact] for line in ours] == [line[exact] for line in theirs], exact
    assert len(ours) == UPDATES
    assert len({line["learning_rate"] for line in ours}) == 12
    for exact in ("first_row", "responses"):
        assert [line[exact] for line in killed.rollouts()] == [line[exact] for line in left_alone.rollouts()], exact
    assert killed.run.prompts.read_bytes() == left_alone.run.prompts.read_bytes()
    gaps = [abs(one["loss"] - other["loss"]) for one, other in zip(ours, theirs, strict=True)]
    same = [
        one["sequences_sha256"] == other["sequences_sha256"]
        for one, other in zip(killed.rollouts(), left_alone.rollouts(), strict=True)
    ]
    print(f"largest gap of a loss {max(gaps):.2g}, rollout batches that are the same {sum(same)} of {len(same)}")
    assert max(gaps) < LOSS_GAP

    state = killed.run.read_state()
    assert state
    assert [(one.outcome, one.first_update) for one in state.attempts] == [
        ("failed", 1),
        ("interrupted", 1),
        ("completed", 1 + 2 * int(at.removeprefix("global_step"))),
    ]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that has room for what a cell writes before its first checkpoint, which takes 1.4 MB."""
    with disks.small_disk(tmp_path / "small", "1200k") as folder:
        yield folder


def test_a_disk_that_is_full_for_a_while(small_disk: Path, tmp_path: Path, ray_address: str) -> None:
    command = Command(small_disk, ray_address, "--ignore-disk")
    errors = command.finish(2)
    assert f"{small_disk}" in errors
    assert "the disk is full: make room, and give the same command again" in errors
    assert not list(small_disk.rglob("global_step*"))
    state = command.run.read_state()
    assert state
    assert state.status == "failed"
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    command.finish()
    assert [line["update"] for line in command.run.read_updates()] == list(range(1, UPDATES + 1))
