"""What the pages are made from, computed once for all of them, and what a page is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import methods
from leaderboard import claims, tables
from leaderboard.pages import figures
from leaderboard.pages.addresses import Addresses
from leaderboard.pages.boards import BASE, Board, Run, method_sort, task_sort
from leaderboard.pages.panels import Panels
from leaderboard.pages.parallel import parallel_map
from leaderboard.pages.scores import BoardView, make_view
from leaderboard.pages.tables import Table


@dataclass(frozen=True)
class Page:
    """One page: address from the root, template, what it is given, and the tables that it offers for download."""

    address: str
    template: str
    context: Mapping[str, Any]
    tables: Sequence[Table] = field(default=())

    @property
    def root(self) -> str:
        """The way from the page to the root, for relative links."""
        return "../" * self.address.count("/")


class Content:
    """A store as the pages see it: its runs and boards, and what several pages need of them."""

    def __init__(self, runs: Sequence[Run], boards: Sequence[Board], workers: int = 1) -> None:
        self.runs = runs
        self.boards = boards
        self.titles = dict(sorted(((run.method, run.title) for run in runs), key=lambda item: method_sort(item[0])))
        self.registered = methods.available()
        for name, entry in self.registered.items():
            self.titles.setdefault(name, entry.card.title)
        self.titles.pop(BASE, None)
        self.method_names = sorted(self.titles, key=method_sort)
        self.styles = figures.Styles.of(self.titles)
        self.task_names = sorted({task for board in boards for task in board.tasks}, key=task_sort)
        self.addresses = Addresses(self.method_names, self.task_names)
        self.panels = Panels(self.registered, self.styles, self.view)
        least = 2 if len(runs) > 64 else len(boards) + 1
        made = parallel_map(lambda board: make_view(board, self.addresses), boards, workers, least=least)
        self._views = {view.board.key: view for view in made}
        self.board_of = {run.page: board for board in boards for run in board.runs}
        self.claim_rows = self._claim_rows()

    def view(self, board: Board) -> BoardView:
        """The tables of a board."""
        return self._views[board.key]

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of methods that share a board."""
        together = {pair for board in self.boards for pair in combinations(sorted(board.methods, key=method_sort), 2)}
        return sorted(together, key=lambda pair: (method_sort(pair[0]), method_sort(pair[1])))

    def outcomes(self, chosen: Sequence[Board]) -> list[claims.Outcome]:
        """Every claim on the records of some boards together."""
        records = tuple(item for board in chosen for item in board.results.records)
        source = claims.Reproduced(tables.Results(chosen[0].store, records), division=chosen[0].division)
        return claims.evaluate(claims.shipped(), source)

    def _claim_rows(self) -> list[dict[str, Any]]:
        """Every claim with its outcome on the printed tables and on the runs of the closed division at scale."""
        files = claims.shipped()
        printed = claims.evaluate(files, claims.Printed())
        shown = [board for board in self.boards if not board.small and board.division == "closed"]
        here = self.outcomes(shown) if shown else [None] * len(printed)
        return [
            {"id": claim.claim.id, "text": claim.claim.statement, "printed": claim, "here": outcome}
            for claim, outcome in zip(printed, here, strict=True)
        ]
