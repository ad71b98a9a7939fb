"""The front door: assembles the command line from one small file a group of commands.

Exit codes: 0 done, 1 a check failed, 2 wrong usage or input, 3 interrupted and resumable.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 3


@contextmanager
def _loading() -> Iterator[None]:
    """Ctrl-C while the commands are loaded, which takes a moment, has the code of an interruption too."""
    try:
        yield
    except KeyboardInterrupt:
        print("reuse-bench: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


with _loading():
    import typer
    from rich.console import Console
    from typer.core import TyperGroup

    from methods.errors import UserError
    from reuse_bench.commands import (
        cluster,
        data,
        evaluation,
        facts,
        grading,
        methods,
        protocols,
        results,
        runs,
        site,
        status,
    )


class Commands(TyperGroup):
    """All commands; Ctrl-C in one that does not end it in its own way still ends with the code of an interruption."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _say("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    name="reuse-bench",
    cls=Commands,
    help="Compare policy-optimisation losses for language models when rollouts are reused.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

with _loading():
    for group in (facts, methods, protocols, data, runs, status, cluster, evaluation, grading, results, site):
        group.register(app)


def main() -> None:
    """Run the command line; a `UserError`, or a refusal of the system, becomes one sentence and exit code 2."""
    # A stream that is closed is None in `sys`, and its number would go to the next file that is opened.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    # JSON, Markdown and names must come out whole whatever the locale; bytes of a file's name that are no UTF-8 too.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if not _is_width(os.environ.get("COLUMNS", "")):  # a 0 comes from a terminal that was none
        os.environ.pop("COLUMNS", None)
        if not sys.stdout.isatty():  # a file has no width: tables are not cut for it
            os.environ["COLUMNS"] = "160"
    # PyTorch says this to whoever installed OpenRLHF, which asks for that package.
    warnings.filterwarnings("ignore", message="The pynvml package is deprecated", category=FutureWarning)
    try:
        try:
            _check_folder()
            app()
        finally:
            # Here, and not while Python ends: there a full disk or a closed pipe is past catching.
            sys.stdout.flush()
    except UserError as error:
        _say(str(error))
        sys.exit(EXIT_USAGE)
    except OSError as error:
        _drop_output()
        if error.errno == errno.EPIPE:  # the reader has what it wanted
            sys.exit(EXIT_CHECK_FAILED)
        where = error.filename if isinstance(error.filename, str) else "a file, the output or the network"
        _say(f"{where}: {error.strerror or error}: mend that, or name another place")
        sys.exit(EXIT_USAGE)


def _is_width(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def _check_folder() -> None:
    """Some libraries end the process without a word of ours where the current folder was deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UserError("the current folder was deleted: change to another one") from None


def _say(sentence: str) -> None:
    # It may quote a name that holds a line feed, or what moves the cursor or changes colours.
    sentence = "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in sentence)
    Console(stderr=True, soft_wrap=True).print(f"reuse-bench: {sentence}", markup=False, highlight=False)


def _drop_output() -> None:
    """Let what could not be written go, so that it is not tried again, and complained about, at the end."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
