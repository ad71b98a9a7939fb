"""`status`: what state each cell of a protocol is in, and how far it is; once, or again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from reuse_bench.commands.cluster import responses_of
from reuse_bench.commands.options import Choice, Json, with_choice
from reuse_bench.commands.runs import jobs_of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run_directory import CellState
    from harness.runner import CellJob

ENDED = ("done", "collapsed", "failed")
COLUMNS = ("cell", "status", "progress", "score", "time left", "")


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("status")(status)


@with_choice
def status(
    choice: Choice,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until all have ended.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")] = 3.0,
    as_json: Json = False,
) -> None:
    """Show the cells of a protocol: what state each is in, and how far it is.

    With --watch, a table that is drawn anew on a terminal, and otherwise a line for each cell that has changed.
    """
    jobs = jobs_of(choice)
    console = Console()
    if not watch:
        facts = list(map(cell_facts, jobs))
        if as_json:
            typer.echo(json.dumps(facts, indent=1))
        else:
            console.print(table(facts))
        return
    try:
        if console.is_terminal and not as_json:
            _draw(console, _looks(jobs, every))
        else:
            _print_changes(_looks(jobs, every), as_json)
    except KeyboardInterrupt:
        return  # that is how one stops watching


def cell_facts(job: CellJob) -> dict[str, Any]:
    """What is known of a cell, as JSON values; times are in seconds."""
    locked = job.run.is_locked()
    if not job.run.state_file.exists() and job.has_record:
        return _recorded_facts(job)
    state, last = job.run.read_state(), job.run.last_update()
    name: str = state.status if state else "waiting"
    detail = state.detail if state else None
    if name in ("training", "evaluating") and not locked and not job.run.is_locked():
        name, detail = "interrupted", f"its process ended while it was {name}"
    evaluating = name == "evaluating"
    done, in_all = responses_of(job) if evaluating else (None, None)
    return {
        "cell": job.cell.id,
        "status": name,
        "updates": last["update"] if last else 0,
        "updates_in_all": job.protocol.update.updates,
        "score": last["score"] if last else None,
        "seconds_left": _seconds_left(job, state, last["update"]) if state and last and name == "training" else None,
        "responses": done,
        "responses_in_all": in_all,
        "detail": detail,
        "record": str(job.record_path) if job.record_path.exists() else None,
        "log": str(_log(job, state)) if _log(job, state).exists() else None,
    }


def _recorded_facts(job: CellJob) -> dict[str, Any]:
    """Those of a cell that was run elsewhere, or whose folder was deleted: what its record says."""
    from harness.records import read_record

    record = read_record(job.record_path)
    training = record.training
    return {
        "cell": job.cell.id,
        "status": record.status,
        "updates": training.updates if training else 0,
        "updates_in_all": job.protocol.update.updates,
        "score": training.final_score if training else None,
        "seconds_left": None,
        "responses": None,
        "responses_in_all": None,
        "detail": record.failure or (training.collapse if training else None),
        "record": str(job.record_path),
        "log": None,
    }


def _log(job: CellJob, state: CellState | None) -> Path:
    """The log of the latest step."""
    evaluation = job.run.evaluation / "log.txt"
    return evaluation if evaluation.exists() and state and state.status != "training" else job.run.log


def _seconds_left(job: CellJob, state: CellState, updates: int) -> float | None:
    """Of training, when it goes on as since its start; None before the first update of this attempt."""
    if state.began is None:
        return None
    written = datetime.fromtimestamp(job.run.updates.stat().st_mtime, UTC)
    seconds = (written - datetime.fromisoformat(state.began)).total_seconds()
    made = updates - state.began_at_update
    if seconds <= 0 or made <= 0:
        return None
    return round((job.protocol.update.updates - updates) * seconds / made, 1)


def table(facts: Iterable[dict[str, Any]]) -> Table:
    """One row a cell."""
    found = Table(*COLUMNS, box=None, pad_edge=False)
    for fact in facts:
        found.add_row(*(escape(text) for text in _row(fact)))
    return found


def _row(fact: dict[str, Any]) -> tuple[str, ...]:
    left = fact["seconds_left"]
    return (
        fact["cell"],
        fact["status"],
        _progress(fact),
        "" if fact["score"] is None else f"{fact['score']:.3f}",
        "" if left is None else str(timedelta(seconds=round(left))),
        _word(fact),
    )


def _progress(fact: dict[str, Any]) -> str:
    if fact["status"] == "evaluating":
        return f"{fact['responses']}/{fact['responses_in_all']} responses"
    return f"{fact['updates']}/{fact['updates_in_all']} updates"


def _word(fact: dict[str, Any]) -> str:
    """Why it is so; of a cell that has failed, with its log."""
    word, log = fact["detail"] or "", fact["log"]
    return f"{word} (log: {log})" if fact["status"] == "failed" and log and log not in word else word


def _looks(jobs: Sequence[CellJob], every: float) -> Iterator[list[dict[str, Any]]]:
    """The facts, again and again, until all cells have ended: in two looks, for a failed one may be tried again."""
    ended = False
    while True:
        facts = list(map(cell_facts, jobs))
        yield facts
        before, ended = ended, all(fact["status"] in ENDED for fact in facts)
        if before and ended:
            return
        time.sleep(every)


def _draw(console: Console, looks: Iterator[list[dict[str, Any]]]) -> None:
    with Live(console=console, auto_refresh=False) as live:
        for facts in looks:
            live.update(table(facts), refresh=True)


def _print_changes(looks: Iterator[list[dict[str, Any]]], as_json: bool) -> None:
    said: dict[str, dict[str, Any]] = {}
    for facts in looks:
        for fact in facts:
            if said.get(fact["cell"]) != fact:
                said[fact["cell"]] = fact
                typer.echo(json.dumps(fact) if as_json else "  ".join(filter(None, _row(fact))))
