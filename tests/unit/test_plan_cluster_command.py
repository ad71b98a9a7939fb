"""`run --address` and `stop`: what reaches the scheduler, and what its endings mean for the shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from harness import ray_cluster, scheduler
from harness.run_directory import RunDirectory
from harness.scheduler import driver_lock
from methods.errors import UserError
from reuse_bench.commands import cluster
from reuse_bench.main import app


class Grid:
    """Stands for the cluster: ends every cell as it is told, after saying that it was started."""

    def __init__(self) -> None:
        self.ending = "done"
        self.items: list[Any] = []
        self.addresses: list[str | None] = []
        self.interrupt = False

    @contextmanager
    def ray_cluster(self, address: str | None, **_: object) -> Iterator[str]:
        self.addresses.append(address)
        yield "10.0.0.1:6379"

    def run_grid(self, items: Sequence[Any], address: str, runs: Path, *, listener: Any, tick: Any) -> dict[str, str]:
        assert address == "10.0.0.1:6379"
        assert runs.is_absolute()
        self.items = list(items)
        for item in items:
            listener("started", item.work.id, "training")
            tick()
            listener("retried", item.work.id, "the node died")
            listener("started", item.work.id, "evaluation")
        if self.interrupt:
            raise KeyboardInterrupt
        return {item.work.id: self.ending for item in items}


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Grid:
    found = Grid()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_cluster, "ray_cluster", found.ray_cluster)
    monkeypatch.setattr(ray_cluster, "gpus_by_node", lambda: {"node": 8})
    monkeypatch.setattr(scheduler, "run_grid", found.run_grid)
    monkeypatch.setattr(cluster, "prepare_models", lambda jobs: [])
    return found


def run(*arguments: str) -> Result:
    command = ["run", "--protocol", "smoke", "--method", "respo", "--address", "auto", *arguments]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_all_done(grid: Grid) -> None:
    result = run()
    assert result.exit_code == 0
    assert grid.addresses == ["auto"]
    assert [item.work.id for item in grid.items] == [f"smoke/tiny-qwen3/n{n}/respo/seed0" for n in (2, 4)]
    assert "the node died" in result.output


def test_one_failed(grid: Grid) -> None:
    grid.ending = "failed"
    assert run().exit_code == 1


def test_a_collapse_is_a_result(grid: Grid) -> None:
    grid.ending = "collapsed"
    assert run().exit_code == 0


def test_interrupted(grid: Grid) -> None:
    grid.interrupt = True
    result = run()
    assert result.exit_code == 3
    assert "This continues: reuse-bench" in result.output


def test_a_second_driver_is_refused_before_a_ray_is_started(grid: Grid, tmp_path: Path) -> None:
    with (
        driver_lock(tmp_path / "runs"),
        pytest.raises(UserError, match=r"another reuse-bench run \(process \d+\) is working in this folder"),
    ):
        run()
    assert grid.addresses == []


def test_train_does_not_start_a_ray_for_a_cell_that_is_being_trained(grid: Grid, tmp_path: Path) -> None:
    command = ["train", "--protocol", "smoke", "--method", "respo", "--reuse", "2"]
    with (
        RunDirectory(tmp_path / "runs" / "smoke" / "tiny-qwen3" / "n2" / "respo" / "seed0").locked(),
        pytest.raises(UserError, match="another reuse-bench process is working on this cell"),
    ):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert grid.addresses == []


def test_gpus_per_cell(grid: Grid) -> None:
    run("--gpus-per-cell", "4")
    assert {item.work.runtime.gpus for item in grid.items} == {4}
    with pytest.raises(UserError, match="1 cannot be split"):
        run("--gpus-per-cell", "1")


def test_stop(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert CliRunner().invoke(app, ["stop", "--runs", str(runs)]).exit_code == 1
    assert not runs.exists()
    with driver_lock(runs):
        assert CliRunner().invoke(app, ["stop", "--runs", str(runs)]).exit_code == 0
        assert (runs / scheduler.STOP_FILE).exists()
