"""The tables of a store as files for people who want to query, and what a change of a store does."""

from __future__ import annotations

import html
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.curves import is_number, read_updates
from harness.records import Record, alone_in, record_folder
from harness.scoring import read_samples
from harness.verification.checked import Finding
from harness.verify import Report
from leaderboard import published, tables
from methods.errors import UserError

FORMATS = ("csv", "parquet", "sqlite", "duckdb")
DATABASE = "reuse-bench"

DESCRIPTIONS = {
    "runs": "one row a record: what was run, how it ended, training scores, cost",
    "scores": "one row a record and benchmark (and macro average), by grader",
    "heldout": "one row a cell and benchmark: score, 95 % interval, tie group, published value, verdict, by grader",
    "training": "one row a cell and training measure: score with interval, published value and verdict",
    "comparisons": "one row a pair of methods, N and benchmark: paired difference with interval, p and Holm-adjusted p",
    "stability": "one row a model and N: how far two halves of the problems give the same order of methods, by grader",
    "problems": "one row a record, benchmark and problem: right samples under both graders",
    "updates": "one row a record and policy update: the numbers of updates.jsonl",
    "samples": "one row a sample: response, verdicts, seed",
    "published_heldout": "held-out numbers as the paper printed them: reference, not reproduced",
    "published_training": "training scores as the paper printed them: reference, not reproduced",
}
_COLUMN = re.compile(r"[a-z][a-z0-9_]*")
"""Names that every format takes, and no two of which a database takes for one."""


def export_tables(results: tables.Results, *, samples: bool = False) -> dict[str, pd.DataFrame]:
    """All tables by name, in the order of `DESCRIPTIONS`; ``samples`` adds the largest one."""
    graders: tuple[tables.Grader, ...] = ("published", "audited")

    def by_grader(make: Callable[..., pd.DataFrame]) -> pd.DataFrame:
        parts = [make(results, grader=grader).assign(grader=grader) for grader in graders]
        return pd.concat(parts, ignore_index=True)

    found = {
        "runs": tables.runs(results),
        "scores": by_grader(tables.scores),
        "heldout": _flat(by_grader(tables.heldout)),
        "training": _flat(tables.training(results)),
        "comparisons": by_grader(tables.comparisons),
        "stability": by_grader(tables.stability),
        "problems": _problems(results),
        "updates": _updates(results),
    }
    if samples:
        found["samples"] = _samples(results)
    return found | {"published_heldout": published.heldout(), "published_training": published.training()}


def _flat(table: pd.DataFrame) -> pd.DataFrame:
    """Record ids as one text, which every format can hold."""
    return table.assign(records=[" ".join(ids) for ids in table["records"]])


def _own(record: Record) -> dict[str, Any]:
    return {
        **dict(zip(tables.CELL, tables.cell_key(record), strict=True)),
        "seed": record.seeds.run,
        "record": record.id,
    }


def _problems(results: tables.Results) -> pd.DataFrame:
    parts = []
    for _, record in results.records:
        for task, result in record.evaluation.items():
            parts.append(
                pd.DataFrame(
                    {
                        **_own(record),
                        "task": task,
                        "problem": result.problem_ids,
                        "samples": result.sampling.samples_per_problem,
                        **{f"right_{grader}": counts for grader, counts in result.right_per_problem.items()},
                    }
                )
            )
    columns = [*tables.CELL, "seed", "record", "task", "problem", "samples", "right_published", "right_audited"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _updates(results: tables.Results) -> pd.DataFrame:
    parts = []
    for path, record in results.records:
        if record.training is None:
            continue
        lines = read_updates(record_folder(path) / record.training.curve.path, record.training)
        numbers = [
            {
                key: value
                for key, value in line.items()
                if _COLUMN.fullmatch(key) and (value is None or is_number(value))
            }
            for line in lines
        ]
        if numbers:
            parts.append(pd.DataFrame(numbers).assign(**_own(record)))
    columns = [*tables.CELL, "seed", "record"]
    if not parts:
        return pd.DataFrame(columns=columns)
    table = pd.concat(parts, ignore_index=True)
    return table[[*columns, *(name for name in table.columns if name not in columns)]]


def _samples(results: tables.Results) -> pd.DataFrame:
    parts = []
    for path, record in results.records:
        for task, result in record.evaluation.items():
            rows = read_samples(record_folder(path) / result.samples.path)
            own = {key: value for key, value in _own(record).items() if key != "seed"}
            parts.append(rows.assign(**own, task=task, run_seed=record.seeds.run))
    columns = [*(name for name in tables.CELL), "run_seed", "record", "task"]
    if not parts:
        return pd.DataFrame(columns=columns)
    table = pd.concat(parts, ignore_index=True)
    return table[[*columns, *(name for name in table.columns if name not in columns)]]


def write(found: Mapping[str, pd.DataFrame], output: Path, formats: Sequence[str]) -> list[Path]:
    """Write every table in every format: one file a table, or one database for all.

    A file appears under its name only when it is complete.

    Raises:
        UserError: an unknown format, or DuckDB is not installed.
    """
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"--format {name}: is none of {', '.join(FORMATS)}")
    output.mkdir(parents=True, exist_ok=True)
    with alone_in(output):
        return _write(found, output, dict.fromkeys(formats))


