"""`claims`, `compare`, `verify`, `export` and `show schema`: what the records say, and whether they say it truly."""

from __future__ import annotations

import json
import sys
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from methods.errors import UserError
from reuse_bench.commands.facts import show_app
from reuse_bench.commands.options import Json
from tasks.datasets import cache_dir

if TYPE_CHECKING:
    from harness.verify import Report
    from leaderboard.compare import Block

Records = Annotated[Path, typer.Option("--records", help="The store of records.")]
DEFAULT_STORE = Path("results")


class ClaimSource(StrEnum):
    """Which numbers the claims are asked of."""

    PUBLISHED = "published"
    RESULTS = "results"


class GraderChoice(StrEnum):
    """Whose verdicts count."""

    PUBLISHED = "published"
    AUDITED = "audited"


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("claims")(claims)
    app.command("compare")(compare)
    app.command("verify")(verify)
    app.command("export")(export)
    app.command("report")(report)
    show_app.command("schema")(show_schema)


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def claims(
    source: Annotated[ClaimSource, typer.Option(help="The paper's printed tables, or records.")],
    protocol: Annotated[
        list[str] | None, typer.Option(help="Only records of this protocol; may be given several times.")
    ] = None,
    records: Records = DEFAULT_STORE,
    file: Annotated[list[Path] | None, typer.Option(help="Claims of your own, in place of those that ship.")] = None,
    grader: Annotated[GraderChoice, typer.Option(help="Whose verdicts count.")] = GraderChoice.PUBLISHED,
    as_json: Json = False,
) -> None:
    """Check the claims of the paper on its own tables, or on results.

    Exit code 1 when a claim fails on the tables that it was made about.
    """
    from leaderboard import claims as rules
    from leaderboard import tables

    files = [rules.load(path) for path in file] if file else rules.shipped()
    if source is ClaimSource.PUBLISHED:
        if protocol:
            raise UserError("--protocol: the printed tables have no protocol: use it with --source results")
        title = "the printed tables"
        outcomes = rules.evaluate(files, rules.Printed())
    else:
        results = rules.protocols_for_claims(tables.load(records), protocol or [])
        reproduced = rules.Reproduced(results, grader=grader.value)
        title = f"{records} ({reproduced.division} division)"
        outcomes = rules.evaluate(files, reproduced)
    if as_json:
        _print_json([outcome.as_json() for outcome in outcomes])
    else:
        colours = {"holds": "green", "fails": "red", "inconclusive": "yellow", "no data": "dim"}
        table = Table(title=escape(f"Claims on {title}"))
        for column in ("id", "claim", "verdict", "figures"):
            table.add_column(column, overflow="fold")
        for outcome in outcomes:
            verdict = f"[{colours[outcome.verdict]}]{outcome.verdict}[/]"
            table.add_row(escape(outcome.claim.id), escape(outcome.claim.statement), verdict, escape(outcome.summary))
        Console().print(table)
    if source is ClaimSource.PUBLISHED and any(outcome.verdict == "fails" for outcome in outcomes):
        raise typer.Exit(1)


