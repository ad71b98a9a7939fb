"""`run`, `train`, `prepare` and `show run`: cells of a protocol, from training to records."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from methods.errors import UserError
from reuse_bench.commands.cluster import check_room, ending_of, prepare_models, run_on_cluster, with_gpus
from reuse_bench.commands.facts import show_app
from reuse_bench.commands.options import (
    Address,
    Choice,
    GpusPerCell,
    IgnoreDisk,
    Json,
    ProtocolName,
    Results,
    Runs,
    with_choice,
)
from reuse_bench.commands.protocols import parse_overrides

if TYPE_CHECKING:
    from harness.runner import CellJob

EXIT_CHECK_FAILED = 1
EXIT_INTERRUPTED = 3


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("prepare")(prepare)
    app.command("run")(run)
    app.command("train")(train)
    show_app.command("run")(show_run)


def prepare(protocol: ProtocolName = "tiny", as_json: Json = False) -> None:
    """Make or fetch what a protocol needs before its cells run: the base models."""
    from harness.tiny_model import directory_digest

    facts = [
        {"model": spec.name, "folder": str(folder), "digest": directory_digest(folder)}
        for spec, folder in prepare_models(jobs_of(Choice(protocol)))
    ]
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for fact in facts:
        typer.echo(f"{fact['model']}: {fact['folder']} (digest {fact['digest'][:12]})")


@with_choice
def run(
    choice: Choice,
    address: Address = None,
    gpus_per_cell: GpusPerCell = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Cells at once on a local Ray [default: what the machine has room for].")
    ] = None,
    ignore_disk: IgnoreDisk = False,
) -> None:
    """Train, evaluate and record cells of a protocol, as many at once as fit.

    What is complete is kept: the same command continues.
    """
    jobs = jobs_of(choice)
    if gpus_per_cell is not None:
        jobs = with_gpus(jobs, gpus_per_cell)
    run_on_cluster(jobs, address, at_once, ignore_disk)


@with_choice
def train(choice: Choice, address: Address = None, ignore_disk: IgnoreDisk = False) -> None:
    """Train cells of a protocol, without evaluating them."""
    from harness.ray_cluster import import_ray
    from harness.runner import check_inputs, existing_record, train_only

    def step(job: CellJob, ray_address: str, report: Any) -> str:
        result = train_only(job, ray_address, report)
        return f"collapsed: {result.collapse}" if result.collapse else f"trained: {job.run.final}"

    jobs = jobs_of(choice)
    waiting = [job for job in jobs if existing_record(job) is None]
    check_inputs(waiting, evaluating=False)
    if not ignore_disk:
        check_room(waiting, 1)
    if waiting:  # before Ray is started, which takes a while: say what is not installed, or what model is refused
        import_ray()
        prepare_models(waiting)
    _carry_out(jobs, step, address)


def evaluate_cells(jobs: Sequence[CellJob]) -> None:
    """Evaluate and record trained cells."""
    from harness.runner import evaluate_only

    def step(job: CellJob, _: str, report: Any) -> str:
        evaluate_only(job, report)
        return ending_of(job)

    _carry_out(jobs, step, None, needs_ray=False)


def show_run(
    name: Annotated[str, typer.Argument(metavar="ID", help="The start of a record's id, a cell, or a path.")],
    first_updates: Annotated[
        int | None, typer.Option(min=1, help="Diagnostics of so many policy updates, from the first [default: all].")
    ] = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show a run: its facts and scores, and what its policy updates did with their responses."""
    from leaderboard.run_facts import facts, find

    found = facts(find(name, results, runs), first_updates)
    if as_json:
        typer.echo(json.dumps(found, indent=1, allow_nan=False))
        return
    console = Console(soft_wrap=True, highlight=False)
    _print_run(console, found)
    if found["diagnostics"]:
        _print_diagnostics(console, found["diagnostics"])


