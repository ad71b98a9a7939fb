"""`list protocols`, `show protocol`, `plan` and `doctor`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from harness.protocol import FREE_SECTIONS, Protocol, available, drift, leaves, load_protocol
from methods.errors import UserError
from reuse_bench.commands.facts import list_app, show_app

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Another value for a field, by its dotted name; repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    list_app.command("protocols")(list_protocols)
    show_app.command("protocol")(show_protocol)


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
        try:
            overrides[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError(f"--set {name}: {value!r} is no YAML value: quote it") from error
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
