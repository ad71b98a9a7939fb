"""The walls: imports point one way, and a light install stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDER = ["methods", "tasks", "harness", "leaderboard", "reuse_bench"]
"""Each may import those before it."""

HEAVY = {"ray", "vllm", "openrlhf", "deepspeed", "lm_eval", "transformers"}


def modules(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported(path: Path) -> frozenset[str]:
    """Top-level names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return frozenset(names)


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_one_way(package: str) -> None:
    later = set(ORDER[ORDER.index(package) + 1 :])
    for path in modules(package):
        assert not imported(path) & later, path.relative_to(ROOT)


def test_the_losses_know_nothing_of_the_rest() -> None:
    for path in modules("methods"):
        wrong = imported(path) & {*ORDER[1:], *(HEAVY - {"openrlhf"})}
        assert not wrong, path.relative_to(ROOT)


def test_modules_import_each_other_without_cycles() -> None:
    graph = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in ORDER
        for path in modules(package)
    }
    edges = {name: at_import_time(tree_of(path), graph) for name, path in graph.items()}
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for other in edges[name]:
                visit(other, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def at_import_time(tree: ast.Module, known: dict[str, Path]) -> set[str]:
    """Our own modules that are imported when the module is, leaving out what a function or type checker imports."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & known.keys()
            if node.module in known and not inside <= known.keys():
                found.add(node.module)
    return found


@pytest.mark.parametrize("arguments", [["--help"], ["list", "protocols"], ["show", "protocol", "tiny"]])
def test_facts_need_no_training_stack(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        f"for name in {sorted(HEAVY)!r}: sys.modules[name] = None\n"
        "from reuse_bench.main import main\n"
        f"sys.argv = ['reuse-bench', *{arguments!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
