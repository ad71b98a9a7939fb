"""The options by which `run`, `train` and `status` choose cells: the same in each, and they reach the cells."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import typer
from typer.testing import CliRunner

from harness.run_directory import CellState, RunDirectory
from reuse_bench.commands.options import Choice
from reuse_bench.main import app

SHARED = [field.name for field in fields(Choice)]
OWN = {
    "run": ["address", "gpus_per_cell", "at_once", "ignore_disk"],
    "train": ["address", "ignore_disk"],
    "status": ["watch", "every", "as_json"],
}


def test_each_has_the_shared_options_and_its_own() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, own in OWN.items():
        assert [parameter.name for parameter in commands[name].params] == [*SHARED, *own]


def test_every_option_reaches_the_cells(tmp_path: Path) -> None:
    chosen = ["--method", "grpo", "--method", "respo", "--reuse", "4", "--model", "tiny-qwen3", "--seed", "3"]
    places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    settings = ["--set", "update.updates=16"]
    asked = ["status", "--json", "--protocol", "smoke", *chosen, *places, *settings]
    cells = json.loads(CliRunner().invoke(app, asked).output)
    assert [cell["updates_in_all"] for cell in cells] == [16, 16]
    assert all("/tiny-qwen3/n4/" in cell["cell"] and cell["cell"].endswith("/seed3") for cell in cells)
    assert [cell["cell"].split("/")[-2] for cell in cells] == ["grpo", "respo"]

    record, run = tmp_path / "results" / f"{cells[0]['cell']}.json", RunDirectory(tmp_path / "runs" / cells[1]["cell"])
    for path in (record, run.log):
        path.parent.mkdir(parents=True)
        path.touch()
    done = CellState(cell=cells[0]["cell"], protocol_digest="0" * 64, status="done")
    RunDirectory(tmp_path / "runs" / cells[0]["cell"]).write_state(done)
    first, second = json.loads(CliRunner().invoke(app, asked).output)
    assert (first["record"], first["log"]) == (str(record), None)
    assert (second["record"], second["log"]) == (None, str(run.log))