def compare(
    first: Annotated[str, typer.Argument(help="A method, 'published', the path of a record, or the start of its id.")],
    second: Annotated[str, typer.Argument(help="The same.")],
    records: Records = DEFAULT_STORE,
    protocol: Annotated[str | None, typer.Option(help="Only records of this protocol.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    reuse: Annotated[int | None, typer.Option(help="Only this N.")] = None,
    grader: Annotated[GraderChoice, typer.Option(help="Whose verdicts count.")] = GraderChoice.PUBLISHED,
    flips: Annotated[int, typer.Option(min=0, help="How many flipped problems to list for each benchmark.")] = 5,
    as_json: Json = False,
) -> None:
    """Compare two methods, two records, or a method with its published numbers.

    Differences are first minus second, in percentage points, paired by problem.
    """
    from leaderboard import tables
    from leaderboard.compare import compare as run

    results = tables.load(records, protocol=protocol)
    present = sorted({record.protocol.id for _, record in results.records})
    if len(present) > 1:
        raise UserError(f"--protocol: {records} has records of {', '.join(present)}: name one")
    found = run(first, second, results, reuse=reuse, model=model, grader=grader.value)
    if as_json:
        _print_json(found.as_json())
        return
    console = Console()
    for block in found.blocks:
        console.print(_comparison_table(block))
        for row in block.rows:
            known = [f"{flip.problem} {flip.first:.2f} to {flip.second:.2f}" for flip in row.flips[:flips]]
            if known:
                rest = f", and {len(row.flips) - flips} more" if len(row.flips) > flips else ""
                console.print(escape(f"{row.task}, flipped: {', '.join(known)}{rest}"))
        console.print(escape(block.words), "\n")


def _comparison_table(block: Block) -> Table:
    title = f"{block.model}, N = {block.reuse}: {block.first} less {block.second}"
    table = Table(title=escape(title), caption=f"seeds: {block.seeds[0]} and {block.seeds[1]}")
    table.add_column("benchmark", no_wrap=True)
    for column in ("first", "second", "difference", "95 % interval", "p (Holm)"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("ahead", overflow="fold")
    ahead = {"first": block.first, "second": block.second}
    for row in block.rows:
        table.add_row(
            escape(row.task),
            f"{100 * row.first:.1f}",
            f"{100 * row.second:.1f}",
            f"{100 * row.difference:+.1f}",
            f"{100 * row.low:+.1f} to {100 * row.high:+.1f}" if row.low == row.low else "",
            _p(row.p_holm),
            escape(ahead.get(row.verdict, row.verdict)),
        )
    return table


def _p(value: float) -> str:
    if value != value:
        return ""
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def verify(
    path: Annotated[Path, typer.Argument(help="A store, a folder of one, or one record.")] = DEFAULT_STORE,
    regrade: Annotated[bool, typer.Option("--regrade", help="Judge every sample again; takes minutes.")] = False,
    cache: Annotated[bool, typer.Option(help="Skip what was found right before, by digest.")] = True,
    against: Annotated[
        Path | None, typer.Option(help="An older store: print what changed since, as Markdown, for a pull request.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute every record from its files and say what differs.

    Exit code 1 when anything differs.
    """
    from harness import verify as checks

    if as_json and against:
        raise UserError("--json and --against: one prints JSON and the other Markdown: give one of them")
    if against and path.is_symlink():
        raise UserError(f"{path}: is a link, perhaps to records that are here already: give the folder itself")
    folder = cache_dir() if cache else None
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("verifying")
        report = checks.verify(
            path,
            regrade=regrade,
            cache_folder=folder,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if as_json:
        _print_json(report.as_json())
    elif against:
        typer.echo(_changes(against, path, report), nl=False)
    else:
        _print_report(path, report)
    if not report.ok:
        raise typer.Exit(1)


def _changes(old: Path, new: Path, report: Report) -> str:
    """Markdown; where a record cannot be read at all, only what verification says of it."""
    from leaderboard import tables
    from leaderboard.export import changes, findings

    before = tables.load(old) if old.is_dir() else tables.Results(old, ())
    try:
        return changes(before, tables.load(new), report)
    except UserError:
        return findings(report)


def _print_report(path: Path, report: Report) -> None:
    console = Console(soft_wrap=True)
    errors = [finding for finding in report.findings if finding.level == "error"]
    for finding in errors:
        where = f"{finding.path}: {finding.field}: " if finding.field else f"{finding.path}: "
        console.print(f"[red]differs[/] {escape(where + finding.message)}")
    # The same gap in every record is one line.
    notes = Counter((finding.field, finding.message) for finding in report.findings if finding.level == "note")
    for (name, message), count in notes.items():
        records = f"{count} records" if count > 1 else "1 record"
        console.print(f"[yellow]not checked[/] {escape(f'{name}: {message} ({records})')}")
    counts = f"{report.records} records, {report.files} files, {report.samples} samples"
    known = f" ({report.cached} records known from before)" if report.cached else ""
    verdict = "[green]nothing differs[/]" if report.ok else f"[red]{len(errors)} differences[/]"
    console.print(f"{escape(str(path))}: {counts}{known}: {verdict}")


def export(
    output: Annotated[Path, typer.Option("--output", help="Folder for the files.")],
    records: Records = DEFAULT_STORE,
    protocol: Annotated[str | None, typer.Option(help="Only records of this protocol.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="csv, parquet, sqlite or duckdb; may be given several times.")
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="Also every sample with its response.")] = False,
) -> None:
    """Write all tables as CSV, parquet, or a SQLite or DuckDB file to query."""
    from leaderboard import tables
    from leaderboard.export import export_tables, write

    results = tables.load(records, protocol=protocol)
    written = write(export_tables(results, samples=samples), output, formats or ["csv"])
    for path in written:
        typer.echo(str(path))


def report(
    protocol: Annotated[str, typer.Option(help="The protocol that is reported.")],
    records: Records = DEFAULT_STORE,
    control: Annotated[
        str | None, typer.Option(help="A protocol that rewards at random, to be set beside the base model.")
    ] = None,
) -> None:
    """Print a protocol's results as Markdown: tables with intervals, claims, importance weights."""
    from leaderboard import tables
    from leaderboard.report import report as write

    given = f" --records {records}" if records != DEFAULT_STORE else ""
    beside = f" --control {control}" if control else ""
    command = f"reuse-bench report --protocol {protocol}{beside}{given}"
    typer.echo(write(tables.load(records), protocol, command, control), nl=False)


def show_schema() -> None:
    """Print the JSON Schema of a record."""
    from harness.records import json_schema

    _print_json(json_schema())
