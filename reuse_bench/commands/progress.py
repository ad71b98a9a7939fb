"""How long work shows itself: one bar a cell on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LINE_EVERY_SECONDS = 30.0


class CellProgress:
    """Shows the steps of cells; its method `report` is what `harness.runner` calls. Use as a context manager."""

    def __init__(self, cells: int) -> None:
        self._console = Console(stderr=True)
        self._cells = cells
        self._bars: dict[str, TaskID] = {}
        self._said: dict[str, tuple[str, float]] = {}
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.fields[cell]}"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[word]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def report(self, cell: object, step: str, done: int, total: int, word: str) -> None:
        """Show that ``done`` of ``total`` of a step of a cell are done."""
        name = str(getattr(cell, "id", cell))
        if self._console.is_terminal:
            self._bar(name, step, done, total, word)
        else:
            self._line(name, step, done, total, word)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def finish(self, cell: object, text: str) -> None:
        """Take the cell's bar away and say how it ended."""
        name = str(getattr(cell, "id", cell))
        bar = self._bars.pop(name, None)
        if bar is not None:
            self._progress.remove_task(bar)
        self.say(f"{name}: {text}")

    def _bar(self, name: str, step: str, done: int, total: int, word: str) -> None:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(step, total=total, cell=name, word=word)
        self._progress.update(self._bars[name], description=step, completed=done, total=total, word=word)

    def _line(self, name: str, step: str, done: int, total: int, word: str) -> None:
        said_step, said_at = self._said.get(name, ("", 0.0))
        moment = time.monotonic()
        if step == said_step and done < total and moment - said_at < LINE_EVERY_SECONDS:
            return
        self._said[name] = (step, moment)
        tail = f" ({word})" if word else ""
        self.say(f"[{moment - self._started:5.0f} s] {name}: {step} {done}/{total}{tail}")
