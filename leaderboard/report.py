"""A protocol's results as one Markdown document: tables, intervals, claims, and what the updates did.

Every number comes from the records; the words around them are fixed. ``docs/tiny-results.md`` is made by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from harness.curves import check_diagnostics, read_updates
from harness.records import Record, TrainingSummary, record_folder
from leaderboard import claims, statistics, tables
from methods.diagnostics import over_updates, share_below
from methods.errors import UserError

ORDER = ("reinforce", "grpo", "gspo", "vespo", "respo")
"""Methods in the paper's order, after the control; others follow by name."""
MEASURES = ("early", "late", "mean")
LOW, HIGH = -1.0, 1.0
"""log W that counts as drift: the policy has become e times less, or more, likely to write the response."""


def report(results: tables.Results, protocol: str, command: str, control: str | None = None) -> str:
    """The document.

    Args:
        results: the records of a store.
        protocol: the protocol that is reported.
        command: how this document is made, to be named in it.
        control: a protocol whose runs were rewarded at random.

    Raises:
        UserError: there are no records of the protocol, or their curves are missing or damaged.
    """
    chosen = _Chosen(results, protocol)
    parts = [
        f"# Results: {protocol}",
        f"Written from the records by `{command}`: rerun it, do not edit this page. Scores are in per cent; brackets "
        "hold 95 % intervals, which for several seeds are of a new seed and new problems "
        "([statistics.md](statistics.md)). The marks are those of the pages: ★ is best and told apart "
        "from every other method at its N (paired by problem, Holm-corrected), ≈ cannot be told from the highest, as "
        "a single run never can; no mark where the data separate nothing, or another is better. A run that has "
        "collapsed has no final checkpoint. Its method's means are over the others, which flatters the method: they "
        "say of how many runs they are, and are not ranked.",
        "## What was run",
        _runs(chosen),
        "## Training",
        "Mean score of the rollout batches, in the protocol's early and late windows and over the whole run.",
        _training(chosen),
        "## Held-out scores of the final checkpoints",
        *_heldout(chosen),
        "## The paper's claims, asked of these records",
        "The same rules hold on the paper's own tables. Here a verdict uses intervals: `inconclusive` is what three "
        "seeds allow to say where the interval of a difference covers zero.",
        _claims(chosen),
        "## Importance weights",
        f"How far the policy has moved when a response is used, over all policy updates and seeds. Drift is the share "
        f"of responses with |log W| above {HIGH:g}, among those with an advantage other than 0: where all responses to "
        "a prompt are right, or all wrong, none of them moves the policy. The effective sample size is a share of the "
        "mini-batch. Clipped is the share of tokens whose coefficient is below 1 % of its on-policy value.",
        _drift(chosen),
        f"Do good responses that the policy is forgetting (positive advantage, log W below {LOW:g}) starve, and do bad "
        f"ones that it over-generates (negative advantage, log W above {HIGH:g}) dominate? The table puts the share of "
        "such responses beside the share of the gradient coefficients' mass that they get: mass below the share is "
        "starving, mass above it is dominating. In the paper, on Qwen3-1.7B at N = 32 over the first 512 updates, "
        "22.8 % of the positive responses lay in that low tail, and got 38.5 % of the mass under ReSPO and 15.5 % "
        "under VESPO.",
        _tails(chosen),
        *_tail_sentences(chosen),
    ]
    if control:
        parts += ["## Control: a random reward", *_control(results, chosen, control)]
    parts += [
        "## What this says, and what it does not",
        _LIMITS if chosen.small else "These are results under this protocol only.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_LIMITS = (
    "The model has 76,000 parameters and adds digits; its responses have about 30 tokens. That N updates on one "
    "rollout batch make the policy drift, that the losses treat drifted responses as their formulas say, and that "
    "differences between methods are measured with their uncertainty: these carry over, because they are properties "
    "of the losses and of the instrument. Which method scores higher does not: a clip range per sequence that is meant "
    "for thousands of tokens is narrower than the rounding of bfloat16 here ([tiny-protocol.md](tiny-protocol.md)), no "
    "method was tuned, and long chains of thought, where length makes sequence weights extreme, do not occur. Nothing "
    "here confirms or refutes a claim about large models."
)


