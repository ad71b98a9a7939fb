"""`list protocols`, `show protocol`, `plan` and `doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.protocol import FREE_SECTIONS, Protocol, available, drift, leaves, load_protocol, load_yaml
from methods.errors import UserError
from reuse_bench.commands.facts import list_app, show_app
from reuse_bench.commands.options import GpusPerCell, Json, Set


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    list_app.command("protocols")(list_protocols)
    show_app.command("protocol")(show_protocol)
    app.command("plan")(plan)
    app.command("doctor")(doctor)


def parse_overrides(settings: list[str] | None) -> dict[str, Any]:
    """``["rollout.temperature=0.7"]`` as a mapping; values are read as YAML.

    Raises:
        UserError: no ``=``, or a value that is no YAML.
    """
    overrides: dict[str, Any] = {}
    for setting in settings or []:
        name, found, value = setting.partition("=")
        if not found or not name:
            raise UserError(f"--set {setting!r} has no value: write it as rollout.temperature=0.7")
        overrides[name] = load_yaml(value, f"--set {setting!r}")
    return overrides


def list_protocols(as_json: Json = False) -> None:
    """List the protocols: what each runs, and the digest of what it means."""
    protocols = [load_protocol(name) for name in available()]
    if as_json:
        rows = [
            {
                "id": protocol.id,
                "version": protocol.version,
                "digest": protocol.digest,
                "title": protocol.title,
                "models": [model.name for model in protocol.models],
                "methods": list(protocol.methods.hyperparameters),
                "reuse": protocol.reuse.ratios,
                "seeds": protocol.seeds.default,
                "updates": protocol.update.updates,
                "gpus_per_cell": protocol.runtime.gpus,
            }
            for protocol in protocols
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("protocol", "model", "N", "methods", "seeds", "updates", "digest"):
        table.add_column(heading, no_wrap=True)
    for protocol in protocols:
        table.add_row(
            protocol.id,
            ", ".join(model.name for model in protocol.models),
            " ".join(map(str, protocol.reuse.ratios)),
            str(len(protocol.methods.hyperparameters)),
            " ".join(map(str, protocol.seeds.default)),
            str(protocol.update.updates),
            protocol.digest[:12],
        )
    Console().print(table)


def show_protocol(
    name: Annotated[str, typer.Argument(help="Id of a protocol, or path of a YAML file.")],
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Show a protocol: every value with its source, and how it differs from the one that is shipped."""
    protocol = load_protocol(name).with_overrides(parse_overrides(settings))
    lines = drift(protocol)
    if as_json:
        document = {
            "id": protocol.id,
            "version": protocol.version,
            "digest": protocol.digest,
            "division": "open" if lines else "closed",
            "deviations": lines,
            "meaning": protocol.meaning(),
            "sources": sources(protocol),
            **{section: protocol.model_dump(mode="json")[section] for section in FREE_SECTIONS},
        }
        typer.echo(json.dumps(document, indent=1))
        return
    console = Console()
    console.print(f"[bold]{protocol.title}[/bold]  {protocol.id}, version {protocol.version}")
    console.print(f"digest {protocol.digest}", highlight=False)
    if protocol.notes:
        console.print(protocol.notes, highlight=False)
    table = Table("field", "value", "source", box=None, pad_edge=False)
    said = sources(protocol)
    for field, value in leaves(protocol.meaning()):
        if field not in ("id", "version", "models"):
            table.add_row(field, _text(value), said.get(_section_field(field), ""))
    for model in protocol.models:
        for field in ("source", "revision"):
            table.add_row(f"model {model.name}: {field}", _text(getattr(model, field)), model.source_of(field))
    for field, value in leaves(protocol.model_dump(mode="json")["runtime"]):
        table.add_row(f"runtime.{field}", _text(value), "free to choose")
    console.print(table)
    if lines:
        console.print(f"\n[bold]open[/bold]: differs from protocol {protocol.base_id}")
        for line in lines:
            console.print(f"  {line}", highlight=False, markup=False)
    else:
        console.print("\n[bold]closed[/bold]: as shipped")


def sources(protocol: Protocol) -> dict[str, str]:
    """Where each field of the meaning comes from, by ``section.field`` (``models.<name>.field`` for models)."""
    said: dict[str, str] = {}
    for section in type(protocol).model_fields:
        part = getattr(protocol, section)
        if hasattr(part, "source_of"):
            for field in type(part).model_fields:
                if field != "stated":
                    said[f"{section}.{field}"] = part.source_of(field)
    for model in protocol.models:
        for field in ("name", "source", "revision"):
            said[f"models.{model.name}.{field}"] = model.source_of(field)
    return said


