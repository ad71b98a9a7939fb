"""What stands in the way of a run on this machine: checks, each with what a problem means and how to mend it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import plan, provenance
from harness.grid import cells
from harness.models import BUILTIN_TINY
from harness.protocol import Protocol
from methods.errors import UserError

State = Literal["ok", "warning", "broken"]

MINIMUM_PYTHON = (3, 11)
STACK = ("torch", "ray", "vllm", "openrlhf", "deepspeed", "transformers", "lm_eval")
"""Import names of the training stack."""

CPU_MEMORY_GIB = 6.0
"""Host memory that a cell takes on a machine without GPUs, measured: 4.7 GB at most, and room for the system."""

SHARED_MEMORY_GIB = 1.0
OPEN_FILES = 4096
RAY_PORT = 6379
HUB = ("huggingface.co", 443)
HUB_SECONDS = 4.0


@dataclass(frozen=True)
class Check:
    """One finding. ``meaning`` says what does not work because of it; ``mend`` what to do."""

    name: str
    state: State
    found: str
    meaning: str = ""
    mend: str = ""


def examine(
    protocol: Protocol, *, runs: Path = Path("runs"), data: Path | None = None, offline: bool = False
) -> list[Check]:
    """Run all checks for what ``protocol`` needs. Nothing is started, changed or sent."""
    gpus = provenance.gpus()
    parts: list[Iterator[Check]] = [
        _python(),
        _stack(),
        _lock(bool(gpus)),
        _gpus(protocol, gpus),
        _memory(protocol, gpus),
        _disk(protocol, runs),
        _limits(),
        _ray(),
        _data(protocol, data),
        _hub(protocol, offline),
    ]
    return [check for part in parts for check in part]


def _python() -> Iterator[Check]:
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    if sys.version_info < MINIMUM_PYTHON:
        needed = ".".join(map(str, MINIMUM_PYTHON))
        yield Check("Python", "broken", found, "the code does not run", f"use Python {needed} or newer")
    elif platform.system() != "Linux":
        meaning = "vLLM and DeepSpeed train and evaluate on Linux only; methods, records and pages work"
        yield Check("Python", "warning", found, meaning, "train on a Linux machine or in a container")
    else:
        yield Check("Python", "ok", found)


def _stack() -> Iterator[Check]:
    missing = [name for name in STACK if importlib.util.find_spec(name) is None]
    if missing:
        yield Check(
            "training stack",
            "broken",
            f"missing: {', '.join(missing)}",
            "nothing can be trained or evaluated here; records, tables and pages work",
            provenance.install_stack(),
        )
    else:
        yield Check("training stack", "ok", "installed")


def _lock(gpu: bool) -> Iterator[Check]:
    kind = "gpu" if gpu else "cpu"
    paths = [provenance.REPOSITORY / path for path in provenance.LOCKS[kind]]
    if not all(path.is_file() for path in paths):
        meaning = "versions cannot be compared with those that were tested"
        yield Check("packages", "warning", f"no {kind} lock beside the code", meaning, "install from a checkout")
        return
    stated = {name: version for path in paths for name, version in pins(path.read_text(encoding="utf-8")).items()}
    installed = provenance.installed_packages()
    other = [
        f"{name} {installed.get(name, 'missing')} instead of {version}"
        for name, version in stated.items()
        if not _same_version(installed.get(name), version)
    ]
    if other:
        shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
        meaning = "runs may differ from those of others, or fail; the record names the versions in use"
        yield Check("packages", "warning", shown, meaning, provenance.install_stack(kind))
    else:
        yield Check("packages", "ok", f"{len(stated)} as in the {kind} lock")


def pins(lock: str) -> dict[str, str]:
    """Versions by name from the ``name==version`` lines of a lock file."""
    found = re.findall(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([^\s;#\\]+)", lock, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def _same_version(installed: str | None, stated: str) -> bool:
    """A local part such as ``+cpu`` counts only where the lock gives one."""
    return installed is not None and (installed == stated or ("+" not in stated and installed.split("+")[0] == stated))


def _gpus(protocol: Protocol, gpus: list[str]) -> Iterator[Check]:
    need = protocol.runtime.gpus
    kinds = {planning.gpu for planning in protocol.planning.values()} - {None}
    if not gpus:
        if kinds:
            meaning = (
                f"protocol {protocol.id} needs {need} GPUs a cell ({', '.join(sorted(map(str, kinds)))} or larger)"
            )
            mend = "connect to a cluster with --address, or run the protocol tiny"
            yield Check("GPUs", "broken", "none", meaning, mend)
        else:
            yield Check("GPUs", "ok", f"none; protocol {protocol.id} runs on the CPU")
        return
    found = f"{len(gpus)} x {gpus[0]}"
    if kinds and len(gpus) < need:
        mend = f"give --gpus-per-cell {len(gpus)}, connect to a cluster with --address, or use a larger machine"
        yield Check("GPUs", "broken", found, f"a cell of protocol {protocol.id} holds {need} GPUs at once", mend)
    else:
        yield Check("GPUs", "ok", found)
    yield from _cuda()


def _cuda() -> Iterator[Check]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if torch.cuda.is_available():
        yield Check("CUDA", "ok", f"torch {torch.__version__}, CUDA {torch.version.cuda}")
    else:
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU"
        yield Check(
            "CUDA",
            "broken",
            f"torch {torch.__version__}, {built}, sees no GPU",
            "training would run on the CPU although there are GPUs",
            f"{provenance.install_stack('gpu')}, and a driver that is new enough for that CUDA",
        )


def _memory(protocol: Protocol, gpus: list[str]) -> Iterator[Check]:
    free, needed = available_memory_gib(), CPU_MEMORY_GIB
    for name, planning in protocol.planning.items():
        if planning.gpu in plan.GPUS:
            estimate = plan.memory(protocol, name, protocol.runtime, plan.GPUS[planning.gpu])
            needed = max(needed, estimate.host)
            smallest = min((size for size in map(_gpu_memory_gib, gpus) if size), default=None)
            if smallest is not None and estimate.peak > smallest:
                yield Check(
                    "GPU memory",
                    "broken",
                    f"{smallest:.0f} GiB a GPU",
                    f"a cell of {name} needs about {estimate.peak:.0f} GiB on each",
                    "more GPUs a cell, runtime.adam_offload, or smaller runtime.train_micro_batch",
                )
    found = f"{free:.1f} GiB available, about {needed:.0f} needed by a cell"
    if free < needed:
        meaning = "the system may end a training process while it runs"
        yield Check("memory", "warning", found, meaning, "close other programs, or use a larger machine")
    else:
        yield Check("memory", "ok", found)


def available_memory_gib() -> float:
    """Memory that processes can still get: of the machine, or of the container's limit when that is smaller."""
    found = [float("inf")]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        if match:
            found.append(int(match.group(1)) / 2**20)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        found.append((int(limit.read_text()) - int(used.read_text())) / 2**30)
    return max(0.0, min(found))


