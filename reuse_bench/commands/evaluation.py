"""`reuse-bench evaluate` and `list tasks`."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from methods.errors import UserError
from reuse_bench.commands.facts import list_app
from reuse_bench.commands.options import Choice, DataDir, Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.evaluation import Progress


EXIT_CHECK_FAILED = 1
EXIT_INTERRUPTED = 3


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("evaluate")(evaluate)
    list_app.command("tasks")(list_tasks)


def evaluate(
    model: Annotated[
        str | None,
        typer.Option(help="Folder of a checkpoint, a hub name, or a base model. Without it: trained cells."),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Protocol that says how to ask [default: qwen3-1.7b with --model, else tiny].")
    ] = None,
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", help="Only these tasks (repeatable, or joined by commas).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many problems of each task.")] = None,
    method: Annotated[list[str] | None, typer.Option("--method", help="Cells of this method (repeatable).")] = None,
    reuse: Annotated[list[int] | None, typer.Option("--reuse", help="Cells of this N (repeatable).")] = None,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", min=0, help="Run seed (one with --model; repeatable for cells).")
    ] = None,
    runs: Annotated[Path, typer.Option("--runs", help="Folder of the cells.")] = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="Folder for the samples [default: below --runs].")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model in the store.")] = None,
    revision: Annotated[str | None, typer.Option(help="Commit of the hub repository.")] = None,
    record: Annotated[bool, typer.Option("--record", help="Write a record into the store.")] = False,
    results: Annotated[Path, typer.Option("--results", help="The store of records.")] = Path("results"),
    stated: Annotated[
        str | None, typer.Option(help="Where an outside checkpoint comes from; goes into its record.")
    ] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="Engines that share the problems.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Evaluate any checkpoint with lm-eval on vLLM, or evaluate and record trained cells. It continues when rerun."""
    if model is None:
        outside_only = {"--tasks": tasks, "--limit": limit, "--out": out, "--name": name, "--stated": stated}
        for option, value in outside_only.items():
            if value is not None:
                raise UserError(f"{option} needs --model: trained cells are evaluated as their protocol says")
        from reuse_bench.commands.runs import evaluate_cells, jobs_of

        chosen = Choice(protocol or "tiny", method, reuse, seed=seed, runs=runs, results=results)
        evaluate_cells(jobs_of(chosen))
        return
    if method or reuse:
        raise UserError("--method and --reuse choose trained cells: leave them out with --model")
    if seed is not None and len(seed) > 1:
        raise UserError("--seed: one run seed at a time with --model")
    run_seed = seed[0] if seed else 0
    from dataclasses import replace

    from harness.evaluation import EvaluationError, engine_from_protocol, plans_from_protocol
    from harness.outside import choose, evaluate_outside
    from harness.protocol import load_protocol
    from harness.scoring import pass_at_1, read_samples

    stated_protocol = load_protocol(protocol or "qwen3-1.7b")
    wanted = [part for text in tasks or [] for part in text.split(",") if part]
    if tasks and not wanted:
        raise UserError("--tasks names no task: leave it out for all of them, or see `reuse-bench list tasks`")
    plans = plans_from_protocol(stated_protocol, wanted or None)
    engine = engine_from_protocol(stated_protocol)
    if replicas is not None:
        engine = replace(engine, replicas=replicas)
    outside = choose(stated_protocol, model, name, revision, stated)
    if record and outside.kind == "external" and not stated:
        raise UserError(
            f"--record: {model} is no base model of {stated_protocol.id}: say with --stated where it comes from"
        )
    folder = out or runs / stated_protocol.id / outside.spec.name / "n0" / "base" / f"seed{run_seed}" / "evaluation"
    try:
        with _bar() as progress:
            files, written = evaluate_outside(
                outside,
                stated_protocol,
                plans,
                folder,
                seed=run_seed,
                limit=limit,
                engine=engine,
                data=data_dir,
                store=results if record else None,
                progress=progress,
            )
    except EvaluationError as error:
        Console(stderr=True, soft_wrap=True).print(f"reuse-bench: {error}", markup=False, highlight=False)
        raise typer.Exit(EXIT_CHECK_FAILED) from error
    except KeyboardInterrupt:
        Console(stderr=True).print("reuse-bench: interrupted; the same command continues")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    rows = [_summary(task, read_samples(path), path, pass_at_1) for task, path in files.items()]
    if as_json:
        typer.echo(json.dumps({"tasks": rows, "record": str(written) if written else None}, indent=1))
        return
    table = Table(
        "task", "problems", "samples", "published %", "audited %", "truncated %", "tokens", box=None, pad_edge=False
    )
    for row in rows:
        table.add_row(
            row["task"],
            str(row["problems"]),
            str(row["samples"]),
            f"{100 * row['published']:.1f}",
            f"{100 * row['audited']:.1f}",
            f"{100 * row['truncated']:.1f}",
            f"{row['mean_response_tokens']:.0f}",
        )
    Console().print(table)
    typer.echo(f"samples: {folder}" + (f"\nrecord: {written}" if written else ""))


def _summary(task: str, samples: Any, path: Path, score: Any) -> dict[str, Any]:
    return {
        "task": task,
        "problems": int(samples["problem_id"].nunique()),
        "samples": len(samples),
        "published": score(samples, "published"),
        "audited": score(samples, "audited"),
        "truncated": float((samples["finish_reason"] == "length").mean()),
        "mean_response_tokens": float(samples["response_tokens"].mean()),
        "file": str(path),
    }


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("starting", total=None)
        yield lambda done, total, what: bar.update(row, completed=done, total=total, description=what)


def list_tasks(as_json: Json = False) -> None:
    """List the held-out tasks: what lm-eval calls them, problems, source."""
    from tasks import chain, datasets

    facts: list[dict[str, Any]] = []
    for task in datasets.evaluation_tasks():
        described = datasets.manifest().get(datasets.set_of(task))
        title = described.title if described else f"sum of {task.removeprefix('tiny_sum')} digits modulo 10"
        problems = described.rows if described else chain.HELD_OUT_PROBLEMS
        if part := datasets.subsets().get(task):
            title, problems = f"{title}, the first {part.problems} of {problems} by id", part.problems
        facts.append(
            {
                "task": task,
                "lm_eval": f"reuse_{task}",
                "title": title,
                "problems": problems,
                "source": described.hub.repository if described else "generated",
            }
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    table = Table("task", "in lm-eval", "problems", "source", "", box=None, pad_edge=False)
    for one in facts:
        table.add_row(one["task"], one["lm_eval"], str(one["problems"]), one["source"], one["title"])
    Console().print(table)
