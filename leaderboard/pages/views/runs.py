"""The list of runs, and the page of one: its record, curves, diagnostics, and how to run it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from harness.records import GRADERS, Record
from leaderboard.charts import number
from leaderboard.pages import figures
from leaderboard.pages.boards import Arm, Run, task_title
from leaderboard.pages.cells import (
    board_label,
    macro_average,
    percent_cell,
    share_cell,
    status_cell,
)
from leaderboard.pages.content import Content, Page
from leaderboard.pages.panels import Figure
from leaderboard.pages.tables import Cell, Column, Group, Row, Table
from methods.diagnostics import LOG_WEIGHT_EDGES


def runs_page(content: Content) -> Page:
    """All runs, board by board."""
    made = [run_table(board.runs, f"runs-{board.key}", board_label(board)) for board in content.boards]
    return Page(
        "runs.html",
        "runs.html",
        {"title": "Runs", "section": "runs", "sections": list(zip(content.boards, made, strict=True))},
    )


def run_table(runs: Sequence[Run], name: str, caption: str) -> Table:
    """A row for each run: status, scores, cost, and where its page is."""
    with_gpu = any(run.record.cost.gpu_hours > 0 for run in runs)
    rows = []
    for run in runs:
        record = run.record
        training = record.training
        macro = macro_average(record, run.task_names, GRADERS[0])
        rows.append(
            Row(
                [
                    Cell(run.title, run.title, href=run.page),
                    Cell(str(record.reuse) if record.reuse is not None else "–", record.reuse),
                    Cell(str(record.seeds.run), record.seeds.run),
                    status_cell(Arm(run.method, run.title, record.reuse, (run,))),
                    percent_cell(training.late_score if training else None),
                    percent_cell(macro),
                    *([Cell(number(record.cost.gpu_hours, 1), record.cost.gpu_hours)] if with_gpu else []),
                    Cell(
                        number((record.cost.training_seconds + record.cost.evaluation_seconds) / 3600, 2),
                        (record.cost.training_seconds + record.cost.evaluation_seconds) / 3600,
                    ),
                    Cell(record.provenance.ended[:10], record.provenance.ended),
                    Cell(record.id[:12], record.id, href=run.page.removesuffix(".html") + ".json"),
                ],
                f"{run.title} {run.method} {record.status} N={record.reuse} seed {record.seeds.run}",
            )
        )
    return Table(
        name,
        caption,
        [
            Column("method", "Method", number=False),
            Column("reuse", "N"),
            Column("seed", "Seed"),
            Column("status", "Status", number=False),
            Column("late", "Late score, %"),
            Column("macro", "Macro average, %"),
            *([Column("gpu_hours", "GPU-hours", optional=True)] if with_gpu else []),
            Column("hours", "Hours", optional=True, tip="training and evaluation, wall time"),
            Column("ended", "Ended", number=False),
            Column("record", "Record", number=False),
        ],
        [Group("", rows)],
    )


def run_page(content: Content, run: Run) -> Page:
    """One run, whole."""
    record = run.record
    board = content.board_of[run.page]
    group = content.styles(run.method)
    results = _result_table(content, run) if record.evaluation else None
    charts = [Figure(chart, f"run-{index}", 24) for index, chart in enumerate(figures.run_curves(run, group))]
    charts += [
        Figure(chart, f"hist-{sign}")
        for sign, text in (("positive", "A > 0"), ("negative", "A < 0"))
        if not (chart := figures.histogram([run], sign, group, LOG_WEIGHT_EDGES, f"Importance weights, {text}")).empty
    ]
    return Page(
        run.page,
        "run.html",
        {
            "title": run.label,
            "section": "runs",
            "run": run,
            "record": record,
            "board": board,
            "results": results,
            "figures": charts,
            "downloads": run_files(run),
            "commands": reproduce(record),
            "document": json.dumps(_brief(record), indent=1, sort_keys=True, ensure_ascii=False),
            "method_page": content.addresses.method(run.method),
            "seeds": [
                (other.record.seeds.run, "" if other is run else other.page)
                for arm in board.arms
                if run in arm.runs
                for other in arm.runs
            ],
        },
    )


def _result_table(content: Content, run: Run) -> Table:
    rows = []
    for task in run.task_names:
        result = run.record.evaluation[task]
        drawn = result.problems * result.sampling.samples_per_problem
        differing = run.digest.disagreements.get(task)
        rows.append(
            Row(
                [
                    Cell(task_title(task), task_title(task), href=content.addresses.task(task)),
                    percent_cell(result.scores["published"].pass_at_1),
                    percent_cell(result.scores["audited"].pass_at_1),
                    Cell(str(result.problems), result.problems),
                    Cell(str(result.sampling.samples_per_problem), result.sampling.samples_per_problem),
                    Cell(f"{result.truncated:,}", result.truncated),
                    Cell(
                        f"{result.scores['published'].errors} / {result.scores['audited'].errors}",
                        result.scores["published"].errors,
                    ),
                    Cell("–") if differing is None else share_cell(sum(differing), drawn),
                    Cell(number(result.mean_response_tokens, 0), result.mean_response_tokens),
                    Cell(result.samples.sha256[:12], result.samples.sha256, tip=result.samples.path),
                ]
            )
        )
    return Table(
        "results",
        "Held-out results of this run.",
        [
            Column("benchmark", "Benchmark", number=False),
            Column("published", "pass@1, published grader, %"),
            Column("audited", "pass@1, audited grader, %"),
            Column("problems", "Problems"),
            Column("samples", "Samples per problem"),
            Column("truncated", "Truncated"),
            Column("errors", "Grading errors", tip="published / audited"),
            Column("disagreement", "Graders differ, %"),
            Column("tokens", "Mean tokens"),
            Column("digest", "Samples, SHA-256", number=False),
        ],
        [Group("", rows)],
    )


def run_files(run: Run) -> list[tuple[str, str, str]]:
    """Label, address from the root and digest of the files that a run's page offers."""
    stem = run.page.removesuffix(".html")
    found = [("record", f"{stem}.json", "")]
    training = run.record.training
    if training is not None and training.curve.path not in run.digest.missing:
        found.append(("training log, one line for each policy update", f"{stem}.updates.jsonl", training.curve.sha256))
    return found


def reproduce(record: Record) -> list[str]:
    """The commands that run the cell again."""
    lines = []
    if record.provenance.commit:
        lines.append(f"git checkout {shlex.quote(record.provenance.commit)}")
    if record.method is not None and record.kind == "trained":
        lines.append(
            "reuse-bench run "
            + " ".join(
                shlex.quote(part)
                for part in (
                    "--protocol",
                    record.protocol.id,
                    "--model",
                    record.model.name,
                    "--method",
                    record.method.name,
                    "--reuse",
                    str(record.reuse),
                    "--seed",
                    str(record.seeds.run),
                )
            )
        )
    elif record.provenance.command:
        lines.append(shlex.join(record.provenance.command))
    return [" ".join(line.splitlines()) for line in lines]


def _brief(record: Record) -> dict[str, Any]:
    """The record without its long lists; the JSON beside the page has them."""
    document = record.model_dump(mode="json")
    for result in document["evaluation"].values():
        result.pop("problem_ids")
        result.pop("right_per_problem")
    return document