def _gpu_memory_gib(line: str) -> float | None:
    match = re.search(r"(\d+) MiB", line)
    return int(match.group(1)) / 1024 if match else None


def _disk(protocol: Protocol, runs: Path) -> Iterator[Check]:
    folder = runs.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    estimates = [plan.estimate(protocol, cell) for cell in cells(protocol) if cell.model in protocol.planning]
    one = max((each.disk_peak for each in estimates), default=0.0)
    everything = sum(each.disk_kept for each in estimates) + one
    found = f"{free / 1e9:,.0f} GB free in {folder}; {one / 1e9:,.1f} for one cell, {everything / 1e9:,.1f} for all"
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        wrong = "cannot be written" if folder.is_dir() else "is no folder"
        yield Check("disk", "broken", f"{folder} {wrong}", "no run can start", "choose a folder with --runs")
    elif free < one + 1e9:
        mend = "free some space, or choose another folder with --runs"
        yield Check("disk", "broken", found, "a cell ends when the disk is full", mend)
    elif free < everything:
        mend = "free some space, or move finished cells away in between"
        yield Check("disk", "warning", found, "not all cells fit at once", mend)
    else:
        yield Check("disk", "ok", found)


def _limits() -> Iterator[Check]:
    shared = Path("/dev/shm")
    if shared.exists():
        size = shutil.disk_usage(shared).free / 2**30
        if size < SHARED_MEMORY_GIB:
            meaning = "Ray keeps its objects there, and is slow or fails without"
            mend = "start the container with --shm-size=8g"
            yield Check("shared memory", "warning", f"{size:.1f} GiB free in /dev/shm", meaning, mend)
        else:
            yield Check("shared memory", "ok", f"{size:.1f} GiB free")
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        meaning = "Ray opens many files and sockets, and may fail with many cells at once"
        yield Check("open files", "warning", f"at most {soft}", meaning, f"ulimit -n {OPEN_FILES}")
    else:
        yield Check("open files", "ok", "enough may be opened")


