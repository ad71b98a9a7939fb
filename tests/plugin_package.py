"""A plugin package that really is installed: a fresh environment with Reuse Bench and a method from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from methods.scaffold import new_package

ROOT = Path(__file__).parents[1]
PACKAGES = ("methods", "tasks", "harness", "leaderboard", "reuse_bench")


def fresh_environment(folder: Path) -> Path:
    """A new environment with Reuse Bench installed from a copy of its source.

    Third-party packages (torch, the training stack) are those of the running interpreter, seen through a `.pth` file:
    nothing is downloaded.

    Returns:
        Its folder of programs: ``python``, ``reuse-bench``.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    site = Path(_output([programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    shared = sysconfig.get_path("purelib")
    (site / "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")
    source = folder / "source"
    source.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    install(programs, source)
    return programs


def make_plugin(folder: Path, name: str = "plugin_loss") -> Path:
    """The package that ``reuse-bench new-method NAME --package DIR`` writes."""
    new_package(name, folder)
    return folder


def install(programs: Path, package: Path) -> None:
    """``pip install`` a source folder into the environment, offline."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    _output([sys.executable, "-m", "pip", "--python", programs / "python", "install", *options, package])


def run(programs: Path, *command: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment, away from the source tree; a failure is for the caller to judge."""
    path = programs / command[0]
    return subprocess.run(
        [path, *command[1:]], capture_output=True, text=True, cwd=folder or programs, env=_environment(), check=False
    )


def _output(command: list[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return {**kept, "PYTHONWARNINGS": "ignore"}
