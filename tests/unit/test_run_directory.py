"""The folder of a cell: states, damage, locks, and update logs that a crash cut."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.grid import Cell
from harness.records import read_record
from harness.run_directory import TAIL_BYTES, CellState, RunDirectory
from harness.training import read_result
from methods.errors import UserError
from reuse_bench.main import app

CELL = Cell("tiny", "tiny-qwen3", 32, "respo", 0)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.of(tmp_path, CELL)


def test_the_state_comes_back_as_it_was_written(run: RunDirectory) -> None:
    assert run.read_state() is None
    state = CellState(cell=CELL.id, protocol_digest="0" * 64, status="training", training_seconds=1.5)
    run.write_state(state)
    assert run.read_state() == state
    assert [path.name for path in run.root.iterdir()] == ["cell.json"]


@pytest.mark.parametrize("text", ["", "{", '{"cell": "x"}', '{"cell": "x", "protocol_digest": "y", "status": "gone"}'])
def test_a_damaged_state_is_named_with_the_way_out(run: RunDirectory, text: str) -> None:
    run.root.mkdir(parents=True)
    run.state_file.write_text(text)
    with pytest.raises(UserError, match=r"cell\.json: field .*: delete the file"):
        run.read_state()


def test_a_line_cut_by_a_crash_is_left_out(run: RunDirectory) -> None:
    run.training.mkdir(parents=True)
    run.updates.write_text('{"update": 1, "score": 0.5}\n{"update": 2, "score": 0.5}\n{"upda')
    assert [line["update"] for line in run.read_updates()] == [1, 2]


@pytest.mark.parametrize("length", [10, TAIL_BYTES, 3 * TAIL_BYTES])
def test_the_last_update_without_the_others(run: RunDirectory, length: int) -> None:
    assert run.last_update() is None
    run.training.mkdir(parents=True)
    for text, last in (("", None), ('{"upda', None)):
        run.updates.write_text(text)
        assert run.last_update() == last
    lines = [json.dumps({"update": number, "score": 0.5, "fill": "x" * length}) + "\n" for number in (1, 2, 3)]
    for cut in ("", '{"upda'):
        run.updates.write_text("".join(lines) + cut)
        assert run.last_update() == run.read_updates()[-1]
    run.updates.write_text("{}\n")
    with pytest.raises(UserError, match=r"updates\.jsonl: the last line "):
        run.last_update()


def test_a_second_process_is_kept_out_and_a_dead_one_is_not(run: RunDirectory) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom harness.run_directory import RunDirectory\n"
        "with RunDirectory(Path(sys.argv[1])).locked():\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    root = Path(__file__).resolve().parents[2]
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(run.root)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert run.is_locked()
        with pytest.raises(UserError, match="another reuse-bench process"), run.locked():
            pass
    finally:
        other.kill()
        other.wait()
    assert not run.is_locked()
    with run.locked():
        assert run.root.is_dir()


@pytest.mark.parametrize("line", [b"x", b"[]", b"{}", b'{"update": "a", "score": 0.5}', b"\xff", b"[" * 100_000])
def test_a_damaged_line_of_the_update_log_is_named(tmp_path: Path, line: bytes) -> None:
    run = RunDirectory(tmp_path)
    run.training.mkdir()
    run.updates.write_bytes(b'{"update": 1, "score": 0.5}\n' + line + b"\n")
    with pytest.raises(UserError, match=r"updates\.jsonl: line 2 "):
        run.read_updates()


@pytest.mark.parametrize("text", ["", "x", "[]", "{}"])
def test_a_damaged_end_of_training_is_named(run: RunDirectory, text: str) -> None:
    run.training.mkdir(parents=True)
    run.trained.write_text(text)
    with pytest.raises(UserError, match=r"complete\.json: .*delete it"):
        read_result(run)


@pytest.fixture
def soon() -> Iterator[None]:
    """What waits for ever is ended by a signal, so that the test fails and does not hang."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    "name",
    [
        *("cell.json", ".lock", "training/updates.jsonl", "training/log.txt", "training/complete.json"),
        *("training/worker.json", "training/checkpoints/_actor/latest", "evaluation/.work/journal-0.jsonl"),
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_refused_by_name(run: RunDirectory, name: str, tmp_path: Path) -> None:
    """A reader of it would wait for ever."""
    run.write_state(CellState(cell=CELL.id, protocol_digest="0" * 64, status="evaluating"))
    run.training.mkdir()
    run.updates.write_text('{"update": 1, "score": 0.5}\n')
    path = run.root / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    sentence = re.escape(f"{path}: this is no regular file: take it away")
    with pytest.raises(UserError, match=sentence), run.locked():
        pass
    options = ["--runs", str(tmp_path), "--results", str(tmp_path / "results")]
    cell = [
        "--protocol",
        CELL.protocol_id,
        "--method",
        CELL.method,
        "--reuse",
        str(CELL.reuse),
        "--seed",
        str(CELL.seed),
    ]
    for command in (["status", *cell, *options], ["show", "run", CELL.id, *options]):
        result = CliRunner().invoke(app, command)
        assert isinstance(result.exception, UserError)
        assert re.match(sentence, str(result.exception)) or (command[0] == "show" and name == "cell.json")
    if name == "training/updates.jsonl":
        for read in (run.read_updates, run.last_update):
            with pytest.raises(UserError, match=sentence):
                read()


@pytest.mark.usefixtures("soon")
def test_a_pipe_in_the_place_of_a_record_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / f"{CELL.id}.json"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"seed0\.json: this is no regular file"):
        read_record(path)
    said = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert said.exit_code == 1
    assert "no regular file" in said.stdout