def _ray() -> Iterator[Check]:
    address = os.environ.get("RAY_ADDRESS")
    if address:
        place = re.match(r"^(?:ray://)?([^:/]+):(\d+)$", address)
        if address in ("auto", "local"):
            yield Check("Ray", "ok", f"RAY_ADDRESS is {address}")
        elif place is None:
            mend = "set it to auto, host:port or ray://host:port, or unset it"
            yield Check("Ray", "broken", f"RAY_ADDRESS is {address!r}", "Ray understands no such address", mend)
        elif answers(place.group(1), int(place.group(2)), 2.0):
            yield Check("Ray", "ok", f"a cluster answers at {address}")
        else:
            meaning = "every run would wait for it and then fail"
            mend = "start the cluster, or unset RAY_ADDRESS to use this machine alone"
            yield Check("Ray", "broken", f"nothing answers at RAY_ADDRESS {address}", meaning, mend)
    elif answers("127.0.0.1", RAY_PORT, 0.5):
        found = f"something listens on port {RAY_PORT} of this machine"
        meaning = "if it is a Ray cluster, runs do not use it unless told; a local Ray takes another port"
        yield Check("Ray", "warning", found, meaning, "give --address auto to run on that cluster")
    else:
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
            yield Check("Ray", "ok", "none is running; a local one is started for each run, on loopback")
        except OSError as error:
            meaning = "a local Ray cannot be started"
            yield Check("Ray", "broken", f"no port can be opened on loopback ({error})", meaning, "allow local sockets")


def answers(host: str, port: int, seconds: float) -> bool:
    """Whether something accepts a connection there."""
    try:
        with socket.create_connection((host, port), timeout=seconds):
            return True
    except OSError:
        return False


def _data(protocol: Protocol, folder: Path | None) -> Iterator[Check]:
    from tasks import chain, datasets

    wanted: dict[str, Callable[[], object]] = {}
    for task in protocol.evaluation.tasks:
        if task not in chain.TINY_TASKS:
            name = datasets.set_of(task)
            wanted[name] = lambda name=name: datasets.load(name, folder)  # type: ignore[misc]
    if protocol.data.train != chain.TRAIN_TASK:
        wanted[protocol.data.train] = lambda: datasets.load(protocol.data.train, folder)
    if not wanted:
        yield Check("data", "ok", f"protocol {protocol.id} makes its own")
        return
    for name, load in wanted.items():
        try:
            load()
        except UserError as error:
            meaning = f"protocol {protocol.id} cannot be run completely"
            yield Check(f"data {name}", "broken", str(error), meaning, f"reuse-bench data fetch {name}")
        else:
            yield Check(f"data {name}", "ok", f"verified in {datasets.data_dir(folder)}")


def _hub(protocol: Protocol, offline: bool) -> Iterator[Check]:
    remote = [model.source for model in protocol.models if model.source != BUILTIN_TINY]
    remote = [source for source in remote if not Path(source).is_dir()]
    if not remote:
        yield Check("hub", "ok", f"protocol {protocol.id} fetches no model")
    elif offline or os.environ.get("HF_HUB_OFFLINE") == "1":
        meaning = f"{', '.join(remote)} must already be in the hub's cache"
        yield Check(
            "hub", "warning", "not tried: offline", meaning, "fetch the model before, on a machine with network"
        )
    elif answers(*HUB, HUB_SECONDS):
        yield Check("hub", "ok", f"{HUB[0]} answers; {', '.join(remote)} is fetched when first used")
    else:
        mend = "check network and proxy, or copy the hub's cache (HF_HOME) from a machine that has fetched it"
        meaning = f"{', '.join(remote)} cannot be fetched"
        yield Check("hub", "warning", f"{HUB[0]} does not answer", meaning, mend)
