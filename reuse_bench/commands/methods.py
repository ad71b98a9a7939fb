"""`list methods`, `show method`, `check`, `new-method`: facts about losses, their check, and a start for a new one."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import shlex
import sys
import types
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from methods.errors import UserError
from reuse_bench.commands.facts import list_app, show_app
from reuse_bench.commands.options import Json

if TYPE_CHECKING:
    from methods.conformance import Baseline, Row
    from methods.registry import Registered

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the method.", show_default=False)]
MARKS = {"holds": "[green]holds[/]", "fails": "[bold red]FAILS[/]", "reported": "[dim]–[/]"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    list_app.command("methods")(list_methods)
    show_app.command("method")(show_method)
    app.command("check")(check)
    app.command("new-method")(new_method)


def list_methods(
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print all cards as docs/methods.md has them.")] = False,
) -> None:
    """All methods: built-in ones, and those of installed packages."""
    from methods.registry import BUILT_IN, available
    from methods.scaffold import cards_markdown

    methods = available()
    if markdown:
        print(cards_markdown([found for found in methods.values() if found.origin == BUILT_IN]), end="")
        return
    if as_json:
        _print_json(
            [{"name": found.name, "title": found.card.title, "origin": found.origin} for found in methods.values()]
        )
        return
    table = Table("Name", "Title", "Idea", "From", box=None, header_style="bold", pad_edge=False)
    for found in methods.values():
        table.add_row(found.name, escape(found.card.title), escape(found.card.idea), escape(found.origin))
    Console().print(table)


def show_method(name: Name, as_json: Json = False) -> None:
    """The card of a method: idea, formula, paper, hyperparameters, conventions."""
    from methods.registry import lookup

    found = lookup(name)
    if as_json:
        _print_json(_facts(found))
        return
    card = found.card
    console = Console()
    console.print(
        f"[bold]{escape(card.title)}[/]  ({found.name}, {escape(found.origin)}, version {escape(card.version)})"
    )
    console.print(card.idea, markup=False)
    console.print(f"\nLoss per token, mean over {card.over}:\n  {card.formula}", markup=False, soft_wrap=True)
    console.print(f"\n{card.paper}  {card.url}\n", markup=False, soft_wrap=True)
    if card.hyperparameters:
        table = Table("Hyperparameter", "Default", "Range", "Meaning", box=None, header_style="bold", pad_edge=False)
        for parameter in card.hyperparameters:
            default = "none" if parameter.default is None else f"{parameter.default:g}"
            table.add_row(parameter.name, default, escape(parameter.interval), escape(parameter.meaning))
        console.print(table)
    for convention in card.conventions:
        console.print(f"- {convention}", markup=False)
    console.print(f"\nSource digest: {_facts(found)['source_sha256']}", markup=False, soft_wrap=True)


def check(
    name: Name,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A hyperparameter; may be given again.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the contract on a method and print what holds; exit code 1 when something fails."""
    from methods.conformance import check as run_checks
    from methods.registry import create, get

    method = get(name)
    given = dict(_setting(text) for text in settings or [])
    known = [parameter.name for parameter in method.card.hyperparameters]
    for key in given:
        if key not in known:
            raise UserError(f"{name}: unknown hyperparameter {key!r}: it takes {', '.join(known) or 'none'}")
    with contextlib.redirect_stdout(sys.stderr):  # what a method prints must not get between the lines of JSON
        try:
            instance = create(name, given)
        except ValueError as error:
            raise UserError(str(error)) from error
        rows = run_checks(instance, openrlhf_ppo_loss())
    failed = sum(row.status == "fails" for row in rows)
    if as_json:
        document = {"method": name, "hyperparameters": dict(instance.hyperparameters), "passed": not failed}
        _print_json({**document, "rows": [asdict(row) for row in rows]})
    else:
        _print_rows(name, rows)
    if failed:
        raise typer.Exit(1)


def new_method(
    name: Name,
    package: Annotated[
        Path | None,
        typer.Option("--package", metavar="DIR", help="Make an installable plugin package in this new folder."),
    ] = None,
) -> None:
    """Write a working method (plain policy gradient), its card and its test, as a start for your own."""
    from methods.scaffold import new_in_tree, new_package

    written = new_in_tree(name) if package is None else new_package(name, package)
    console = Console(soft_wrap=True)
    for path in written:
        console.print(f"wrote {path}", markup=False, highlight=False)
    if package is not None:
        console.print(f"next: pip install -e {shlex.quote(str(package))} --no-deps", markup=False, highlight=False)
    console.print(f"next: reuse-bench check {name}", markup=False, highlight=False)


def openrlhf_ppo_loss() -> Baseline | None:
    """OpenRLHF's own ``PolicyLoss("ppo")``, or None where OpenRLHF is not installed."""
    module = openrlhf_loss_module()
    if module is None:
        return None
    policy_loss = module.PolicyLoss()
    return lambda inputs: policy_loss(
        inputs.log_probs, inputs.old_log_probs, inputs.advantages, action_mask=inputs.action_mask
    )[0]


def openrlhf_loss_module() -> Any:
    """OpenRLHF's module of losses, or None where OpenRLHF is not installed.

    Its package imports flash-attn, which a machine without CUDA cannot load; its losses do not need it. So the module
    is imported past the package, and the package is left unimported for those who want all of it.
    """
    package = "openrlhf.models"
    if package in sys.modules:
        return importlib.import_module(f"{package}.loss")
    spec = importlib.util.find_spec("openrlhf")
    if spec is None or not spec.submodule_search_locations:
        return None
    bare = types.ModuleType(package)
    bare.__path__ = [str(Path(spec.submodule_search_locations[0], "models"))]
    sys.modules[package] = bare
    logging.disable(logging.WARNING)
    try:
        # What it imports greets on the standard output, where only our answer belongs.
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings(action="ignore"):
            return importlib.import_module(f"{package}.loss")
    except ImportError:
        return None
    finally:
        logging.disable(logging.NOTSET)
        for imported in [key for key in sys.modules if key == package or key.startswith(f"{package}.")]:
            del sys.modules[imported]


def _facts(found: Registered) -> dict[str, Any]:
    from methods.registry import source_digest

    card = asdict(found.card)
    for parameter in card["hyperparameters"]:
        for end in ("minimum", "maximum"):
            parameter[end] = parameter[end] if abs(parameter[end]) != float("inf") else None
    return {"name": found.name, "origin": found.origin, "source_sha256": source_digest(found.name), **card}


def _setting(text: str) -> tuple[str, float | None]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text!r} is no KEY=VALUE: write for example --set clip_low=0.2")
    if value == "none":
        return key, None
    try:
        return key, float(value)
    except ValueError as error:
        raise UserError(f"--set {text!r}: {value!r} is not a number: give a number or none") from error


def _print_rows(name: str, rows: list[Row]) -> None:
    table = Table("", "Row", "What has to hold", "Found", "Allowed", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(MARKS[row.status], row.key, escape(row.claim), escape(row.figure), escape(row.limit))
    console = Console()
    console.print(table)
    failed = [row.key for row in rows if row.status == "fails"]
    verdict = f"[bold red]{name} fails {', '.join(failed)}[/]" if failed else f"[green]{name} holds all rows[/]"
    console.print(verdict)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