def _print_run(console: Console, found: dict[str, Any]) -> None:
    method = found["method"]
    division = f", {found['division']} division" if found["division"] else ""
    console.print(f"[bold]{escape(found['cell'])}[/]  {found['status']}{division}")
    lines = [found["reason"], *found["deviations"], f"record {found['id']}" if found["id"] else None, found["path"]]
    if method:
        title = f"{method['title']} ({method['name']}, {method['origin']})" if "title" in method else method["name"]
        settings = ", ".join(f"{key} {value}" for key, value in method["hyperparameters"].items())
        source = f"source {method['source_sha256']}" if method["source_sha256"] else None
        lines += [f"method {title}{': ' if settings else ''}{settings}", source]
    lines.append("seeds " + ", ".join(f"{key} {value}" for key, value in found["seeds"].items()))
    scores = {name: found[f"{name}_score"] for name in ("early", "late", "mean")}
    lines.append(f"{found['updates']} updates, score " + ", ".join(f"{key} {_number(scores[key])}" for key in scores))
    for line in filter(None, lines):
        console.print(f"  {escape(line)}")
    if found["evaluation"]:
        graders = ("published", "audited")
        table = Table("held out", "problems", "samples", *graders, box=None, pad_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for task, result in found["evaluation"].items():
            shares = [_percent(result[grader]) for grader in graders]
            table.add_row(escape(task), str(result["problems"]), str(result["samples_per_problem"]), *shares)
        console.print()
        console.print(table)


def _print_diagnostics(console: Console, found: dict[str, Any]) -> None:
    parts = [found["log_weight"][sign] for sign in ("positive", "negative")]
    console.print(
        f"\n[bold]Updates {found['first_update']} to {found['last_update']}[/]: {found['responses']} responses; "
        f"{parts[0]['responses']} with A > 0, {parts[1]['responses']} with A < 0, {found['zero_advantage']} with A = 0"
    )
    table = Table("log W", box=None, pad_edge=False)
    for sign in ("A > 0", "A < 0"):
        table.add_column(f"{sign}: responses", justify="right")
        table.add_column("mass", justify="right")
    edges = [f"{edge:g}" for edge in found["edges"]]
    names = [f"below {edges[0]}", *(f"{low} to {high}" for low, high in pairwise(edges)), f"from {edges[-1]}"]
    columns = [_shares(part[kind], len(names)) for part in parts for kind in ("counts", "mass")]
    held = [place for place in range(len(names)) if any(part["counts"][place] for part in parts)]
    for place in range(min(held, default=0), max(held, default=-1) + 1):
        table.add_row(names[place], *(_percent(column[place]) for column in columns))
    console.print(table)
    for name, values in (("effective sample size", found["ess"]), ("gradient norm", found["gradient_norm"])):
        console.print(f"{name}: {_number(values['mean'])} ({_number(values['min'])} to {_number(values['max'])})")
    console.print(f"clipped or suppressed tokens: {_percent(found['clip_fraction'])}")
    console.print(
        f"mean length: {_number(found['mean_length'])} tokens, of positive responses {_number(parts[0]['mean_length'])}"
    )
    console.print(f"gap between trainer and engine: {_number(found['engine_gap'])} per token")
    console.print(f"[bold]{found['sentence']}[/]")


def _shares(values: list[float] | None, bins: int) -> list[float | None]:
    """Each bin's share of the sum; None where there is nothing to share."""
    total = sum(values) if values else 0.0
    return [value / total for value in values] if values and total > 0 else [None] * bins


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"


def jobs_of(choice: Choice) -> list[CellJob]:
    """The chosen cells of a protocol, with the places where they run and are recorded."""
    from harness.grid import cells
    from harness.protocol import load_protocol
    from harness.runner import CellJob, Places

    stated = load_protocol(choice.protocol)
    overrides = parse_overrides(choice.settings)
    used = stated.with_overrides(overrides) if overrides else stated
    chosen = cells(used, choice.method, choice.reuse, choice.model, choice.seed)
    places = Places(choice.runs, choice.results)
    return [CellJob(used, cell, places, command=("reuse-bench", *sys.argv[1:])) for cell in chosen]


def _carry_out(
    jobs: Sequence[CellJob], step: Callable[[CellJob, str, Any], str], address: str | None, needs_ray: bool = True
) -> None:
    """Do one thing for all cells; a cell that fails does not stop the others."""
    from contextlib import nullcontext

    from harness.ray_cluster import gpus_by_node, ray_cluster
    from harness.runner import CellFailedError, existing_record
    from reuse_bench.commands.progress import CellProgress

    open_jobs = [job for job in jobs if existing_record(job) is None]
    for job in jobs:
        if job not in open_jobs:
            Console(stderr=True).print(f"{job.cell.id}: complete", highlight=False)
    if not open_jobs:
        return
    for job in open_jobs:
        with job.run.locked():  # say it before a Ray is started
            pass
    failed = 0
    gpus = max(job.protocol.runtime.gpus for job in open_jobs)
    try:
        cluster = ray_cluster(address, pretend_gpus=gpus) if needs_ray else nullcontext("")
        with cluster as ray_address, CellProgress(len(open_jobs)) as shown:
            have = sum(gpus_by_node().values()) if needs_ray else gpus
            if have < gpus:  # Ray itself would wait for them for ever
                raise UserError(
                    f"a cell needs {gpus} GPUs at once, and this Ray has {have} in all: give a cell fewer, with "
                    "`reuse-bench run --gpus-per-cell`, or name a larger cluster with --address"
                )
            for job in open_jobs:
                try:
                    shown.finish(job.cell, step(job, ray_address, shown.report))
                except CellFailedError as error:
                    failed += 1
                    shown.finish(job.cell, f"failed: {error}")
    except KeyboardInterrupt:
        again = shlex.join(["reuse-bench", *sys.argv[1:]])
        Console(stderr=True, soft_wrap=True).print(
            f"reuse-bench: interrupted; nothing that is complete is lost. This continues: {again}",
            markup=False,
            highlight=False,
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if failed:
        raise typer.Exit(EXIT_CHECK_FAILED)
