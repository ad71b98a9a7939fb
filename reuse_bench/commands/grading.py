"""`reuse-bench grade`: the two graders from the command line, and their audit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from methods.errors import UserError
from reuse_bench.commands.grading_rates import markdown

if TYPE_CHECKING:
    from tasks.grading import GradeRequest
    from tasks.grading.audit import FormRow, Probe, Row

EXIT_INTERRUPTED = 3
_CHUNK = 4096  # lines graded at once
_FIELDS = {"gold": True, "response": True, "task": False, "finished": False}
_LONGEST = 86_400.0  # seconds for one answer
_SHOWN = 40  # verdicts against expectation that are listed


def register(app: typer.Typer) -> None:
    """Add the command of this group."""
    app.command("grade")(grade)


def grade(
    file: Annotated[
        Path | None,
        typer.Argument(help="JSON lines with gold, response and perhaps task; otherwise standard input."),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Audit both graders on rewritten and changed golds, by set and kind.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Data for the audit; otherwise REUSE_BENCH_DATA, or the cache."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Grading processes; otherwise one a processor.")] = None,
    timeout: Annotated[float, typer.Option(min=0.01, help="Processor seconds for each grader on each answer.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the audit as docs/grading-rates.md.")] = False,
) -> None:
    r"""Judge answers by both graders, one JSON line a verdict.

    Reads {"gold": ..., "response": ..., "task": ...} and prints {"extracted", "published", "audited", "reason"} in
    the same order. A malformed line is named on standard error; the others are graded, and the exit code is 1.
    """
    from tasks.grading import GraderUnavailable

    if timeout > _LONGEST:
        raise UserError(f"--timeout {timeout}: give at most {_LONGEST:g} seconds")
    if audit and file is not None:
        raise UserError(f"{file}: grade --audit makes its own answers: leave out the file, or --audit")
    try:
        if audit:
            good = _audit(data_dir, workers, timeout, "json" if as_json else "markdown" if as_markdown else "text")
        elif file is None or str(file) == "-":
            if sys.stdin is None:
                raise UserError("standard input is closed: name a file with JSON lines, or pipe them in")
            good = _grade_lines(sys.stdin.buffer, "standard input", workers, timeout)
        else:
            good = _grade_file(file, workers, timeout)
    except GraderUnavailable as caught:
        from harness.provenance import install_stack

        raise UserError(f"{caught}: {install_stack()}") from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if not good:
        raise typer.Exit(1)


def _grade_file(file: Path, workers: int | None, timeout: float) -> bool:
    try:
        with file.open("rb") as lines:
            return _grade_lines(lines, str(file), workers, timeout)
    except OSError as caught:
        raise UserError(f"{file}: cannot be read ({caught.strerror}): name a file with JSON lines") from None


def _grade_lines(lines: Iterable[bytes], name: str, workers: int | None, timeout: float) -> bool:
    """Grade chunk by chunk, so that any number of lines fits in memory; whether all lines could be read."""
    from tasks.grading import grade_many

    complete = True
    numbered = enumerate(lines, start=1)
    with _bar("grading", None) as advance:
        done = 0
        while chunk := list(islice(numbered, _CHUNK)):
            requests: list[GradeRequest] = []
            for number, line in chunk:
                if not line.strip():
                    continue
                try:
                    requests.append(_request(line))
                except ValueError as caught:
                    complete = False
                    print(f"{name}: line {number}: {caught}", file=sys.stderr)
            grades = grade_many(requests, workers=workers, timeout=timeout, progress=partial(_further, advance, done))
            done += len(requests)
            for one in grades:
                document = {
                    "extracted": one.extracted,
                    "published": one.published,
                    "audited": one.audited,
                    "reason": one.reason,
                }
                print(json.dumps(document))
            sys.stdout.flush()
    return complete


def _further(advance: Callable[[int], None], before: int, count: int) -> None:
    advance(before + count)


def _request(line: bytes) -> GradeRequest:
    """The request of a line.

    Raises:
        ValueError: saying what is wrong with the line.
    """
    from tasks.grading import GradeRequest

    try:
        document: Any = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as caught:
        raise ValueError(f"no JSON ({caught})") from None
    if not isinstance(document, dict):
        raise ValueError("no JSON object")
    if unknown := sorted(set(document) - set(_FIELDS)):
        raise ValueError(f"unknown field {unknown[0]!r}: known are {', '.join(_FIELDS)}")
    for field in ("gold", "response"):
        if not isinstance(document.get(field), str):
            raise ValueError(f"field {field!r} is missing or no text")
    task, finished = document.get("task"), document.get("finished", True)
    if task is not None and not isinstance(task, str):
        raise ValueError("field 'task' is no text")
    if not isinstance(finished, bool):
        raise ValueError("field 'finished' is neither true nor false")
    return GradeRequest(document["gold"], document["response"], task, finished)


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, where that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def _audit(data_dir: Path | None, workers: int | None, timeout: float, form: str) -> bool:
    """Print the audit; whether the audited grader said what it should about every answer."""
    from tasks.datasets import BENCHMARKS, load
    from tasks.grading import audit

    golds = [("examples", gold) for gold in audit.EXAMPLES]
    left_out: list[str] = []
    for task in BENCHMARKS:
        try:
            problems = load(task, data_dir).problems
        except UserError as caught:
            left_out.append(str(caught))
            continue
        golds.extend((task, problem.answer) for problem in problems)
    asked = [probe for gold in golds for probe in (*audit.probes(*gold), *audit.spoiled(*gold))]
    with _bar("grading", len(asked)) as advance:
        grades = audit.run(asked, workers=workers, timeout=timeout, progress=advance)
    rows, forms = audit.rows(asked, grades), audit.forms(asked, grades)
    against = [
        (probe, one)
        for probe, one in zip(asked, grades, strict=True)
        if not audit.as_expected(probe, one.audited) or (probe.form == "own box" and one.published != "right")
    ]
    if form == "json":
        print(json.dumps(_document(rows, forms, against, left_out), indent=1))
    elif form == "markdown":
        print(markdown(rows, forms, against), end="")
        print("\n".join(left_out), file=sys.stderr, end="\n" if left_out else "")
    else:
        _print_audit(rows, forms, against, left_out)
    return all(audit.as_expected(probe, one.audited) for probe, one in against)


def _document(
    rows: list[Row], forms: list[FormRow], against: list[tuple[Probe, Any]], left_out: list[str]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "rows": [asdict(row) for row in rows],
        "forms": [asdict(row) for row in forms],
        "against_expectation": [asdict(probe) | asdict(one) for probe, one in against],
        "left_out": left_out,
    }


def _measures(rows: list[Row]) -> Table:
    """One line for each set and kind, and one for all: the share of verdicts as expected by each grader."""
    from tasks.grading.audit import MEASURES

    title = "Verdicts as expected, published / audited, in per cent"
    table = Table("set", "kind", title=title, title_justify="left")
    for heading in ("answers", *MEASURES, "errors"):
        table.add_column(heading, justify="right")

    def add(task: str, kind: str, counted: list[Row]) -> None:
        cells = []
        for measure in MEASURES:
            of = [row for row in counted if row.measure == measure]
            total = sum(row.probes for row in of)
            shares = (sum(row.published for row in of), sum(row.audited for row in of))
            cells.append(" / ".join(f"{100 * share / total:.1f}" for share in shares) if total else "")
        errors = f"{sum(row.published_errors for row in counted)} / {sum(row.audited_errors for row in counted)}"
        table.add_row(task, kind, str(sum(row.probes for row in counted)), *cells, errors)

    for task in dict.fromkeys(row.task for row in rows):
        of_task = [row for row in rows if row.task == task]
        for kind in dict.fromkeys(row.kind for row in of_task):
            add(task, kind, [row for row in of_task if row.kind == kind])
        add(task, "all", of_task)
        table.add_section()
    add("all", "all", rows)
    return table


def _print_audit(rows: list[Row], forms: list[FormRow], against: list[tuple[Probe, Any]], left_out: list[str]) -> None:
    console = Console(soft_wrap=True)
    console.print(_measures(rows))
    missed = Table("kind", "form", "should be", title="What the published grader misses", title_justify="left")
    missed.add_column("of", justify="right")
    missed.add_column("missed", justify="right")
    for form in forms[:_SHOWN]:
        if form.published < form.probes:
            count = str(form.probes - form.published)
            missed.add_row(form.kind, form.form, "right" if form.right else "wrong", str(form.probes), count)
    console.print(missed)
    for probe, one in against[:_SHOWN]:
        console.print(
            f"{probe.task}, {probe.form}: gold {probe.gold!r}, answer {probe.answer!r}: published {one.published}, "
            f"audited {one.audited}" + (f" ({one.reason})" if one.reason else ""),
            markup=False,
            highlight=False,
        )
    if len(against) > _SHOWN:
        console.print(f"and {len(against) - _SHOWN} more: see --json", markup=False)
    for sentence in left_out:
        console.print(f"left out: {sentence}", markup=False, highlight=False)
