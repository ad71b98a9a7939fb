"""A map over processes that inherit what they work on, so that nothing but the results is copied."""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_work: tuple[Callable[[Any], Any], Sequence[Any]] | None = None


def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int, *, least: int = 64
) -> Iterator[Result]:
    """``function(item)`` of each item, in that order, over ``workers`` processes; a result is not kept once taken.

    With fewer than ``least`` items, one worker, or where processes cannot be forked safely, in this one.
    """
    global _work
    if workers < 2 or len(items) < least or not sys.platform.startswith("linux"):
        yield from map(function, items)
        return
    _work = (function, items)
    # What is here by now stays: the collector of the children need not look at it, nor copy its pages by doing so.
    gc.freeze()
    try:
        with ProcessPoolExecutor(
            workers, mp_context=multiprocessing.get_context("fork"), initializer=_one_thread
        ) as pool:
            yield from pool.map(_call, range(len(items)), chunksize=max(1, min(16, len(items) // (4 * workers))))
    finally:
        _work = None
        gc.unfreeze()


def _one_thread() -> None:
    """OpenMP's threads do not survive a fork: torch would wait for them forever."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _call(index: int) -> Any:
    assert _work is not None
    function, items = _work
    return function(items[index])
