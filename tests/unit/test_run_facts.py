"""`show run`: the right run is found, and what is shown is what its files hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.records import read_record
from harness.run_directory import CellState, RunDirectory
from leaderboard.run_facts import facts, find
from methods.diagnostics import LOG_WEIGHT_EDGES
from methods.errors import UserError
from reuse_bench.main import app
from tests.synthetic import sha, synthetic_store

CELL = "smoke/tiny-qwen3/n4/respo/seed0"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_store(
        tmp_path_factory.mktemp("store") / "results",
        protocol="smoke",
        methods=("grpo", "respo"),
        reuses=(2, 4),
        seeds=(0,),
        base=True,
        statuses={("grpo", 4, 0): "failed"},
    )


@pytest.fixture
def running(tmp_path: Path, store: Path) -> RunDirectory:
    """A cell in training, with the updates of a record and nothing else."""
    run = RunDirectory(tmp_path / "runs" / CELL)
    run.training.mkdir(parents=True)
    shutil.copy(store / CELL / "updates.jsonl", run.updates)
    run.write_state(CellState(cell=CELL, protocol_digest=sha("protocol"), status="training"))
    return run


def updates(store: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (store / CELL / "updates.jsonl").read_text().splitlines()]


def show(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["show", "run", *map(str, arguments)])


def test_a_record_is_found_by_id_cell_and_path(store: Path, tmp_path: Path) -> None:
    record = read_record(store / f"{CELL}.json")
    for name in (record.id, record.id[:6], CELL, f"{CELL}.json", str(store / f"{CELL}.json")):
        found = find(name, store, tmp_path)
        assert (found.path, found.record) == (store / f"{CELL}.json", record)


def test_another_damaged_record_is_no_hindrance(store: Path, tmp_path: Path) -> None:
    copied = tmp_path / "results"
    shutil.copytree(store, copied)
    (copied / "smoke/tiny-qwen3/n2/grpo/seed0.json").write_text("[1")
    record = read_record(store / f"{CELL}.json")
    assert find(record.id[:8], copied, tmp_path).record == record


def test_what_is_not_there_or_not_unique_is_said(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run 0123456789: neither .* nor .* has it"):
        find("0123456789", store, tmp_path)
    with pytest.raises(UserError, match=r"run nothing: neither"):
        find("nothing", store, tmp_path)
    copied = tmp_path / "results"
    shutil.copytree(store, copied)
    twin = copied / "smoke/tiny-qwen3/n4/respo/seed1.json"
    shutil.copy(copied / f"{CELL}.json", twin)
    with pytest.raises(UserError, match=r"2 records of .* have ids that start so: give more characters"):
        find(read_record(twin).id[:10], copied, tmp_path)


def test_the_facts_are_those_of_the_record_and_its_curve(store: Path, tmp_path: Path) -> None:
    record = read_record(store / f"{CELL}.json")
    assert record.training is not None
    document = json.loads(show(CELL, "--results", store, "--json").stdout)
    assert document["cell"] == CELL
    assert document["id"] == record.id
    assert (document["status"], document["division"]) == ("done", "closed")
    assert document["method"]["name"] == "respo"
    assert document["late_score"] == record.training.late_score
    assert document["evaluation"]["tiny_sum4"]["audited"] == record.evaluation["tiny_sum4"].scores["audited"].pass_at_1
    found = document["diagnostics"]
    assert (found["first_update"], found["last_update"], found["updates"]) == (1, 8, 8)
    lines = updates(store)
    place = LOG_WEIGHT_EDGES.index(0.0)
    for sign in ("positive", "negative"):
        counts = [line["log_weight"][sign]["counts"][place] for line in lines]
        assert found["log_weight"][sign]["counts"][place] == sum(counts)
    assert sum(found["log_weight"]["negative"]["counts"]) == sum(
        line["log_weight"]["negative"]["responses"] for line in lines
    )
    assert found["gradient_norm"]["max"] == max(line["gradient_norm"] for line in lines)


def test_a_window_of_updates(store: Path) -> None:
    document = json.loads(show(CELL, "--results", store, "--first-updates", "3", "--json").stdout)
    found, lines = document["diagnostics"], updates(store)[:3]
    assert (found["first_update"], found["last_update"]) == (1, 3)
    assert found["responses"] == sum(line["responses"] for line in lines)
    assert found["ess"]["min"] == min(line["ess"] for line in lines)
    assert document["updates"] == 8


def test_the_sentence_counts_what_lies_below_minus_one(running: RunDirectory) -> None:
    """Of 16 positive responses 4 lie below -1, with a mass of 1 of 8; a response at -1 itself does not."""
    lines = running.read_updates()[:2]
    place = LOG_WEIGHT_EDGES.index(-1.0)
    for line, below, at in zip(lines, (1, 3), (7, 5), strict=True):
        part = line["log_weight"]["positive"]
        part["counts"] = [0] * len(part["counts"])
        part["mass"] = [0.0] * len(part["mass"])
        part["counts"][place], part["counts"][place + 1], part["responses"] = below, at, 8
        part["mass"][place], part["mass"][place + 1] = 0.5, 3.5
    running.updates.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = show(CELL, "--runs", running.root.parents[4], "--results", running.root / "none")
    assert shown.exit_code == 0
    assert "25.0 % of positive responses lie below log W = -1 and get 12.5 % of the mass." in shown.stdout
    (bin_at,) = [line for line in shown.stdout.splitlines() if line.startswith("-1 to -0.75")]
    assert bin_at.split()[3:7] == ["75.0", "%", "87.5", "%"]


def test_a_running_cell_is_shown_without_a_record(running: RunDirectory, store: Path) -> None:
    by_cell = show(CELL, "--runs", running.root.parents[4], "--results", running.root / "none", "--json")
    by_folder = show(running.root, "--json")
    assert by_cell.stdout == by_folder.stdout
    document = json.loads(by_cell.stdout)
    assert document["status"] == "training"
    assert document["id"] is None
    assert document["updates"] == 8
    assert document["diagnostics"] == facts(find(CELL, store, Path("none")))["diagnostics"]


def test_runs_without_updates_or_scores_are_shown(store: Path, running: RunDirectory) -> None:
    running.updates.unlink()
    assert json.loads(show(running.root, "--json").stdout)["diagnostics"] is None
    assert show(running.root).exit_code == 0
    base = show("smoke/tiny-qwen3/n0/base/seed0", "--results", store)
    assert base.exit_code == 0
    assert "positive responses" not in base.stdout
    failed = show("smoke/tiny-qwen3/n4/grpo/seed0", "--results", store)
    assert "the training worker ended with exit code 1" in failed.stdout
    assert "Updates 1 to 4:" in failed.stdout


def test_a_curve_of_another_form_is_refused(running: RunDirectory) -> None:
    lines = running.read_updates()
    lines[2]["log_weight"]["negative"]["counts"].pop()
    running.updates.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match=r"updates.jsonl: line 3: field log_weight or another diagnostic"):
        facts(find(str(running.root), Path("none"), Path("none")))
    del lines[1]["ess"]
    running.updates.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match=r"line 2"):
        facts(find(str(running.root), Path("none"), Path("none")))


def test_a_line_that_is_being_written_is_left_out(running: RunDirectory) -> None:
    with running.updates.open("a") as stream:
        stream.write('{"update": 9, "roll')
    document = json.loads(show(running.root, "--json").stdout)
    assert (document["updates"], document["diagnostics"]["updates"]) == (8, 8)
