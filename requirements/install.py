"""Install the whole stack from the locks into the Python that runs this: ``python requirements/install.py cpu|gpu``.

pip alone cannot do it: the metadata of openrlhf and vLLM ask for packages that a machine without CUDA neither needs nor
can load, so everything is pinned and installed without dependencies, torch first and from its own index. Run again, it
returns at once while the locks are as they were. With ``--into`` it makes a virtual environment and installs there.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = (3, 11)
STAMP = "reuse-bench-lock.sha256"

LOCKS = {"cpu": ("torch-cpu.txt", "cpu.txt"), "gpu": ("torch-gpu.txt", "gpu.txt", "flash-attn.txt")}


def main() -> int:
    """Install; returns the exit code."""
    parser = argparse.ArgumentParser(description="Install the training stack from the locks.")
    parser.add_argument("machine", choices=sorted(LOCKS), help="cpu: no CUDA; gpu: CUDA, vLLM and flash-attn")
    parser.add_argument("--dev", action="store_true", help="also what tests, checks and benchmarks need")
    parser.add_argument("--into", metavar="DIR", type=Path, help="a virtual environment, made if it is not there")
    options = parser.parse_args()
    if sys.version_info[:2] != PYTHON:
        wanted, found = ".".join(map(str, PYTHON)), ".".join(map(str, sys.version_info[:2]))
        print(
            f"install.py: Python {found} runs this, and the locks are for Python {wanted}: make a virtual environment "
            f"with python{wanted} and call its python",
            file=sys.stderr,
        )
        return 2
    locks = [HERE / name for name in LOCKS[options.machine]]
    if options.dev:
        locks.append(HERE / "dev.txt")
    prefix = options.into.resolve() if options.into else Path(sys.prefix)
    python = str(prefix / "bin" / "python") if options.into else sys.executable
    if options.into and not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", str(prefix)], check=True)
    stamp = prefix / STAMP
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in locks)).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest):
        stamp.unlink(missing_ok=True)
        for path in locks:
            pip(python, "install", *_options(path), "-r", str(path))
    pip(python, "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(HERE.parent))
    stamp.write_text(digest)
    return 0


def _options(lock: Path) -> list[str]:
    """The CUDA torch brings its libraries as dependencies; nothing else may bring any."""
    options = [] if lock.name == "torch-gpu.txt" else ["--no-deps"]
    return [*options, "--no-build-isolation"] if lock.name == "flash-attn.txt" else options


def pip(python: str, *arguments: str) -> None:
    """Call pip of that Python; its own message says what went wrong."""
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    if subprocess.run(command).returncode != 0:
        again = " ".join(["python", *sys.argv])
        print(f"install.py: pip failed: mend the cause above and run `{again}` again", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
