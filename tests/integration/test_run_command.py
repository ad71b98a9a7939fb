"""`reuse-bench run` as a person uses it: from nothing to a page, interrupted once, given again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from harness.lifetime import processes_of
from harness.records import read_record
from harness.run_directory import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.stack]

ROOT = Path(__file__).resolve().parents[2]
ENDING_SECONDS = 180
"""Ours end within seconds; an agent of Ray's own looks for its raylet for about a minute first."""
TOKEN = "hf_neverInAnyFileThatIsLeftBehind0123"
"""A secret that all commands find in their environment."""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "HF_TOKEN": TOKEN, "HUGGING_FACE_HUB_TOKEN": TOKEN}
UPDATES = 48
"""Long enough to be interrupted in the middle: 24 rollout batches at N = 2, a save point every 4 updates."""


def command(folder: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "reuse_bench.main",
        "run",
        *("--protocol", "smoke", "--method", "respo", "--reuse", "2", "--seed", "0"),
        *("--set", f"update.updates={UPDATES}", "--runs", str(folder / "runs"), "--results", str(folder / "results")),
    ]


def wait_for(condition, seconds: float, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("openrlhf", reason="the training stack is not installed")
    return tmp_path_factory.mktemp("run")


def the_run(folder: Path) -> RunDirectory:
    (state,) = folder.glob("runs/*/*/n2/respo/seed0/cell.json")
    return RunDirectory(state.parent)


def test_an_interrupted_run_exits_3_and_keeps_what_is_complete(folder: Path) -> None:
    process = subprocess.Popen(
        command(folder), cwd=ROOT, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_for(lambda: list(folder.glob("runs/*/*/n2/respo/seed0/cell.json")), 200, process)
        wait_for(lambda: len(the_run(folder).read_updates()) >= 9, 300, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 3, errors
    assert "This continues: reuse-bench run --protocol smoke" in errors
    state = the_run(folder).read_state()
    assert state is not None
    assert state.status == "interrupted"
    assert 0 < len(the_run(folder).read_updates()) < UPDATES
    assert not list(folder.glob("results/**/*.json"))


def test_all_is_on_loopback_and_nothing_outlives_a_driver_that_is_killed(folder: Path) -> None:
    """Ray, the fork server, OpenRLHF and its actors: all carry the mark in their environment."""
    mark = f"REUSE_BENCH_TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    environment = ENVIRONMENT | {name: value}
    process = subprocess.Popen(
        command(folder), cwd=ROOT, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    before = len(the_run(folder).read_updates())
    try:
        wait_for(lambda: len(the_run(folder).read_updates()) > before, 600, process)
        joined = [one.pid for path in folder.glob("runs/.steps/*") for one in processes_of(path)]
        assert json.loads(the_run(folder).worker.read_text())["pid"] in joined
        assert len(marked(mark)) > len(joined)
        heard = listening(mark)
        assert len(heard) > 10  # of Ray's daemons and workers, of the trainer and the engine
        assert {address for address in heard if not address.startswith(("127.", "::1"))} == set()
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + ENDING_SECONDS
    while left := marked(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def marked(mark: str) -> dict[int, str]:
    """The command lines of all processes with this in their environment, by their numbers."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(path.name)] = line.decode(errors="replace")
        except OSError:  # it has just ended, or is another user's
            continue
    return found


def listening(mark: str) -> list[str]:
    """The addresses at which these processes listen, with their ports."""
    inodes = set()
    for pid in marked(mark):
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                inodes.add(str(file.readlink()).removeprefix("socket:[").rstrip("]"))
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == "0A" and inode in inodes:
                address, _, port = local.partition(":")
                words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
                found.append(f"{socket.inet_ntop(family, b''.join(words)).removeprefix('::ffff:')} {int(port, 16)}")
    return found


def test_the_same_command_continues_and_records(folder: Path) -> None:
    run = the_run(folder)
    before = run.read_updates()
    done = subprocess.run(command(folder), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = run.read_updates()
    assert [line["update"] for line in lines] == list(range(1, UPDATES + 1))
    (path,) = folder.glob("results/*/*/n2/respo/seed0.json")
    record = read_record(path)
    assert record.status == "done"
    assert record.division == "open"
    assert [attempt.outcome for attempt in record.attempts] == ["interrupted", "interrupted", "completed"]
    assert (record.attempts[1].ended, record.attempts[1].reason) == (None, "its process was killed")
    resumed_at = record.attempts[2].first_update
    assert 1 < resumed_at <= len(before) + 1
    assert (resumed_at - 1) % 4 == 0
    # What was before the save point was not trained again.
    assert lines[: resumed_at - 1] == before[: resumed_at - 1]
    assert {line["learning_rate"] for line in lines} == {lines[0]["learning_rate"]}
    rollouts = [json.loads(line) for line in (run.training / "rollouts.jsonl").read_text().splitlines()]
    assert [rollout["first_row"] for rollout in rollouts] == [8 * index for index in range(UPDATES // 2)]


def test_given_once_more_it_does_nothing(folder: Path) -> None:
    done = subprocess.run(command(folder), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    state = the_run(folder).read_state()
    assert state is not None
    assert len(state.attempts) == 3


def test_the_record_verifies_and_has_a_page_and_no_file_holds_a_secret(folder: Path) -> None:
    def reuse_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "reuse_bench.main", *arguments],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )

    verified = reuse_bench("verify", str(folder / "results"))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    built = reuse_bench("site", "--records", str(folder / "results"), "--output", str(folder / "site"))
    assert built.returncode == 0, built.stderr
    assert "ReSPO" in (folder / "site" / "index.html").read_text()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"log.txt", "cell.json", "seed0.json", "index.html"} <= {path.name for path in files}
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
