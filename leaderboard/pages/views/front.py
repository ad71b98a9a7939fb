"""The front page, and the page of one board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from leaderboard import published
from leaderboard.charts import number, total
from leaderboard.pages import figures
from leaderboard.pages.boards import METHOD_ORDER, Board, method_sort, slug, task_title
from leaderboard.pages.cells import (
    VERDICT_TONES,
    plural,
    some,
    where,
)
from leaderboard.pages.content import Content, Page
from leaderboard.pages.scores import BoardView
from leaderboard.pages.tables import Cell, Column, Group, Row, Table
from leaderboard.pages.views.runs import run_table

MACRO = published.MACRO
#: The front page shows whole boards while there are few and their rows are few, then short ones, then links: it has to
#: stay small whatever the store holds.
FULL_BOARDS = 3
FULL_ROWS = 32
SHORT_BOARDS = 5


def front_page(content: Content) -> Page:
    """The first page: what is here, who leads, the boards, the claims and the tables of the paper."""
    scale = [content.view(board) for board in content.boards if not board.small and board.division == "closed"]
    small = [content.view(board) for board in content.boards if board.small]
    other = [content.view(board) for board in content.boards if not board.small and board.division != "closed"]
    sizes = _sizes([*scale, *([] if scale else small[:1])])
    paper = _paper_tables(content)
    few = len(content.panels.kernels) <= 8
    return Page(
        "index.html",
        "index.html",
        {
            "title": None,
            "section": "index",
            "boards": scale,
            "small": small,
            "other": other,
            "sizes": sizes,
            "paper": paper,
            "kernels": content.panels.kernel_figures(None if few else METHOD_ORDER),
            "curves": {
                key: (
                    replace(content.panels.macro_figure(board), view=""),
                    content.panels.curve_figures(board, 48, 12),
                    content.panels.cost_figures(board),
                )
                for board in content.boards
                if sizes.get(key := board.key) == "full"
            },
            "claims": content.claim_rows,
            "tones": VERDICT_TONES,
            "key_facts": _key_facts(content),
            "gaps": _gaps(content, [view.board for view in scale]),
        },
        [table for table, _ in paper]
        + [v.short for v in (*scale, *small) if v.short and sizes.get(v.board.key) in ("full", "short")],
    )


def _key_facts(content: Content) -> list[tuple[str, str]]:
    """What the store holds, in a few numbers with a line under each."""
    trained = [run for run in content.runs if run.record.reuse is not None]
    names = [content.titles.get(name, name) for name in sorted({run.method for run in trained}, key=method_sort)]
    ratios = sorted({run.record.reuse or 0 for run in trained})
    ended = {status: sum(run.record.status == status for run in content.runs) for status in ("collapsed", "failed")}
    bad = ", ".join(f"{count} {status}" for status, count in ended.items() if count)
    seeds = {len(arm.runs) for board in content.boards for arm in board.arms if arm.reuse is not None}
    span = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}" if seeds else "no"
    samples = sum(
        t.problems * t.sampling.samples_per_problem for run in content.runs for t in run.record.evaluation.values()
    )
    with_gpu = [run for run in content.runs if run.record.cost.gpu_hours > 0]
    took = total(figures.hours(run) for run in (with_gpu or content.runs))
    return [
        (str(len(names)), plural(len(names), "method") + (f": {some(names)}" if names else "")),
        (some([str(ratio) for ratio in ratios]) or "–", "N, policy updates per rollout batch"),
        (
            f"{len(content.runs):,}",
            f"{plural(len(content.runs), 'run')}, {bad or 'none collapsed or failed'}; "
            f"{span} {'seed' if span == '1' else 'seeds'} for each method and N",
        ),
        (
            f"{samples:,}",
            f"graded samples of {len(content.task_names)} {plural(len(content.task_names), 'benchmark')}, "
            "each by two graders",
        ),
        (
            number(took, 0 if took >= 100 else 1),
            "GPU-hours in all" if with_gpu else "hours in all, on a CPU" if content.runs else "hours",
        ),
    ]


def _gaps(content: Content, scale: Sequence[Board]) -> list[str]:
    """What this store does not cover, from the store itcontent."""
    out = []
    if scale:
        models = list(dict.fromkeys(board.model for board in scale))
        out.append(
            f"Measured at the scale of the paper: {some(models)}, and nothing else. Problems have answers that a "
            "program can check."
        )
    else:
        out.append(
            "There is no result at the scale of the paper here. What was measured comes from small protocols: they "
            "show that the instrument works, and say nothing about large models."
        )
    ran = {run.method for run in content.runs}
    idle = [content.titles[name] for name in content.method_names if name in content.registered and name not in ran]
    if idle:
        out.append(f"Installed, and not run: {some(idle)}.")
    arms = [arm for board in content.boards for arm in board.arms if arm.reuse is not None]
    none = sum(not arm.evaluated for arm in arms)
    alone = sum(len(arm.evaluated) == 1 for arm in arms)
    if none:
        out.append(f"{none} of {len(arms)} pairs of method and N have no held-out score: no run reached its end.")
    if alone:
        out.append(
            f"{alone} of {len(arms)} pairs of method and N have one seed with a held-out score. Their interval "
            "leaves out how the score varies with the training seed."
        )
    return out


def _sizes(views: Sequence[BoardView]) -> dict[str, str]:
    """How much of each board the front page shows: full, short or link."""
    sizes: dict[str, str] = {}
    rows = 0
    for view in views:
        rows += len(view.board.arms)
        if rows <= FULL_ROWS and len(sizes) < FULL_BOARDS:
            sizes[view.board.key] = "full"
        elif view.short and len(view.short.rows) <= FULL_ROWS and len(sizes) < SHORT_BOARDS:
            sizes[view.board.key] = "short"
        else:
            sizes[view.board.key] = "link"
    return sizes


def board_page(content: Content, board: Board) -> Page:
    """The page of one board, with everything that the front page may have left out."""
    view = content.view(board)
    runs = run_table(board.runs, f"runs-{board.key}", f"All runs, {where(board)}.")
    deep = content.panels.deep_figures(board)
    contents = [
        ("heldout", "Held-out"),
        ("training", "Training"),
        *([("check", "Against the published numbers")] if view.check else []),
        *((anchor, heading) for anchor, heading, *_ in deep),
        ("runs", "All runs"),
    ]
    return Page(
        board.page,
        "board.html",
        {
            "title": f"{board.title}, {board.protocol}",
            "section": "index",
            "view": view,
            "curves": content.panels.curve_figures(board),
            "summary": content.panels.summary_figures(board),
            "deep": deep,
            "contents": contents,
            "runs": runs,
            "digests": sorted({run.record.protocol.digest for run in board.runs}),
            "deviations": sorted({text for run in board.runs for text in run.record.deviations}),
        },
        [t for t in (view.heldout, view.training, view.check, runs) if t],
    )


def _paper_tables(content: Content) -> list[tuple[Table, str]]:
    """The paper's two tables as printed, one of each for each model, with their sources."""
    out: list[tuple[Table, str]] = []
    heldout, training = published.heldout(), published.training()
    for model in dict.fromkeys(heldout["model"]):
        own = heldout[heldout["model"] == model]
        tasks = [*published.TASKS, MACRO]
        out.append(
            (
                _paper_table(
                    content,
                    own.pivot_table(index=["reuse", "method", "title"], columns="task", values="percent"),
                    f"paper-heldout-{slug(str(model))}",
                    f"As published: held-out pass@1 in percent, {model}. No interval published.",
                    [(task, "Macro average" if task == MACRO else task_title(task)) for task in tasks],
                ),
                str(own["source"].iloc[0]),
            )
        )
        own = training[training["model"] == model].copy()
        own[["early", "late"]] *= 100
        out.append(
            (
                _paper_table(
                    content,
                    own.pivot_table(index=["reuse", "method", "title"], values=["early", "late"]),
                    f"paper-training-{slug(str(model))}",
                    f"As published: training score in percent, {model}. No interval published.",
                    [("early", "Early score"), ("late", "Late score")],
                ),
                str(own["source"].iloc[0]),
            )
        )
    return out


def _paper_table(
    content: Content, frame: pd.DataFrame, name: str, caption: str, columns: Sequence[tuple[str, str]]
) -> Table:
    groups = []
    for reuse in sorted({int(key[0]) for key in frame.index}):
        part = frame.loc[[key for key in frame.index if key[0] == reuse]]
        rows = []
        for key in sorted(part.index, key=lambda key: method_sort(key[1])):
            values = [float(part.loc[key, column]) for column, _ in columns]
            cells = [Cell(str(key[2]), str(key[2]), href=content.addresses.method(str(key[1])))]
            cells += [Cell(number(value), round(value, 4)) for value in values]
            rows.append(Row(cells, str(key[2])))
        groups.append(Group(f"N = {reuse}", rows, key=str(reuse)))
    titles = [Column("method", "Method", number=False), *(Column(column, label) for column, label in columns)]
    return Table(name, caption, titles, groups, group_label="N")
