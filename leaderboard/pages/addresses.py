"""Where each page lies, from the root of the site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leaderboard.pages.boards import BASE, Arm, Board, method_sort, slug


class Addresses:
    """Addresses of the pages of methods, benchmarks and comparisons: safe file names, each once."""

    def __init__(self, methods: Iterable[str], tasks: Iterable[str]) -> None:
        self._methods = _unique({name: f"methods/{slug(name)}" for name in methods})
        self._tasks = _unique({name: f"benchmarks/{slug(name)}" for name in tasks})

    def method(self, name: str) -> str:
        """Address of a method's page; empty for the base model."""
        return self._methods.get(name, "")

    def task(self, name: str) -> str:
        """Address of a benchmark's page."""
        return self._tasks.get(name, "")

    def compare(self, first: str, second: str) -> str:
        """Address of the page that compares two methods."""
        pair = sorted((first, second), key=method_sort)
        names = [self.method(name).removeprefix("methods/").removesuffix(".html") for name in pair]
        return f"compare/{names[0]}--{names[1]}.html"

    def evidence(self, arm: Arm, board: Board) -> str:
        """Where the runs behind a number are: the run itself, or the list of the seeds."""
        if len(arm.runs) == 1:
            return arm.runs[0].page
        if arm.method == BASE:
            return f"{board.page}#runs"
        return f"{self.method(arm.method)}#{arm_anchor(board, arm)}"


def arm_anchor(board: Board, arm: Arm) -> str:
    """Where a method's page lists the seeds of an arm."""
    return f"{board.key}-n{arm.reuse or 0}"


def _unique(addresses: Mapping[str, str]) -> dict[str, str]:
    """Addresses of pages, each once."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name, stem in sorted(addresses.items()):
        while stem in taken:
            stem += "-x"
        taken.add(stem)
        out[name] = f"{stem}.html"
    return out
