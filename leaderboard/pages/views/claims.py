"""The claims of papers, with their verdicts on printed and on reproduced numbers."""

from __future__ import annotations

from leaderboard import claims, published
from leaderboard.pages.boards import task_title
from leaderboard.pages.cells import (
    VERDICT_TONES,
    in_percent,
    interval,
    signed,
    typeset,
)
from leaderboard.pages.content import Content, Page
from leaderboard.pages.tables import Cell, Column, Group, Row, Table, Tone

MACRO = published.MACRO


def claims_page(content: Content) -> Page:
    """Each claim with the figures behind its verdicts."""
    made = []
    for row in content.claim_rows:
        if row["here"] is not None and row["here"].verdict != "no data":
            made.append(_claim_table(content, row["here"], f"settings-{row['id']}", row["text"]))
            row["table"] = made[-1]
    small = [(board, content.outcomes([board])) for board in content.boards if board.small]
    small = [(board, outcomes) for board, outcomes in small if any(one.verdict != "no data" for one in outcomes)]
    return Page(
        "claims.html",
        "claims.html",
        {"title": "Claims", "section": "claims", "claims": content.claim_rows, "small": small, "tones": VERDICT_TONES},
        made,
    )


def _claim_table(content: Content, outcome: claims.Outcome, name: str, statement: str) -> Table:
    """The settings that decide a claim, each with the table that its scores stand in."""
    rows = []
    keys = {board.model: board for board in content.boards if not board.small and board.division == "closed"}
    tones: dict[str, Tone] = {"yes": "good", "no": "bad", "unsure": "warn"}
    for one in outcome.settings:
        label = {"early": "Early score", "late": "Late score", MACRO: "Macro average"}.get(
            one.measure, task_title(one.measure)
        )
        lead = one.lead
        board = keys.get(one.model)
        kind = "training" if one.measure in ("early", "late") else "heldout"
        href = f"{board.page}#{kind}-{board.key}" if board else ""
        rows.append(
            Row(
                [
                    Cell(one.model, one.model, href=board.page if board else ""),
                    Cell(str(one.reuse), one.reuse),
                    Cell(label, label),
                    Cell("–", href=href)
                    if lead is None
                    else Cell(
                        signed(100 * lead.value),
                        100 * lead.value,
                        in_percent(lead.low),
                        in_percent(lead.high),
                        interval(lead.low, lead.high),
                        href=href,
                    ),
                    Cell(one.answer, tone=tones[one.answer]),
                ]
            )
        )
    return Table(
        name,
        f"{typeset(statement)}: lead over the best rival in points, with an interval that holds for all settings "
        "at once.",
        [
            Column("model", "Model", number=False),
            Column("reuse", "N"),
            Column("measure", "Measure", number=False),
            Column("lead", "Lead"),
            Column("verdict", "Leads?", number=False),
        ],
        [Group("", rows)],
    )
