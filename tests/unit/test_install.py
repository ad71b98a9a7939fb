"""What installs the stack, where it cannot: `requirements/install.py`, with nothing installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("version", [(3, 9), (3, 12)])
def test_another_python_is_refused_with_the_way_out(tmp_path: Path, version: tuple[int, int]) -> None:
    target = tmp_path / "environment"
    program = (
        f"import runpy, sys\nsys.version_info = {(*version, 0, 'final', 0)}\n"
        f"sys.argv = ['install.py', 'cpu', '--into', {str(target)!r}]\n"
        f"runpy.run_path({str(ROOT / 'requirements' / 'install.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert f"Python {version[0]}.{version[1]} runs this, and the locks are for Python 3.11" in sentence
    assert "make a virtual environment with python3.11" in sentence
    assert not target.exists()


@pytest.mark.parametrize("arguments", [[], ["tpu"]])
def test_an_unknown_machine_is_refused(arguments: list[str]) -> None:
    command = [sys.executable, str(ROOT / "requirements" / "install.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "machine" in done.stderr
