"""Where the processor time of cells goes: ``python -m tests.profile_cells runs`` beside a running `reuse-bench run`.

py-spy (which comes with the locks) samples all Python processes of the steps that are running in a folder of runs.
Prints the table of docs/performance.md: a sample belongs to the innermost of our packages and those of the stack that
is on its stack, so that a tensor product counts for whoever asked for it.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.lifetime import FOLDER, processes_of
from methods.errors import UserError

PACKAGES = {"vllm": "vLLM", "deepspeed": "DeepSpeed", "openrlhf": "OpenRLHF", "ray": "Ray", "lm_eval": "lm-eval"}
OURS = "Reuse Bench"
OTHER = "other libraries"
_LIBRARY = re.compile(r"/site-packages/(\w+)/")
_OURS = re.compile(r"/(?:harness|methods|tasks)/(?!fork_server\.py|openrlhf/entry\.py)[^ ]*\.py")
"""Not the two that stand below everything in a process that was forked, or that runs OpenRLHF's command."""

_WAITS = re.compile(
    r"^(?:\S*\.)?(?:_end_with|watch|wait|_worker|main_loop|get_objects|listen_error_messages|print_logs|select) \("
)
"""The innermost frame of threads that wait for time, a lock, a queue or Ray, some of which py-spy takes for busy."""


def waits(stack: Sequence[str]) -> bool:
    """Whether a sample is of a thread that only waits."""
    return bool(stack) and _WAITS.match(stack[-1]) is not None


def package_of(stack: Iterable[str]) -> str:
    """Whose a sample is.

    Args:
        stack: its frames, outermost first, each with the whole path of its file.
    """
    for frame in reversed(list(stack)):
        library = _LIBRARY.search(frame)
        if library:
            if library[1] in PACKAGES:
                return PACKAGES[library[1]]
        elif _OURS.search(frame):
            return OURS
    return OTHER


def sample(pids: Iterable[int], seconds: int, rate: int) -> Counter[str]:
    """Samples by package, of all processes at once; without threads that wait. A process may end meanwhile."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        files = {pid: Path(folder) / str(pid) for pid in pids}
        options = ["--rate", str(rate), "--duration", str(seconds), "--format", "raw", "--full-filenames"]
        samplers = [
            subprocess.Popen(
                ["py-spy", "record", "--pid", str(pid), "--output", str(path), *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for pid, path in files.items()
        ]
        for sampler in samplers:
            sampler.wait()
        for path in files.values():
            for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
                frames, _, count = line.rpartition(" ")
                stack = frames.split(";")
                if not waits(stack):
                    found[package_of(stack)] += int(count)
    return found


def table(found: Counter[str]) -> str:
    """The shares, as Markdown."""
    names = [*PACKAGES.values(), OTHER, OURS]
    shares = [f"{100 * found[name] / found.total():.1f} %" for name in names]
    return "\n".join("| " + " | ".join(line) + " |" for line in (names, ["---:"] * len(names), shares))


def main() -> int:
    """Sample what runs now."""
    parser = argparse.ArgumentParser(description="Sample the processes of cells that run, and print whose time it is.")
    parser.add_argument("runs", type=Path, help="folder of runs of a `reuse-bench run` that is running")
    parser.add_argument("--seconds", type=int, default=45)
    parser.add_argument("--rate", type=int, default=25, help="samples a second")
    options = parser.parse_args()
    members = [one for path in sorted((options.runs / FOLDER).glob("*")) for one in processes_of(path)]
    pids = [one.pid for one in members if one.host == socket.gethostname()]
    if not pids:
        raise UserError(f"{options.runs}: nothing runs there: start `reuse-bench run` with this folder first")
    found = sample(pids, options.seconds, options.rate)
    if not found:
        raise UserError("py-spy saw nothing: it has to be installed, and allowed to look at these processes")
    print(f"{found.total()} samples of {len(pids)} processes\n\n{table(found)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