def _write(found: Mapping[str, pd.DataFrame], output: Path, formats: Iterable[str]) -> list[Path]:
    written = []
    for name in formats:
        if name == "csv":
            written += [_replace(output / f"{key}.csv", _to_csv(table)) for key, table in found.items()]
        elif name == "parquet":
            written += [_replace(output / f"{key}.parquet", _to_parquet(table)) for key, table in found.items()]
        elif name == "sqlite":
            written.append(_replace(output / f"{DATABASE}.sqlite", lambda path: _to_sqlite(found, path)))
        else:
            written.append(_replace(output / f"{DATABASE}.duckdb", lambda path: _to_duckdb(found, path)))
    return written


def _to_csv(table: pd.DataFrame) -> Callable[[Path], None]:
    # Shortest digits that give the number back: reading the file gives the same floats.
    return lambda path: table.to_csv(path, index=False, lineterminator="\n")


def _to_parquet(table: pd.DataFrame) -> Callable[[Path], None]:
    return lambda path: table.to_parquet(path, index=False)


def _replace(path: Path, make: Callable[[Path], Any]) -> Path:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        make(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _to_sqlite(found: Mapping[str, pd.DataFrame], path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        with connection:
            for name, table in found.items():
                table.to_sql(name, connection, index=False)
            about = pd.DataFrame(list(DESCRIPTIONS.items()), columns=["name", "description"])
            about[about["name"].isin(list(found))].to_sql("tables", connection, index=False)
    finally:
        connection.close()


def _to_duckdb(found: Mapping[str, pd.DataFrame], path: Path) -> None:
    try:
        import duckdb
    except ImportError as error:
        raise UserError(
            "--format duckdb: the package duckdb is missing: `pip install duckdb`, or use sqlite"
        ) from error
    connection = duckdb.connect(str(path))
    try:
        for name, table in found.items():
            connection.register("incoming", table)
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM incoming')
            connection.unregister("incoming")
    finally:
        connection.close()


def changes(old: tables.Results, new: tables.Results, report: Report) -> str:
    """What a change of a store does, as Markdown: its records, what verification says, and the macro averages.

    Everything that comes from a record is escaped: it may have been written by a stranger.
    """
    before = {path.relative_to(old.store).as_posix(): record for path, record in old.records}
    after = {path.relative_to(new.store).as_posix(): record for path, record in new.records}
    lines = ["### Records", ""]
    rows = []
    for name in sorted({*before, *after}):
        if name not in before:
            rows.append(("added", name, after[name]))
        elif name not in after:
            rows.append(("removed", name, before[name]))
        elif before[name].id != after[name].id:
            rows.append(("changed", name, after[name]))
    lines += (
        _table(
            ("change", "record", "status", "division", "commit"),
            [(kind, name, r.status, r.division, (r.provenance.commit or "")[:12]) for kind, name, r in rows],
        )
        if rows
        else ["None."]
    )
    lines += ["", findings(report, {name for _, name, _ in rows}), "### Scores", ""]
    moved = _moved(old, new)
    lines += _table(("cell", "before", "after"), moved) if moved else ["No average changes."]
    return "\n".join(lines) + "\n"


def findings(report: Report, records: set[str] | None = None) -> str:
    """What verification says, as Markdown; what could not be checked, for ``records`` or all of them."""
    lines = ["### Verification", ""]
    errors = [finding for finding in report.findings if finding.level == "error"]
    if errors:
        lines += _table(("file", "field", "what differs"), [(f.path, f.field, f.message) for f in errors])
    else:
        lines.append(f"{report.records} records, {report.files} files, {report.samples} samples: nothing differs.")
    # The same gap in many records is one line.
    notes = Counter(
        (f.field, f.message) for f in report.findings if f.level == "note" and (records is None or _of(f, records))
    )
    if notes:
        rows = [(str(count), name, message) for (name, message), count in notes.items()]
        lines += ["", "Not checked:", "", *_table(("records", "field", "what"), rows)]
    return "\n".join(lines) + "\n"


def _of(finding: Finding, names: set[str]) -> bool:
    return any(finding.path.startswith(name.removesuffix(".json")) for name in names)


def _moved(old: tables.Results, new: tables.Results) -> list[tuple[str, str, str]]:
    """Cells whose average over all benchmarks is another one, with interval and seeds, in percent."""
    sides: list[dict[str, str]] = []
    for results in (old, new):
        table = tables.heldout(results)
        shown = {}
        for row in tables.as_rows(table):
            single = len(results.tasks[row["protocol"]]) == 1
            if row["task"] == published.MACRO or single:
                key = f"{row['protocol']} ({row['division']}) {row['model']} {_cell_name(row)}"
                score, low, high = (f"{100 * row[name]:.1f}" for name in ("score", "low", "high"))
                text = f"{score} ({low} to {high}), {row['seeds']} seed{'s' if row['seeds'] != 1 else ''}"
                shown[key] = text if row["seeds"] else "no evaluated run"
        sides.append(shown)
    first, second = sides
    return [
        (key, first.get(key, ""), second.get(key, ""))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    ]


def _cell_name(row: dict[str, Any]) -> str:
    return tables.BASE if row["method"] == tables.BASE else f"N = {row['reuse']} {row['method']}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return lines + [f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in rows]


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]()#+!|~@:])", r"\\\1", html.escape(flat, quote=False))