def _section_field(dotted: str) -> str:
    return ".".join(dotted.split(".")[:2])


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


HIGHEST_PRICE = 1e9
Chosen = Annotated[list[str] | None, typer.Option(help="Only these; repeatable.")]
ChosenNumbers = Annotated[list[int] | None, typer.Option(help="Only these; repeatable.")]


def plan(
    protocols: Annotated[list[str], typer.Option("--protocol", help="Id or file of a protocol; repeatable.")],
    method: Chosen = None,
    reuse: ChosenNumbers = None,
    model: Chosen = None,
    seed: ChosenNumbers = None,
    settings: Set = None,
    gpus_per_cell: GpusPerCell = None,
    cluster: Annotated[str | None, typer.Option(metavar="NxG", help="N nodes of G GPUs; default: one cell's.")] = None,
    price: Annotated[float | None, typer.Option(help="Price of a GPU-hour.")] = None,
    as_json: Json = False,
) -> None:
    """Estimate GPU-hours, wall time on a cluster, memory, disk and cost, before anything is run."""
    from harness import plan as planning
    from harness.grid import cells

    if price is not None and not 0 <= price <= HIGHEST_PRICE:
        raise UserError(f"--price {price}: give the price of a GPU-hour as a number from 0 to {HIGHEST_PRICE:g}")
    estimates: list[planning.CellEstimate] = []
    chosen = [load_protocol(name).with_overrides(parse_overrides(settings)) for name in dict.fromkeys(protocols)]
    for protocol in chosen:
        runtime = protocol.runtime.with_gpus(gpus_per_cell) if gpus_per_cell is not None else protocol.runtime
        for cell in cells(protocol, method, reuse, model, seed):
            estimates.append(planning.estimate(protocol, cell, runtime))
    if cluster is None:
        largest = max(one.largest_need for one in estimates)
        cluster = f"{max(one.need.nodes for one in estimates)}x{largest}"
    nodes = planning.cluster_nodes(cluster)
    schedule = planning.simulate(estimates, nodes)
    report = planning.report(chosen, estimates, nodes, schedule, price)
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    console = Console(soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("cell", "GPUs", "training", "evaluation", "GPU-hours"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "cell" else "right")
    for one in report["cells"]:
        table.add_row(
            one["id"],
            str(one["gpus"]),
            _duration(one["training_seconds"]),
            _duration(one["evaluation_seconds"]),
            f"{one['gpu_hours']:.1f}",
        )
    console.print(table)
    console.print(f"\n{len(estimates)} cells, {report['gpu_hours']:,.0f} GPU-hours")
    console.print(
        f"wall time on {cluster}: {_duration(report['makespan_seconds'])} "
        f"(no schedule is shorter than {_duration(report['fluid_bound_seconds'])})",
        highlight=False,
    )
    disk = f"{report['disk_peak_bytes'] / 1e9:,.0f} GB at most, {report['disk_kept_bytes'] / 1e9:,.0f} GB at the end"
    console.print(f"disk: {disk}", highlight=False)
    if report["cost"] is not None:
        console.print(f"cost: {report['cost']:,.0f} at {price:g} a GPU-hour", highlight=False)
    for name, memory in report["memory"].items():
        verdict = "fits" if memory["fits"] else "does NOT fit"
        console.print(
            f"memory of {name}: {memory['peak']:.0f} of {memory['available']:.0f} GiB per {memory['gpu']}, "
            f"{verdict}; host {memory['host']:.0f} GiB a node",
            highlight=False,
        )
    console.print("the model behind it:")
    for line in report["assumptions"]:
        console.print(f"  {escape(line)}", highlight=False)


def doctor(
    protocol: Annotated[str, typer.Option(help="The protocol that is to be run.")] = "tiny",
    runs: Annotated[Path, typer.Option(help="Folder for run directories.")] = Path("runs"),
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the data sets.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not try the network.")] = False,
    as_json: Json = False,
) -> None:
    """Check this machine: what is missing, what it means, and how to mend it. Exit code 1 when something is broken."""
    from harness.doctor import examine

    checks = examine(load_protocol(protocol), runs=runs, data=data_dir, offline=offline)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        console = Console(soft_wrap=True)
        marks = {"ok": "[green]ok[/green]     ", "warning": "[yellow]warning[/yellow]", "broken": "[red]broken[/red] "}
        for check in checks:
            console.print(f"{marks[check.state]} {check.name}: {escape(check.found)}", highlight=False)
            if check.state != "ok":
                console.print(f"        {escape(check.meaning)}", highlight=False)
                console.print(f"        mend: {escape(check.mend)}", highlight=False)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.1f} d"
