"""Cells on a Ray cluster that is running: `run --address ...`, and `stop`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from reuse_bench.commands.progress import CellProgress

if TYPE_CHECKING:
    from harness.runner import CellJob

EXIT_CHECK_FAILED = 1
EXIT_INTERRUPTED = 3
LOOK_SECONDS = 5.0


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("stop")(stop)


def stop(runs: Annotated[Path, typer.Option("--runs", help="Folder of runs.")] = Path("runs")) -> None:
    """Stop the run on a cluster that works in a folder, as Ctrl-C does; the same command continues it."""
    from harness.scheduler import request_stop

    if not request_stop(runs):
        Console(stderr=True).print(f"no run on a cluster works in {runs}", highlight=False)
        raise typer.Exit(EXIT_CHECK_FAILED)
    typer.echo(f"asked the run in {runs} to stop: it does within a minute")


def with_gpus(jobs: Sequence[CellJob], gpus: int) -> list[CellJob]:
    """The same cells, each on another number of GPUs."""
    found = []
    for job in jobs:
        runtime = job.protocol.runtime.with_gpus(gpus)
        found.append(replace(job, protocol=job.protocol.model_copy(update={"runtime": runtime})))
    return found


def run_on_cluster(jobs: Sequence[CellJob], address: str) -> None:
    """Bring all cells to their end, as many at once as fit; a cell that fails does not stop the others."""
    from harness.ray_cluster import ray_cluster
    from harness.scheduler import items_of, run_grid

    by_id = {job.cell.id: job for job in jobs}
    runs = jobs[0].places.runs.resolve()
    training: dict[str, float] = {}
    with CellProgress(len(jobs)) as shown:

        def listener(event: str, identity: str, word: str) -> None:
            job = by_id.get(identity)
            training.pop(identity, None)
            if event == "started" and word == "training":
                training[identity] = 0.0
            elif event == "started" and job:
                shown.report(job.cell, "evaluating", 0, 1, "")
            elif event in ("given up", "retried", "not placed"):
                shown.say(f"{identity}: {event}: {word}")
            elif event in ("node up", "node down"):
                shown.say(f"{event}: {identity[:12]} {word}")

        def tick() -> None:
            for identity, looked in training.items():
                if time.monotonic() - looked > LOOK_SECONDS:
                    training[identity] = time.monotonic()
                    lines = by_id[identity].run.read_updates()
                    done, word = (lines[-1]["update"], f"score {lines[-1]['score']:.3f}") if lines else (0, "starting")
                    total = by_id[identity].protocol.update.updates
                    shown.report(by_id[identity].cell, "training", done, total, word)

        try:
            with ray_cluster(address) as ray_address:
                endings = run_grid(items_of(jobs), ray_address, runs, listener=listener, tick=tick)
        except KeyboardInterrupt:
            again = shlex.join(["reuse-bench", *sys.argv[1:]])
            shown.say(f"reuse-bench: interrupted; nothing that is complete is lost. This continues: {again}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        for identity, ending in endings.items():
            shown.finish(by_id[identity].cell, f"{ending} -> {by_id[identity].record_path}")
    if "failed" in endings.values():
        raise typer.Exit(EXIT_CHECK_FAILED)
