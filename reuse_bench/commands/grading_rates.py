"""The audit of the graders as a document: docs/grading-rates.md is `reuse-bench grade --audit --markdown`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.grading.audit import FormRow, Probe, Row

_MISSED = 40  # forms that the published grader misses that are listed
_HEAD = """# Rates of the graders

`reuse-bench grade --audit --markdown` printed this page. [Grading](grading.md) says what the five measures are and what
they do not show. Each cell has the published grader, then the audited one: verdicts as they should be, in per cent.
"""


def markdown(rows: Sequence[Row], forms: Sequence[FormRow], against: Sequence[tuple[Probe, Any]]) -> str:
    """The document."""
    parts = [_HEAD]
    for title, key in (
        ("By set", lambda row: (row.task,)),
        ("By kind of gold", lambda row: (row.kind,)),
        ("By set and kind", lambda row: (row.task, row.kind)),
    ):
        parts += [f"## {title}\n", _rates(rows, title.removeprefix("By ").split(" and "), key)]
    parts += ["## What the published grader misses\n", "Most frequent first, of what stands in a closed box.\n"]
    missed = [
        (
            form.kind,
            form.form,
            "right" if form.right else "wrong",
            f"{form.probes:,}",
            f"{form.probes - form.published:,}",
        )
        for form in forms[:_MISSED]
        if form.published < form.probes
    ]
    parts.append(_table(("kind", "form of the answer", "should be", "answers", "missed"), missed))
    parts += ["## Exceptions\n", *_exceptions(against)]
    return "\n".join(parts)


def _rates(rows: Sequence[Row], names: Sequence[str], key: Callable[[Row], tuple[str, ...]]) -> str:
    from tasks.grading.audit import MEASURES

    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    if len(names) == 1:
        groups[("all",)] = list(rows)
    lines = []
    for name, counted in groups.items():
        cells = []
        for measure in MEASURES:
            of = [row for row in counted if row.measure == measure]
            total = sum(row.probes for row in of)
            shares = (sum(row.published for row in of), sum(row.audited for row in of))
            cells.append(" / ".join(_percent(share, total) for share in shares) if total else "")
        errors = f"{sum(row.published_errors for row in counted)} / {sum(row.audited_errors for row in counted)}"
        lines.append((*name, f"{sum(row.probes for row in counted):,}", *cells, errors))
    return _table((*names, "answers", *MEASURES, "errors"), lines)


def _percent(share: int, total: int) -> str:
    """One decimal; 100.0 only when it is all of them, and 0.0 only when it is none."""
    value = round(100 * share / total, 1)
    if share != total:
        value = min(value, 99.9)
    return f"{max(value, 0.1) if share else 0.0:.1f}"


def _table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    names = list(head)
    rule = [
        "---" if name in ("set", "kind", "form of the answer", "kind of gold", "should be") else "---:"
        for name in names
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in (names, rule, *lines))


def _exceptions(against: Sequence[tuple[Probe, Any]]) -> list[str]:
    own = [probe for probe, one in against if probe.form == "own box" and one.published != "right"]
    audited = [(probe, one) for probe, one in against if one.audited != ("right" if probe.right else "wrong")]
    return [
        f"Golds that are not right in their own box in the published grader: {len(own) or 'none'}.\n",
        *(f"- {probe.task}: `{probe.gold}`" for probe in own),
        f"Answers that the audited grader judges against expectation: {len(audited) or 'none'}.\n",
        *(
            f"- {probe.task}, {probe.form}: `{probe.answer}` for `{probe.gold}`: {one.audited}"
            for probe, one in audited
        ),
    ]
