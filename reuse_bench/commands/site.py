"""`reuse-bench site`: records to a folder of static pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("site")(site)


def site(
    records: Annotated[Path, typer.Option(help="Folder of records.", file_okay=False)] = Path("results"),
    output: Annotated[Path, typer.Option(help="Folder to write; replaced as a whole.", file_okay=False)] = Path("site"),
    config: Annotated[
        Path | None, typer.Option(help="A site.yaml: title, colours, logo, links.", dir_okay=False)
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Show the pages, and rebuild when records change.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --serve; 0 picks a free one.")] = 8000,
) -> None:
    """Build the leaderboard from records: static pages that open from any folder, without a server."""
    from leaderboard import site as pages
    from leaderboard.preview import preview, state

    before = state(records, config) if serve else []  # what comes while the pages are built is seen afterwards
    console = Console()
    with console.status("Building the pages"):
        built = pages.build(records, output, config)
    runs = f"{built.runs} run{'' if built.runs == 1 else 's'}"
    console.print(
        f"{built.pages} pages from {runs}: {built.output / 'index.html'}", markup=False, highlight=False, soft_wrap=True
    )
    if serve:
        preview(
            records,
            output,
            config,
            before,
            port,
            lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
        )
