"""Tables of the pages: one description, printed as HTML by a template and as CSV, JSON and LaTeX here."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from leaderboard.charts import clean

Mark = Literal["", "best", "tied"]
Tone = Literal["", "good", "warn", "bad", "quiet"]

#: Views of a score: which grader, and which measure. The first is what shows without a choice.
VIEWS = ("published-1", "published-k", "audited-1", "audited-k")


@dataclass(frozen=True)
class Cell:
    """One entry: what it shows, what it sorts and exports by, and the record it leads to.

    ``spread`` is its interval; ``note`` says which runs of it ended badly. ``views`` holds one cell for each of `VIEWS`
    where graders and measures can be chosen.
    """

    text: str
    value: float | int | str | None = None
    low: float | None = None
    high: float | None = None
    spread: str = ""
    note: str = ""
    href: str = ""
    mark: Mark = ""
    tone: Tone = ""
    tip: str = ""
    views: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Where the views of the cell lead: all to the same runs."""
        return next((cell.href for cell in self.views.values() if cell.href), "")

    @property
    def sort_key(self) -> str:
        """What a column is sorted by; empty where the text says it."""
        if self.views or self.value is None or str(self.value) == self.text:
            return ""
        if not isinstance(self.value, float):
            return str(self.value)
        plain = self.text.replace(",", "").replace("−", "-").lstrip("+")
        try:
            return "" if abs(float(plain) - self.value) <= 0.0500001 else f"{self.value:.6g}"
        except ValueError:
            return f"{self.value:.6g}"

    @property
    def exported(self) -> float | int | str | None:
        """What a download holds: the value; the text only where the cell never had one."""
        if self.value is None:
            return None if self.text in ("–", "") else self.text
        return _rounded(self.value) if isinstance(self.value, float) else self.value


@dataclass(frozen=True)
class Column:
    """One column. ``optional`` ones can be switched off; ``number`` ones are set flush right."""

    key: str
    label: str
    number: bool = True
    optional: bool = False
    tip: str = ""
    href: str = ""


@dataclass(frozen=True)
class Row:
    """One row: cells in the order of the columns. ``text`` is what the filter looks at."""

    cells: Sequence[Cell]
    text: str = ""
    reference: bool = False


@dataclass(frozen=True)
class Group:
    """Rows under one heading, for example all methods at one reuse ratio."""

    label: str
    rows: Sequence[Row]
    key: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption, groups of rows, and the name that its downloads carry."""

    name: str
    caption: str
    columns: Sequence[Column]
    groups: Sequence[Group]
    group_label: str = ""
    notes: Sequence[str] = ()
    switches: bool = False

    @property
    def rows(self) -> list[Row]:
        """All rows of all groups."""
        return [row for group in self.groups for row in group.rows]


def _rounded(value: float | None) -> float | None:
    """Eight digits, so that rounding errors of a machine do not show; None where JSON has no number for it."""
    known = clean(value)
    return None if known is None else float(f"{known:.8g}")


def _header(table: Table) -> list[tuple[str, int, str, str]]:
    """(name, column, view, part) of every exported column."""
    out: list[tuple[str, int, str, str]] = []
    for index, column in enumerate(table.columns):
        cells = [row.cells[index] for row in table.rows]
        views = [view for view in VIEWS if any(view in cell.views for cell in cells)] or [""]
        for view in views:
            shown = [cell.views.get(view, cell) if view else cell for cell in cells]
            name = f"{column.key}.{view}" if view else column.key
            out.append((name, index, view, "value"))
            if any(cell.low is not None for cell in shown):
                out += [(f"{name}.low", index, view, "low"), (f"{name}.high", index, view, "high")]
    return out


def _entry(row: Row, index: int, view: str, part: str) -> float | int | str | None:
    cell = row.cells[index]
    if cell.views:
        cell = cell.views.get(view, Cell("–"))
    if part == "value":
        return cell.exported
    return _rounded(cell.low if part == "low" else cell.high)


def to_rows(table: Table, header: Sequence[tuple[str, int, str, str]] | None = None) -> list[dict[str, Any]]:
    """One flat mapping a row, the group first."""
    header = _header(table) if header is None else header
    return [
        ({table.group_label: group.key or group.label} if table.group_label else {})
        | {name: _entry(row, index, view, part) for name, index, view, part in header}
        for group in table.groups
        for row in group.rows
    ]


def _harmless(value: Any) -> Any:
    """A cell that a spreadsheet will not run as a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def to_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> bytes:
    """Rows as CSV (RFC 4180, UTF-8, line feeds), columns in the order of the first row."""
    stream = io.StringIO()
    names = list(columns) if columns is not None else list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row.get(name) is None else _harmless(row[name]) for name in names])
    return stream.getvalue().encode()


def to_json(table: Table, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The table as one JSON document, each row on a line of its own."""
    lines = ",\n".join(json.dumps(row, sort_keys=True, ensure_ascii=False, allow_nan=False) for row in rows)
    named = [json.dumps(text, ensure_ascii=False) for text in (table.caption, table.name)]
    return f'{{"caption": {named[0]},\n"rows": [\n{lines}\n],\n"table": {named[1]}}}\n'.encode()


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "…": r"\ldots{}",
    "\n": " ",
    "\r": " ",
}


def latex(text: object) -> str:
    """``text`` with every character that LaTeX would act on made harmless."""
    return "".join(_LATEX.get(character, character) for character in str(text))


def to_latex(table: Table) -> bytes:
    """The table as booktabs LaTeX, in the view that shows without a choice; the best entry bold."""
    kept = [index for index, column in enumerate(table.columns) if not column.optional]
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{latex(table.caption)}}}",
        f"\\begin{{tabular}}{{{''.join('r' if table.columns[index].number else 'l' for index in kept)}}}",
        "\\toprule",
        " & ".join(latex(table.columns[index].label) for index in kept) + r" \\",
    ]
    for group in table.groups:
        lines.append("\\midrule")
        if group.label:
            lines.append(f"\\multicolumn{{{len(kept)}}}{{l}}{{{latex(group.label)}}} \\\\")
        for row in group.rows:
            entries = []
            for index in kept:
                cell = row.cells[index]
                cell = cell.views.get(VIEWS[0], cell)
                text = latex(cell.text)
                text += "".join(f" {{\\scriptsize {latex(part)}}}" for part in (cell.spread, cell.note) if part)
                entries.append(f"\\textbf{{{text}}}" if cell.mark == "best" else text)
            lines.append(" & ".join(entries) + r" \\")
    lines += ["\\bottomrule", "\\end{tabular}", "\\end{table}", ""]
    return "\n".join(lines).encode()


def files(table: Table) -> Iterable[tuple[str, bytes]]:
    """Name and content of the downloads of a table."""
    header = _header(table)
    rows = to_rows(table, header)
    names = [*([table.group_label] if table.group_label else []), *(name for name, *_ in header)]
    yield f"{table.name}.csv", to_csv(rows, names)
    yield f"{table.name}.json", to_json(table, rows)
    yield f"{table.name}.tex", to_latex(table)
