"""Cells on a Ray cluster, a running one or one that is started here: what `run` does, and `stop`."""

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
from rich.progress import Progress, TaskID

from reuse_bench.commands.progress import CellProgress

if TYPE_CHECKING:
    from harness.protocol import BaseModelSpec
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
        Console(stderr=True).print(f"no run on a cluster works in {runs}", markup=False, highlight=False)
        raise typer.Exit(EXIT_CHECK_FAILED)
    typer.echo(f"asked the run in {runs} to stop: it does within a minute")


def with_gpus(jobs: Sequence[CellJob], gpus: int) -> list[CellJob]:
    """The same cells, each on another number of GPUs."""
    found = []
    for job in jobs:
        runtime = job.protocol.runtime.with_gpus(gpus)
        found.append(replace(job, protocol=job.protocol.model_copy(update={"runtime": runtime})))
    return found


def check_room(jobs: Sequence[CellJob], at_once: int) -> None:
    """Whether there is room on the disk for those of the cells that are not trained, so many of them at a time.

    Raises:
        UserError: there is not.
    """
    from harness.disk import check_disk
    from harness.plan import estimate

    untrained = [job for job in jobs if not job.run.trained.exists() and job.cell.model in job.protocol.planning]
    if untrained:
        check_disk([estimate(job.protocol, job.cell) for job in untrained], jobs[0].places.runs, at_once)


def run_on_cluster(
    jobs: Sequence[CellJob], address: str | None, at_once: int | None = None, ignore_disk: bool = False
) -> None:
    """Bring all cells to their end, as many at once as fit; a cell that fails does not stop the others.

    Without an address, on a local Ray with room for ``at_once`` cells.
    """
    from harness.ray_cluster import cells_that_fit, gpus_by_node, import_ray, ray_cluster
    from harness.runner import check_inputs, existing_record
    from harness.scheduler import driver_lock, items_of, run_grid

    waiting = [job for job in jobs if existing_record(job) is None]
    for job in jobs:
        if job not in waiting:
            Console(stderr=True).print(f"{job.cell.id}: complete", highlight=False)
    if not waiting:
        return
    import_ray()  # before a model is made for minutes: say what is not installed
    check_inputs(waiting)
    runs = jobs[0].places.runs.resolve()
    local = min(at_once or cells_that_fit(), len(waiting))
    gpus = local * max(job.protocol.runtime.gpus for job in waiting)
    if address is None and not ignore_disk:
        check_room(waiting, local)
    with driver_lock(runs):  # before a model is made and a Ray is started: say that somebody else is at work here
        pass
    prepare_models(waiting)
    with CellProgress(len(waiting)) as shown:
        watch = _Watch(waiting, shown)
        try:
            with ray_cluster(address, cells_at_once=local, pretend_gpus=gpus) as ray_address:
                if address is not None and not ignore_disk:
                    places = sum(gpus_by_node().values()) // min(job.protocol.runtime.gpus for job in waiting)
                    check_room(waiting, places)
                endings = run_grid(items_of(waiting), ray_address, runs, listener=watch.listener, tick=watch.tick)
        except KeyboardInterrupt:
            again = shlex.join(["reuse-bench", *sys.argv[1:]])
            shown.say(f"reuse-bench: interrupted; nothing that is complete is lost. This continues: {again}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if "failed" in endings.values():
        raise typer.Exit(EXIT_CHECK_FAILED)


def prepare_models(jobs: Sequence[CellJob]) -> list[tuple[BaseModelSpec, Path]]:
    """Make or fetch the base models of cells, with a progress bar; returns each with its folder."""
    from harness.models import resolve_model

    specs = {job.cell.model: job.protocol.model(job.cell.model) for job in jobs}
    found = []
    for spec in specs.values():
        with Progress(console=Console(stderr=True), transient=True) as bar:
            row = bar.add_task(f"base model {spec.name}", total=None)

            def progress(done: int, total: int, bar: Progress = bar, row: TaskID = row) -> None:
                bar.update(row, completed=done, total=total)

            found.append((spec, resolve_model(spec, progress)))
    return found


class _Watch:
    """Shows what the scheduler tells, and how far the running steps are, from what lies in their folders."""

    def __init__(self, jobs: Sequence[CellJob], shown: CellProgress) -> None:
        self._jobs = {job.cell.id: job for job in jobs}
        self._shown = shown
        self._steps: dict[str, str] = {}
        self._looked = 0.0

    def listener(self, event: str, identity: str, word: str) -> None:
        """What happened to a cell or a node."""
        if event == "started":
            self._steps[identity] = word
            self._look(identity)
        elif identity in self._jobs:
            self._steps.pop(identity, None)
            if event == "ended":
                if self._jobs[identity].record_path.exists():
                    self._shown.finish(identity, ending_of(self._jobs[identity]))
            else:
                self._shown.say(f"{identity}: {event}: {word}")
        elif event in ("node up", "node down"):
            self._shown.say(f"{event}: {identity[:12]} {word}")

    def tick(self) -> None:
        """Look at the running steps, now and then."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            for identity in self._steps:
                self._look(identity)

    def _look(self, identity: str) -> None:
        job = self._jobs[identity]
        if self._steps[identity] == "training":
            last = job.run.last_update()
            word = f"score {last['score']:.3f}" if last else "starting"
            done = last["update"] if last else 0
            self._shown.report(identity, "training", done, job.protocol.update.updates, word)
        else:
            done, total = responses_of(job)
            self._shown.report(identity, "evaluating", done, total, "" if done else "starting")


def responses_of(job: CellJob) -> tuple[int, int]:
    """Responses of a running evaluation: those that are done, and all."""
    from harness.evaluation import plans_from_protocol, responses_done

    total = sum(plan.samples * (plan.problems or 0) for plan in plans_from_protocol(job.protocol))
    return min(responses_done(job.run.evaluation), total), total


def ending_of(job: CellJob) -> str:
    """How a recorded cell has ended, in one line."""
    from harness.records import read_record

    record = read_record(job.record_path)
    if record.evaluation:
        scores = [task.scores["published"].pass_at_1 for task in record.evaluation.values()]
        word = f"macro average {100 * sum(scores) / len(scores):.1f} %"
    else:
        word = (record.training.collapse if record.training else None) or record.failure or "no scores"
    return f"{record.status}: {word} -> {job.record_path}"