@dataclass(frozen=True)
class _Chosen:
    """The records of one protocol, in its own order of methods."""

    results: tables.Results
    protocol: str

    def __post_init__(self) -> None:
        if not self.found.records:
            present = sorted({record.protocol.id for _, record in self.results.records})
            raise UserError(
                f"{self.results.store}: there are no records of protocol {self.protocol}; there are some of "
                f"{', '.join(present) or 'none'}"
            )

    @cached_property
    def found(self) -> tables.Results:
        """The records themselves."""
        mine = tuple(entry for entry in self.results.records if entry[1].protocol.id == self.protocol)
        return tables.Results(self.results.store, mine)

    @property
    def small(self) -> bool:
        """Whether it is the tiny protocol of this project."""
        return self.protocol == "tiny"

    @cached_property
    def trained(self) -> dict[tuple[str, int], list[Record]]:
        """(method, N) -> its records, in order."""
        cells: dict[tuple[str, int], list[Record]] = {}
        for _, record in self.found.records:
            if record.method and record.reuse:
                cells.setdefault((record.method.name, record.reuse), []).append(record)
        return dict(sorted(cells.items(), key=lambda item: (item[0][1], _rank(item[0][0]))))

    @cached_property
    def titles(self) -> dict[str, str]:
        """Name of a method -> its title."""
        titles = {record.method.name: record.method.title for _, record in self.found.records if record.method}
        return {tables.BASE: "base model"} | titles

    @cached_property
    def methods(self) -> list[str]:
        """Names of the methods, in order."""
        return sorted({method for method, _ in self.trained}, key=_rank)

    @cached_property
    def reuses(self) -> list[int]:
        """The reuse ratios N, ascending."""
        return sorted({reuse for _, reuse in self.trained})

    @cached_property
    def runs(self) -> dict[tuple[str, int], list[list[dict[str, Any]]]]:
        """(method, N) -> for each of its runs, the lines of its updates."""
        paths = {record.id: path for path, record in self.found.records}
        return {
            cell: [
                _lines(record_folder(paths[record.id]) / record.training.curve.path, record.training)
                for record in records
                if record.training
            ]
            for cell, records in self.trained.items()
        }

    @cached_property
    def updates(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """(method, N) -> the lines of all its runs."""
        return {cell: [line for run in runs for line in run] for cell, runs in self.runs.items()}


def _lines(curve: Path, stated: TrainingSummary) -> list[dict[str, Any]]:
    lines = read_updates(curve, stated)
    for line in lines:
        check_diagnostics(line, curve)
    return lines


def _rank(method: str) -> tuple[int, str]:
    return (ORDER.index(method) if method in ORDER else len(ORDER), method)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---", *("---:" for _ in columns[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None or value != value else f"{100 * value:.{digits}f}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _with_interval(row: Mapping[str, Any], block: Sequence[Mapping[str, Any]] = ()) -> str:
    if row["score"] != row["score"]:
        return "collapsed" if row["collapsed"] else "failed" if row["failed"] else ""
    mark = {"best": " ★", "tied": " ≈", "": ""}[tables.mark(row, block)]
    interval = f" [{_percent(row['low'])}, {_percent(row['high'])}]" if row["low"] == row["low"] else ""
    return f"{_percent(row['score'])}{mark}{interval}"


def _runs(chosen: _Chosen) -> str:
    records = [record for _, record in chosen.found.records]
    states = {status: sum(record.status == status for record in records) for status in ("done", "collapsed", "failed")}
    trained = [record for record in records if record.method]
    seeds = sorted({record.seeds.run for record in trained})
    commits = sorted({(record.provenance.commit or "unknown")[:12] for record in records})
    machines = sorted({_machine(record) for record in records})
    training = sum(record.cost.training_seconds for record in trained)
    evaluation = sum(record.cost.evaluation_seconds for record in records)
    retried = sum(any(attempt.first_update > 1 for attempt in record.attempts) for record in trained)
    updates = {record.training.updates for record in trained if record.training and record.status == "done"}
    return (
        f"{len(trained)} cells ({len(chosen.methods)} methods, N = {', '.join(map(str, chosen.reuses))}, seeds "
        f"{', '.join(map(str, seeds))}) and {len(records) - len(trained)} base model: "
        f"{', '.join(f'{count} {status}' for status, count in states.items())}. Each trained cell made "
        f"{' or '.join(map(str, sorted(updates)))} policy updates. {retried} cells were interrupted and continued from "
        f"a checkpoint. Divisions: {', '.join(sorted({record.division for record in records}))}. Code: "
        f"{', '.join(commits)}. Machine: {' or '.join(machines)}. In all {training / 3600:.1f} hours of training and "
        f"{evaluation / 3600:.1f} hours of evaluation, added up over cells that ran side by side."
    )


def _machine(record: Record) -> str:
    hardware = record.provenance.hardware
    gpus = "" if hardware["gpus"] else ", no GPU"
    return f"{hardware['cores']} cores, {hardware['memory_gib']:.0f} GiB{gpus}"


def _training(chosen: _Chosen) -> str:
    table = tables.training(chosen.found)
    rows = []
    for reuse in chosen.reuses:
        for method in chosen.methods:
            here = table[(table["reuse"] == reuse) & (table["method"] == method)]
            by_measure = {row["measure"]: row for row in tables.as_rows(here)}
            if by_measure:
                shown = [by_measure[measure] for measure in MEASURES]
                cells = [
                    _with_interval(row, _block(table, row, "measure")) + _in_brackets(_behind(row)) for row in shown
                ]
                label = chosen.titles[method] + _in_brackets(_endings(by_measure["mean"]))
                rows.append([f"N = {reuse}, {label}", *cells])
    return _table(["", "early", "late", "whole run"], rows)


def _behind(row: Mapping[str, Any]) -> list[str]:
    """Of how many runs a mean is, where some have none to give."""
    return [f"{row['seeds']} of {row['runs']} runs"] if 0 < row["seeds"] < row["runs"] else []


def _endings(row: Mapping[str, Any]) -> list[str]:
    """How many runs of a row ended badly, where some did."""
    return [f"{row[status]} {status}" for status in ("collapsed", "failed") if row[status]]


def _in_brackets(parts: Sequence[str]) -> str:
    return f" ({', '.join(parts)})" if parts else ""


def _heldout(chosen: _Chosen) -> list[str]:
    table = tables.heldout(chosen.found)
    tasks = [*chosen.found.tasks[chosen.protocol], tables.MACRO]
    parts = ["pass@1 (mean over the samples of a problem), the average of the tasks last."]
    base = table[table["method"] == tables.BASE]
    for reuse in chosen.reuses:
        here = table[table["reuse"] == reuse]
        rows = [_row(chosen, base, tables.BASE, tasks)] if len(base) else []
        rows += [_row(chosen, here, method, tasks) for method in chosen.methods if (here["method"] == method).any()]
        names = [task.replace("tiny_sum", "sum of ").replace("_", " ") for task in tasks]
        parts += [f"### N = {reuse}", _table(["", *names], rows)]
    return parts


def _block(table: pd.DataFrame, row: Mapping[str, Any], column: str) -> list[dict[str, Any]]:
    """The rows that a row is compared with."""
    return tables.as_rows(table[(table["reuse"] == row["reuse"]) & (table[column] == row[column])])


def _row(chosen: _Chosen, table: pd.DataFrame, method: str, tasks: Sequence[str]) -> list[str]:
    by_task = {row["task"]: row for row in tables.as_rows(table[table["method"] == method])}
    first = next(iter(by_task.values()))
    label = chosen.titles[method] + _in_brackets([*_behind(first), *_endings(first)])
    known = [by_task.get(task) for task in tasks]
    return [label, *(_with_interval(row, _block(table, row, "task")) if row else "" for row in known)]


def _claims(chosen: _Chosen) -> str:
    outcomes = claims.evaluate(claims.shipped(), claims.Reproduced(chosen.found))
    rows = [[outcome.claim.statement, f"**{outcome.verdict}**", outcome.summary] for outcome in outcomes]
    lines = ["| claim | verdict | figures |", "| --- | --- | --- |"]
    return "\n".join([*lines, *("| " + " | ".join(" ".join(cell.split()) for cell in row) + " |" for row in rows)])


def _above(lines: Sequence[Mapping[str, Any]], sign: str) -> dict[str, float | None]:
    below = share_below(lines, HIGH, sign)
    return {name: None if value is None else 1 - value for name, value in below.items()}


def _drift(chosen: _Chosen) -> str:
    rows = []
    for (method, reuse), lines in chosen.updates.items():
        if not lines:
            continue
        facts = over_updates(lines)
        counts = [facts["log_weight"][sign]["responses"] for sign in ("positive", "negative")]
        far = [
            (share_below(lines, LOW, sign)["responses"] or 0.0) + (_above(lines, sign)["responses"] or 0.0)
            for sign in ("positive", "negative")
        ]
        drift = sum(count * share for count, share in zip(counts, far, strict=True)) / max(1, sum(counts))
        rows.append(
            [
                f"N = {reuse}, {chosen.titles[method]}",
                _percent(drift),
                _percent(facts["ess"]["mean"]),
                _percent(facts["clip_fraction"]),
                _number(facts["gradient_norm"]["mean"], 2),
                _number(facts["engine_gap"], 4),
            ]
        )
    columns = ["", "drift, %", "effective sample size, %", "clipped, %", "gradient norm", "trainer to engine, nats"]
    return _table(columns, rows)


def _tails(chosen: _Chosen) -> str:
    rows = []
    for (method, reuse), lines in chosen.updates.items():
        if lines:
            low, high = share_below(lines, LOW, "positive"), _above(lines, "negative")
            shares = [low["responses"], low["mass"], high["responses"], high["mass"]]
            rows.append([f"N = {reuse}, {chosen.titles[method]}", *map(_percent, shares)])
    columns = ["", "A > 0 and log W < -1: responses, %", "their mass, %"]
    return _table([*columns, "A < 0 and log W > 1: responses, %", "their mass, %"], rows)


def _tail_sentences(chosen: _Chosen) -> list[str]:
    """At the largest N, where policies drift most."""
    largest = max(chosen.reuses, default=0)
    ratios: dict[str, list[float]] = {}
    for method in chosen.methods:
        shares = [share_below(lines, LOW, "positive") for lines in chosen.runs.get((method, largest), [])]
        found = [one["mass"] / one["responses"] for one in shares if one["responses"] and one["mass"] is not None]
        if found:
            ratios[chosen.titles[method]] = found
    return [tail_sentence(largest, ratios)] if ratios else []


def tail_sentence(reuse: int, ratios: Mapping[str, Sequence[float]]) -> str:
    """What the methods do with good responses that the policy is forgetting, in words.

    Args:
        reuse: N.
        ratios: title of a method -> for each of its runs, the tail's share of the mass over its share of the
            responses; 1 is an equal share.
    """
    shown: list[str] = []
    starves: list[str] = []
    gets_more: list[str] = []
    unsure: list[str] = []
    for title, values in ratios.items():
        mean = fmean(values)
        half = float(statistics.t_half_width(stdev(values), len(values))) if len(values) > 1 else math.inf
        shown.append(f"{title} {mean:.2f}" + (f" [{mean - half:.2f}, {mean + half:.2f}]" if half < math.inf else ""))
        (starves if mean + half < 1 else gets_more if mean - half > 1 else unsure).append(title)
    told = (
        ("it starves under", starves),
        ("it gets more than its share under", gets_more),
        ("it cannot be told from an equal share under", unsure),
    )
    verdicts = [f"{words} {_listed(names)}" for words, names in told if names]
    return (
        f"Mass for each response in the positive low tail at N = {reuse}, where 1 is an equal share (mean over runs, "
        f"95 % interval over seeds): {', '.join(shown)}. So here {'; '.join(verdicts)}. With a positive advantage a "
        "clip cuts only ratios that have grown: of whole responses (GSPO) none in this tail, of single tokens (GRPO) "
        "some. What it cuts elsewhere raises the tail's share."
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _control(results: tables.Results, chosen: _Chosen, control: str) -> list[str]:
    other = _Chosen(results, control)
    base = tables.heldout(chosen.found)
    base = base[(base["method"] == tables.BASE) & (base["task"] == tables.MACRO)]
    rows = [["base model", _with_interval(row)] for row in tables.as_rows(base)]
    table = tables.heldout(other.found)
    for row in tables.as_rows(table[table["task"] == tables.MACRO]):
        label = f"random reward, N = {row['reuse']}, {other.titles[row['method']]}, {row['done']} seeds"
        rows.append([label, _with_interval(row)])
    return [
        f"Protocol `{control}` differs in one thing: a coin decides whether a response is called right. What is gained "
        "there was not taught by the reward.",
        _table(["", "macro average"], rows),
    ]
