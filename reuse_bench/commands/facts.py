"""`reuse-bench list ...` and `reuse-bench show ...`: facts about methods, protocols, tasks and runs."""

from __future__ import annotations

import typer

list_app = typer.Typer(no_args_is_help=True, help="List methods, protocols or tasks.")
show_app = typer.Typer(no_args_is_help=True, help="Show one protocol, method or run.")


def register(app: typer.Typer) -> None:
    """Add both groups to the command line."""
    app.add_typer(list_app, name="list")
    app.add_typer(show_app, name="show")
