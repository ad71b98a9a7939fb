"""The commands of the documents: found in their code blocks, held against the real command line, and run.

How a document says what a block is:

- ``bash`` holds commands; ``console`` holds commands after ``$ `` and below each what it prints, where ``...`` stands
  for anything. No other block holds commands, and every block names its language.
- A comment right above a block says what is special about it. ``<!-- not run: REASON -->``: its commands are only
  checked. ``<!-- file: PATH -->``: the block is the content of that file for the commands after it.

``python -m tests.documents DOCUMENT`` runs the commands of one document in the current folder, a copy of the checkout.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

from typer.main import get_command
from typer.testing import CliRunner

from harness.protocol import load_protocol
from methods import registry
from methods.errors import UserError
from reuse_bench.main import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
COMMANDS = ("bash", "console")
LANGUAGES = (*COMMANDS, "json", "python", "sql", "text", "yaml")
HARMLESS = ("cat", "cp", "echo", "head", "ls", "mkdir", "sed")
"""Programs beside our own and pytest that a document may run here."""
OUTSIDE = (
    *(".", "cd", "git", "lm_eval", "mypy", "pip", "ray", "ruff", "scontrol", "set", "srun"),
    *HARMLESS,
)
"""Programs whose arguments nobody here can check."""
LAUNCHERS = ("ray", "srun")
"""Programs that start another one."""
OF_RECORDS = ("compare", "export", "claims")
"""Commands whose ``--protocol`` is that of records, and need not be a protocol that there is."""
WIDTH = "160"

_FENCE = re.compile(r"^ *(?P<ticks>`{3,}) *(?P<language>\S*)")
_INLINE = re.compile(r"(?<!`)`(reuse-bench\s[^`]+)`(?!`)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced code block; ``line`` is that of its fence, ``note`` the comment right above it."""

    line: int
    language: str
    text: str
    note: str

    @property
    def runs(self) -> bool:
        """Whether its commands are run."""
        return self.language in COMMANDS and not self.note.startswith("not run:")


@dataclass(frozen=True)
class Command:
    """A pipeline of programs with their arguments, the file that it is written to, and what is said to be printed."""

    line: int
    stages: tuple[tuple[str, ...], ...]
    target: str | None
    printed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " | ".join(shlex.join(words) for words in self.stages)


def blocks(text: str) -> list[Block]:
    """The fenced code blocks of a document, in order."""
    found = []
    lines = text.splitlines()
    start: int | None = None
    ticks = language = ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if start is None and fence:
            start, ticks, language = number, fence["ticks"], fence["language"]
        elif start is not None and line.strip() == ticks:
            indent = len(lines[start]) - len(lines[start].lstrip())
            content = "".join(one[indent:] + "\n" for one in lines[start + 1 : number])
            found.append(Block(start + 1, language, content, _note(lines[:start])))
            start = None
    return found


def _note(above: Sequence[str]) -> str:
    comment = re.search(r"<!--((?:(?!-->).)*)-->\s*$", "\n".join(above[-4:]), re.DOTALL)
    return " ".join(comment[1].split()) if comment else ""


def inline(text: str) -> list[tuple[str, ...]]:
    """Our commands that sentences mention, perhaps without their arguments."""
    outside = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = [" ".join(mentioned.split()) for mentioned in _INLINE.findall(outside)]
    return [command.stages[0] for mentioned in found for command in _split(mentioned, 1)]


def commands(block: Block) -> list[Command]:
    """The commands of a block, in order; none where the block is of another kind."""
    if block.language == "bash":
        return list(_split(block.text, block.line + 1))
    found: list[Command] = []
    if block.language == "console":
        for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
            if line.startswith("$ "):
                found += _split(line[2:], number)
            elif found:
                last = found[-1]
                found[-1] = Command(last.line, last.stages, last.target, (*last.printed, line))
    return found


