"""Every page as data: its address, its template and what the template is given; a module for each part of the site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from leaderboard.pages.content import Content, Page
from leaderboard.pages.views import benchmarks, claims, compare, front, methods, runs

NAVIGATION = (
    ("index", "index.html", "Results"),
    ("methods", "methods.html", "Methods"),
    ("benchmarks", "benchmarks.html", "Benchmarks"),
    ("compare", "compare.html", "Compare"),
    ("claims", "claims.html", "Claims"),
    ("runs", "runs.html", "Runs"),
    ("how", "how.html", "How"),
    ("glossary", "glossary.html", "Glossary"),
    ("downloads", "downloads.html", "Downloads"),
)


def pages(content: Content) -> Iterator[Callable[[], Page]]:
    """What makes each page, front page first; the pages themselves can then be made in any process."""
    yield partial(front.front_page, content)
    yield from (partial(front.board_page, content, board) for board in content.boards)
    yield partial(methods.methods_page, content)
    yield from (partial(methods.method_page, content, name) for name in content.method_names)
    yield partial(benchmarks.benchmarks_page, content)
    yield from (partial(benchmarks.benchmark_page, content, task) for task in content.task_names)
    yield partial(compare.compare_index_page, content)
    yield from (partial(compare.compare_page, content, *pair) for pair in content.pairs())
    yield partial(claims.claims_page, content)
    yield partial(runs.runs_page, content)
    yield from (partial(runs.run_page, content, run) for run in content.runs)
    yield lambda: Page("how.html", "how.html", {"title": "How it is computed", "section": "how"})
    yield lambda: Page("glossary.html", "glossary.html", {"title": "Glossary", "section": "glossary"})
