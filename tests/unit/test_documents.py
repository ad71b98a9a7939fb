"""The documents: every command in them is one that there is, and those that can be run here run as they stand."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.protocol import load_protocol
from harness.provenance import CODE
from tests import documents
from tests.documents import DOCUMENTS, LANGUAGES, ROOT, blocks, commands, complaint, inline, refused
from tests.synthetic import synthetic_store

document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


@document
def test_every_block_names_its_language_and_the_reason_when_it_is_not_run(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{path.name}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: language {block.language!r}: choose one of {LANGUAGES}"
        assert re.fullmatch(r"|not run: .{8,}|file: \S+", block.note), f"{where}: comment {block.note!r} says nothing"


@document
def test_every_command_exists_with_its_options(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wrong = [
        f"{path.name}:{command.line}: {said}"
        for block in blocks(text)
        for command in commands(block)
        for words in command.stages
        if (said := complaint(words))
    ]
    wrong += [f"{path.name}: {said}" for words in inline(text) if (said := refused(words[1:], complete=False))]
    assert wrong == []


@document
def test_every_shell_block_is_shell(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language == "bash":
            done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
            assert done.returncode == 0, f"{path.name}:{block.line}: {done.stderr}"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up records of the whole tiny protocol."""
    methods = list(load_protocol("tiny").methods.hyperparameters)
    return synthetic_store(tmp_path_factory.mktemp("records"), methods=methods)


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Begins empty; several documents verify the same records, which is then remembered."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def checkout(tmp_path: Path, records: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this checkout as the current folder, without data sets.

    In ``made-up`` are the made-up records, in ``results`` those that the repository ships.
    """
    folder = tmp_path / "checkout"
    for name in (*CODE, "tests", "docs"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    shutil.copytree(records, folder / "made-up")
    shutil.copytree(ROOT / "results", folder / "results")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REUSE_BENCH_CACHE", str(cache_folder))
    monkeypatch.setenv("REUSE_BENCH_DATA", str(tmp_path / "data"))
    return folder


def _programs(path: Path) -> list[tuple[str, ...]]:
    """What of the document is run."""
    found = [block for block in blocks(path.read_text(encoding="utf-8")) if block.runs]
    return [words for block in found for command in commands(block) for words in command.stages]


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in DOCUMENTS if _programs(path)], ids=lambda path: path.name)
def test_the_commands_run(path: Path, checkout: Path) -> None:
    if not any("new-method" in words for words in _programs(path)):
        documents.run(path)
        return
    # It writes a loss into the checkout, which only a process that works in the copy can see.
    done = subprocess.run(
        [sys.executable, "-m", "tests.documents", str(path)],
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("reuse-bench verfy results", "no command 'verfy'"),
        ("reuse-bench list", "command is missing"),
        ("reuse-bench run --protocl tiny", "No such option"),
        ("reuse-bench run --protocol tyni", "tyni"),
        ("reuse-bench run --reuse many", "valid integer"),
        ("reuse-bench plan", "Missing option"),
        ("srun reuse-bench statu", "no command 'statu'"),
        ("cd runs && reuse-bench statu", "no command 'statu'"),
        ("echo {} | reuse-bench grad", "no command 'grad'"),
        ("A=1 reuse-bench grad  # a comment", "no command 'grad'"),
        ("reuse-bench \\\n  run --protocl tiny", "No such option"),
        ("tox -e demos", "no environment demos"),
        ("tox -e repro-qwen3-1.7b -- --adress auto", "No such option"),
        ("python requirements/instal.py cpu", "there is no"),
        ("python requirements/install.py tpu", "does not know tpu"),
        ("pytest tests/unit/test_nothing.py", "there is no"),
        ("reuse-bnech run", "no program"),
    ],
)
def test_a_command_that_is_none_is_found(line: str, said: str) -> None:
    (block,) = blocks(f"```bash\n{line}\n```\n")
    found = [complaint(words) for command in commands(block) for words in command.stages]
    assert any(said in (one or "") for one in found), found


def test_a_command_that_fails_or_prints_something_else_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for block, said in (
        ("```bash\nreuse-bench show method nothing\n```", "page.md:2: reuse-bench show method nothing: exit code 1"),
        ("```bash\ngit status\n```", "git is not run here"),
        ("```console\n$ reuse-bench list methods\nReSPO is not in this table\n```", "does not print"),
        ("```console\n$ echo one\ntwo ...\n```", "does not print"),
    ):
        page.write_text(block, encoding="utf-8")
        with pytest.raises(AssertionError, match=re.escape(said)):
            documents.run(page)
    page.write_text("<!-- not run: it would fail -->\n```bash\ngit frob\n```\n```console\n$ echo one two\none ...\n```")
    documents.run(page)


def _messages() -> list[str]:
    """Every text in the source that is no docstring, without back quotes; ``\\0`` stands for a value."""
    found = []
    for name in CODE:
        for path in sorted((ROOT / name).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                if id(node) in alone:
                    continue
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return [text.replace("`", "") for text in found]


def _quoted() -> list[str]:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(r"^\*\*`(.*)`\*\*$", text, re.MULTILINE)


def test_every_message_of_the_troubleshooting_page_is_one_of_ours() -> None:
    """``...`` stands for values and for what is left out."""
    messages, quoted = _messages(), _quoted()
    patterns = {text: re.compile(".*".join(map(re.escape, text.split("..."))), re.DOTALL) for text in quoted}
    gone = [text for text, pattern in patterns.items() if not any(pattern.search(one) for one in messages)]
    assert gone == []
    assert min(len(text.replace("...", "").strip()) for text in quoted) > 12, "too short to say which message it is"
    assert len(quoted) > 50


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_to_files_of_the_checkout_lead_somewhere(name: str) -> None:
    """Those between documents are checked when the site is built."""
    text = re.sub(r"<!--.*?-->", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_the_site_of_the_documents_is_pinned_and_loads_nothing_from_elsewhere() -> None:
    lines = (ROOT / "requirements" / "docs.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[\w.]+", line) for line in pins)
    # Tags of Python objects in mkdocs.yml are not for this loader.
    text = re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    theme = yaml.safe_load(text)["theme"]
    assert (theme["name"], theme["font"]) == ("material", False)