def _split(text: str, first: int) -> Iterator[Command]:
    """The commands of a piece of shell: what stands between newlines, ``&&``, ``||``, ``;`` and ``&``."""
    number = first
    for joined in re.split(r"(?<!\\)\n", text):
        lexer = shlex.shlex(joined.replace("\\\n", " "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in ("&&", "||", ";", "&"):
                if words:
                    yield _command(words, number)
                words = []
            else:
                words.append(word)
        number += joined.count("\n") + 1


def _command(words: list[str], line: int) -> Command:
    target = None
    if ">" in words:
        place = words.index(">")
        target = words[place + 1]
        words = words[:place] + words[place + 2 :]
    stages: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            stages.append([])
        elif word in ("(", ")"):  # of $( )
            continue
        elif stages[-1] or not _ASSIGNMENT.fullmatch(word):
            stages[-1].append(word)
    return Command(line, tuple(tuple(stage) for stage in stages if stage), target)


# Checking -------------------------------------------------------------------------------------------------------


def complaint(words: Sequence[str]) -> str | None:
    """What is wrong with a program and its arguments; None when nothing is that can be seen."""
    program = Path(words[0]).name
    if program in LAUNCHERS and "reuse-bench" in words:
        words = words[words.index("reuse-bench") :]
        program = words[0]
    if program == "reuse-bench":
        return refused(words[1:])
    if program == "tox":
        return _tox(words[1:])
    if program.startswith("python"):
        return _python(words[1:])
    if program == "pytest":
        missing = [word for word in words[1:] if word.startswith("tests/") and not _will_exist(word)]
        return f"there is no {missing[0]}" if missing else None
    return None if (program or words[0]) in OUTSIDE else f"{words[0]} is no program that tests/documents.py knows"


def refused(arguments: Sequence[str], complete: bool = True) -> str | None:
    """What our command line says against the arguments; None when it takes them. Nothing is run.

    Args:
        arguments: what stands after ``reuse-bench``.
        complete: whether arguments that are required have to be there.
    """
    words = [word for word in arguments if word != "--help"]
    complete = complete and len(words) == len(arguments)
    command: Any = _program()
    name = "reuse-bench"
    while hasattr(command, "commands"):
        if not words:
            return f"{name}: the command is missing" if complete else None
        if words[0] not in command.commands:
            return f"{name} has no command {words[0]!r}"
        name += f" {words[0]}"
        command = command.commands[words.pop(0)]
    try:
        context = command.make_context(name, words)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        unnamed = type(error).__name__ == "MissingParameter" and not complete
        return None if unnamed else f"{name}: {error.format_message()}"
    if name.split()[-1] in OF_RECORDS:
        return None
    stated = context.params.get("protocols") or context.params.get("protocol") or []
    for protocol in [stated] if isinstance(stated, str) else stated:
        try:
            if not protocol.endswith(".yaml"):
                load_protocol(protocol)
        except UserError as error:
            return f"{name}: {error}"
    return None


@cache
def _program() -> Any:
    return get_command(app)


def _tox(words: Sequence[str]) -> str | None:
    own, rest = list(words), []
    if "--" in own:
        place = own.index("--")
        own, rest = own[:place], own[place + 1 :]
    asked = own[own.index("-e") + 1].split(",") if "-e" in own else []
    known = _tox_environments()
    for name in asked:
        if name not in known:
            return f"tox.ini has no environment {name}"
        if rest and "reuse-bench run" in known[name]:
            return refused(["run", *rest])
    return None


@cache
def _tox_environments() -> dict[str, str]:
    """The commands of each environment of tox.ini; ``{a,b}`` in a name stands for both."""
    ini = ConfigParser(interpolation=None)
    ini.read(ROOT / "tox.ini", encoding="utf-8")
    found = {}
    for section in ini.sections():
        if section.startswith("testenv:"):
            parts = re.split(r"\{([^}]*)\}", section.removeprefix("testenv:"))
            for choice in product(*(part.split(",") if odd % 2 else [part] for odd, part in enumerate(parts))):
                found["".join(choice)] = ini[section]["commands"]
    return found


def _python(words: Sequence[str]) -> str | None:
    if words[0] == "-m":
        path = ROOT / f"{words[1].replace('.', '/')}.py"
        return None if not words[1].startswith("tests.") or path.exists() else f"there is no {path}"
    path = ROOT / words[0]
    if not path.exists():
        return f"there is no {path}"
    source = path.read_text(encoding="utf-8")
    unknown = [word for word in words[1:] if f'"{word}"' not in source]
    return f"{words[0]} does not know {unknown[0]}" if unknown else None


def _will_exist(path: str) -> bool:
    """Tests of the checkout, and those that `reuse-bench new-method` writes."""
    return (ROOT / path).exists() or re.fullmatch(r"tests/unit/test_methods_\w+\.py", path) is not None


# Running --------------------------------------------------------------------------------------------------------


def run(document: Path) -> None:
    """Run the commands of a document in the current folder, one after the other.

    Raises:
        AssertionError: one fails, or prints something else than the document says.
    """
    # The loss that `check` sets the cost against is a figure, not a verdict, and takes six seconds to import.
    # Cells of the documents are complete here; one that is not must not train for minutes unnoticed.
    training = AssertionError("a command of the document would train: its cells are not among the made-up records")
    with (
        mock.patch("reuse_bench.commands.methods.openrlhf_ppo_loss", return_value=None),
        mock.patch("reuse_bench.commands.cluster.prepare_models", side_effect=training),
    ):
        _run_all(document)


def _run_all(document: Path) -> None:
    for block in blocks(document.read_text(encoding="utf-8")):
        if block.note.startswith("file:"):
            path = Path(block.note.removeprefix("file:").strip())
            path.write_text(block.text, encoding="utf-8")
            _find_methods_again(path.stem)
        if block.runs:
            for command in commands(block):
                where = f"{document.name}:{command.line}: {command}"
                printed = ""
                for words in command.stages:
                    printed = _run(words, printed, where)
                if command.target:
                    Path(command.target).write_text(printed, encoding="utf-8")
                _compare(command.printed, printed, where)


def _run(words: Sequence[str], given: str, where: str) -> str:
    if words[0] == "reuse-bench":
        # Not the terminal's width: tables must come out as the document has them.
        done = CliRunner().invoke(app, list(words[1:]), input=given, env={"COLUMNS": WIDTH})
        cause = "" if isinstance(done.exception, SystemExit) else repr(done.exception)
        assert done.exit_code == 0, f"{where}: exit code {done.exit_code}: {cause}\n{done.output}"
        if words[1] == "new-method":
            _find_methods_again(words[2])
        return done.stdout
    assert words[0] in (*HARMLESS, "pytest"), f"{where}: {words[0]} is not run here: mark the block with its reason"
    program = [sys.executable, "-m", "pytest", "-q", *words[1:]] if words[0] == "pytest" else list(words)
    ended = subprocess.run(program, input=given, capture_output=True, text=True, env=os.environ)
    assert ended.returncode == 0, f"{where}: exit code {ended.returncode}: {ended.stderr}\n{ended.stdout}"
    return ended.stdout


def _find_methods_again(written: str) -> None:
    """As a new process would: methods are found once in each, and here one process gives all commands."""
    registry._loaded = False
    registry._registered.clear()
    sys.modules.pop(f"methods.{written}", None)
    importlib.invalidate_caches()


def _compare(stated: Sequence[str], printed: str, where: str) -> None:
    """Each stated line is printed, in this order; white space counts once, and ``...`` stands for anything."""
    rest = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in stated:
        parts = [re.escape(" ".join(part.split())) for part in line.split("...")]
        pattern = re.compile(r"\s?.*\s?".join(parts))
        assert not line.strip() or any(pattern.fullmatch(one) for one in rest), (
            f"{where}: does not print {line!r} where the document has it, but\n{printed}"
        )


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve())
