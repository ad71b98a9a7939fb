"""Options that several commands have, each said once; `run`, `train` and `status` share a choice of cells."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Data folder; otherwise REUSE_BENCH_DATA, or the cache.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Another value for a field, by its dotted name; repeatable."),
]
ProtocolName = Annotated[str, typer.Option("--protocol", help="A protocol's name, or the path of a protocol file.")]
Methods = Annotated[list[str] | None, typer.Option("--method", help="Only this method (repeatable).")]
Reuses = Annotated[list[int] | None, typer.Option("--reuse", help="Only this reuse ratio N (repeatable).")]
Models = Annotated[list[str] | None, typer.Option("--model", help="Only this base model (repeatable).")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Only this run seed (repeatable).")]
GpusPerCell = Annotated[int | None, typer.Option(help="GPUs of a cell, in place of the protocol's.")]
Address = Annotated[
    str | None, typer.Option("--address", help="A running Ray (auto, host:port, ray://...); without it, a local one.")
]
IgnoreDisk = Annotated[bool, typer.Option("--ignore-disk", help="Start even where the disk seems to be too small.")]
Runs = Annotated[Path, typer.Option("--runs", help="Folder for running and finished cells.")]
Results = Annotated[Path, typer.Option("--results", help="The store of records.")]


@dataclass(frozen=True)
class Choice:
    """Cells of a protocol, all that no field leaves out, and where they run and are recorded."""

    protocol: ProtocolName = "tiny"
    method: Methods = None
    reuse: Reuses = None
    model: Models = None
    seed: Seeds = None
    runs: Runs = Path("runs")
    results: Results = Path("results")
    settings: Set = None


def with_choice(command: Callable[Concatenate[Choice, ...], None]) -> Callable[..., None]:
    """The command with the options of a `Choice` in the place of its first parameter, before its own."""
    shared = inspect.signature(Choice, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @functools.wraps(command)
    def taking_options(**given: Any) -> None:
        choice = Choice(**{name: given.pop(name) for name in shared})
        command(choice, **given)

    parameters = [*shared.values(), *own]
    # Typer reads both.
    taking_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    taking_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return taking_options
