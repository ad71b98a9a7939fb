"""`reuse-bench data ...`: fetch, verify and import the problem sets, and compare them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from methods.errors import UserError
from reuse_bench.commands.options import DataDir, Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.datasets import Problem
    from tasks.fetch import Progress

data_app = typer.Typer(no_args_is_help=True, help="Fetch, verify and compare the problem sets.")

Accept = Annotated[
    str | None,
    typer.Option("--accept", help="Take a content that is not the manifest's, by its digest (open division)."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.add_typer(data_app, name="data")


@data_app.command("fetch")
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Sets to fetch; see `reuse-bench data list`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every set of the manifest.")] = False,
    accept: Accept = None,
    data_dir: DataDir = None,
) -> None:
    """Download sets from their public homes and verify them; an interrupted download goes on where it stopped."""
    from tasks import datasets
    from tasks.fetch import fetch as fetch_set
    from tasks.fetch import verify as verify_set

    wanted = list(datasets.manifest()) if everything else list(names or [])
    if not wanted:
        raise UserError("no data set named: give names (see `reuse-bench data list`) or --all")
    for name in wanted:
        datasets.entry(name)
    failed = []
    for name in wanted:
        try:
            with _bar(name) as progress:
                path = fetch_set(name, data_dir, accept=accept, progress=progress)
        except UserError as error:
            # With --all one missing set must not keep the others from coming.
            if len(wanted) == 1:
                raise
            failed.append(name)
            Console(stderr=True, soft_wrap=True).print(f"reuse-bench: {error}", markup=False, highlight=False)
            continue
        status = verify_set(name, data_dir)
        typer.echo(f"{name}: {status.state}, {status.rows} problems, {path}")
    if failed:
        raise UserError(f"{len(failed)} of {len(wanted)} data sets are missing: {', '.join(failed)}: see above")


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task(name, total=None)
        yield lambda _, done, total: bar.update(row, completed=done, total=total)


@data_app.command("verify")
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Sets to check; all when none is named.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Check count and digest of what is in the data folder. Exit code 1 when a named set is missing or refused."""
    from tasks import datasets
    from tasks.fetch import verify as verify_set

    found = [verify_set(name, data_dir) for name in names or datasets.manifest()]
    if as_json:
        typer.echo(json.dumps([asdict(status) for status in found], indent=1))
    else:
        table = Table("set", "state", "problems", "digest", "", box=None, pad_edge=False)
        for one in found:
            rows = "" if one.rows is None else str(one.rows)
            table.add_row(one.name, one.state, rows, (one.digest or "")[:12], one.message)
        Console(soft_wrap=True).print(table, markup=False)
    if any(one.state == "refused" or (names and one.state == "missing") for one in found):
        raise typer.Exit(1)


@data_app.command("import")
def import_copy(
    file: Annotated[Path, typer.Argument(help="A .jsonl or .parquet copy.")],
    name: Annotated[str, typer.Option("--as", help="Which set it is.")],
    accept: Accept = None,
    data_dir: DataDir = None,
) -> None:
    """Take a local copy of a set into the data folder, verified."""
    from tasks.fetch import import_file
    from tasks.fetch import verify as verify_set

    path = import_file(file, name, data_dir, accept=accept)
    status = verify_set(name, data_dir)
    typer.echo(f"{name}: {status.state}, {status.rows} problems, {path}")


@data_app.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the manifest: source, count, digest, how each entry was checked, licence."""
    from tasks import datasets

    entries = list(datasets.manifest().values())
    if as_json:
        facts = [
            {
                "name": one.name,
                "title": one.title,
                "role": one.role,
                "source": one.hub.repository,
                "config": one.hub.config,
                "split": one.hub.split,
                "rows": one.rows,
                "digest": one.digest,
                "pinned": one.pinned,
                "checked": one.checked,
                "licence": one.licence,
            }
            for one in entries
        ]
        typer.echo(json.dumps(facts, indent=1))
        return
    table = Table("set", "role", "problems", "digest", "source", "checked", box=None, pad_edge=False)
    for one in entries:
        rows = "?" if one.rows is None else str(one.rows)
        table.add_row(one.name, one.role, rows, (one.digest or "first fetch")[:12], one.hub.repository, one.checked)
    Console().print(table)


@data_app.command("overlap")
def overlap(
    train: Annotated[str, typer.Option("--train", help="Training set: a name of the manifest, or a .jsonl file.")],
    test: Annotated[
        list[str] | None, typer.Option("--test", help="Held-out sets (repeatable); the six when none is named.")
    ] = None,
    threshold: Annotated[float, typer.Option(min=0.01, max=1.0, help="Smallest containment that is reported.")] = 0.5,
    ngram: Annotated[int, typer.Option(min=2, help="Words per n-gram.")] = 13,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Find problems of held-out sets that a training set holds too, exactly or nearly."""
    from tasks import datasets
    from tasks.overlap import overlap as compare

    training = _problems(train, data_dir)
    found = {
        name: compare(training, _problems(name, data_dir), ngram=ngram, threshold=threshold)
        for name in test or datasets.BENCHMARKS
    }
    if as_json:
        facts = {name: [asdict(pair) for pair in pairs] for name, pairs in found.items()}
        typer.echo(json.dumps({"train": train, "ngram": ngram, "threshold": threshold, "pairs": facts}, indent=1))
        return
    table = Table("test set", "test problem", "training problem", "kind", "containment", box=None, pad_edge=False)
    for name, pairs in found.items():
        for pair in pairs:
            table.add_row(name, pair.test, pair.train, pair.kind, f"{pair.score:.2f}")
    console = Console(soft_wrap=True)
    console.print(table)
    counts = ", ".join(f"{name} {len(pairs)}" for name, pairs in found.items())
    console.print(
        f"pairs with a containment of {threshold:g} or more in {ngram}-grams of words: {counts}", highlight=False
    )


def _problems(source: str, data_dir: Path | None) -> tuple[Problem, ...]:
    from tasks import datasets

    if source.endswith(".jsonl"):
        path = Path(source)
        if not path.is_file():
            raise UserError(
                f"{path}: no such file: give a .jsonl file with problem and answer, or a name of the manifest"
            )
        return tuple(datasets.read_problems(path, path.stem))
    return datasets.load(source, data_dir).problems
