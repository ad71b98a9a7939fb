"""What identifies the code and the machine of a run, without secrets."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from harness.records import Provenance

DISTRIBUTION = "reuse-bench"
REPOSITORY = Path(__file__).resolve().parents[1]
CODE = ("methods", "tasks", "harness", "leaderboard", "reuse_bench", "requirements", "pyproject.toml", "tox.ini")
"""What makes a tree dirty. Results and documents beside the code do not change what a run computes."""

LOCKS = {
    "cpu": (Path("requirements", "torch-cpu.txt"), Path("requirements", "cpu.txt")),
    "gpu": (
        Path("requirements", "torch-gpu.txt"),
        Path("requirements", "gpu.txt"),
        Path("requirements", "flash-attn.txt"),
    ),
}
"""The files that pin what a machine has installed, in the order in which they are installed."""

_MATTERS = re.compile(
    r"^(OMP|MKL|OPENBLAS|NUMEXPR|CUDA|CUBLAS|NCCL|GLOO|TORCH|PYTORCH|VLLM|RAY|DS|DEEPSPEED|TOKENIZERS|HF|TRANSFORMERS"
    r"|REUSE_BENCH|ROCR|HIP)_|^(PYTHONHASHSEED|PYTHONPATH|LD_PRELOAD|MALLOC_ARENA_MAX|SLURM_JOB_NUM_NODES)$"
)
_OF_ONE_PROCESS = {
    "RAY_CLIENT_MODE",
    "RAY_JOB_ID",
    "RAY_LD_PRELOAD_ON_WORKERS",
    "RAY_RAYLET_PID",
    "REUSE_BENCH_FORK_SERVER",
}
"""What Ray and the run itself tell their processes; it says nothing about the machine or its user."""
_SECRET_NAME = re.compile(r"TOKEN(?!S|IZERS)|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|COOKIE", re.I)
_SECRET_OPTION = re.compile(r"^--?[\w.-]*(token(?!s)|secret|password|api[-_]?key|access[-_]?key|auth)[\w.-]*$", re.I)
_SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|sk-[\w-]{8,}|AKIA[A-Z0-9]{12,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_USER_INFO = re.compile(r"(?<=://)[^/\s:@]+(:[^/\s@]*)?@")
HIDDEN = "(hidden)"
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;#]+)", re.M)


def install_stack(machine: str = "cpu") -> str:
    """How to install the training stack, in the imperative; an installed wheel has no locks beside it."""
    script = REPOSITORY / "requirements" / "install.py"
    if not script.is_file():
        return "install the training stack from a clone of Reuse Bench, as its README.md says"
    shown = script.relative_to(REPOSITORY) if Path.cwd() == REPOSITORY else script
    other = " (or `gpu` on a machine with CUDA)" if machine == "cpu" else ""
    return f"install the training stack with `python {shlex.quote(str(shown))} {machine}`{other}"


def collect(
    *,
    started: str,
    ended: str,
    command: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    repository: Path = REPOSITORY,
) -> Provenance:
    """Gather everything now; call it where the run's packages are installed.

    Args:
        started: ISO 8601 in UTC.
        ended: the same.
        command: what was run; by default this process's own command line.
        environment: by default this process's own.
        repository: the checkout that the code comes from.
    """
    commit, dirty, diff = code_state(repository)
    words = sys.argv if command is None else command
    return Provenance(
        reuse_bench_version=_own_version(),
        commit=commit,
        dirty=dirty,
        diff_sha256=diff,
        lock_sha256=lock_digest(repository),
        packages=installed_packages(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        hardware=hardware(),
        environment=environment_that_matters(os.environ if environment is None else environment),
        command=redacted_command(words),
        started=started,
        ended=ended,
    )


def deviations(found: Provenance) -> list[str]:
    """Why a run of this code cannot be in the closed division, one line each: nobody could have the same code."""
    lines = []
    if found.commit is None:
        lines.append("code: it comes from no commit")
    elif found.dirty is not False:
        lines.append(f"code: it differs from commit {found.commit[:12]}")
    if found.lock_sha256 is None:
        lines.append("code: it was installed without the locks of requirements/")
    else:
        contents = [(REPOSITORY / path).read_bytes() for path in LOCKS["gpu" if gpus() else "cpu"]]
        lines += [f"packages: {line}" for line in unlike_lock(found.packages, contents)]
    return lines


def unlike_lock(packages: Mapping[str, str], contents: Sequence[bytes]) -> list[str]:
    """Packages that the locks pin and that are missing or of another version, in words; three at most.

    A version with a local part (``2.13.0+cu129``) is the one that is pinned without it.
    """
    pins = [pin for content in contents for pin in _PIN.findall(content.decode(errors="replace"))]
    wrong = []
    for name, version in pins:
        found = packages.get(re.sub(r"[-_.]+", "-", name).lower())
        if found != version and not (found or "").startswith(f"{version}+"):
            wrong.append(f"{name} is {found or 'missing'} instead of {version}")
    more = [f"and {len(wrong) - 3} more"] if len(wrong) > 3 else []
    return [*wrong[:3], *more]


def _own_version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "not installed"


def code_state(repository: Path = REPOSITORY) -> tuple[str | None, bool | None, str | None]:
    """Commit, whether the code differs from it, and the SHA-256 of the difference (None where there is none).

    The difference holds changed tracked files and the contents of new ones, in `CODE` only. A package that pip
    installed from a git address knows its commit, and cannot be dirty. All three are None where nothing is known.
    """
    head = _git(repository, "rev-parse", "--verify", "HEAD") if (repository / ".git").exists() else None
    if head is None:
        return _installed_commit()
    paths = [name for name in CODE if (repository / name).exists()]
    changed = _git(repository, "diff", "--binary", "--no-ext-diff", "--no-color", "HEAD", "--", *CODE)
    added = _git(repository, "ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    if changed is None or added is None:
        return head.decode().strip(), None, None
    names = sorted(name for name in added.split(b"\0") if name)
    if not changed and not names:
        return head.decode().strip(), False, None
    digest = hashlib.sha256(changed)
    for name in names:
        content = (repository / os.fsdecode(name)).read_bytes()
        digest.update(b"new " + name + b"\0" + str(len(content)).encode() + b"\0" + content)
    return head.decode().strip(), True, digest.hexdigest()


def file_at(commit: str, path: str, repository: Path = REPOSITORY) -> bytes | None:
    """A file's content at a commit; None where this checkout does not have it."""
    if not re.fullmatch(r"[0-9a-f]{40}", commit) or not (repository / ".git").exists():
        return None
    return _git(repository, "cat-file", "blob", f"{commit}:{path}")


def _git(repository: Path, *arguments: str) -> bytes | None:
    git = shutil.which("git")
    if git is None:
        return None
    # Without optional locks nothing is written, so that a run beside other git commands disturbs none of them.
    result = subprocess.run(
        [git, "--no-optional-locks", "-C", str(repository), *arguments], capture_output=True, check=False
    )
    return result.stdout if result.returncode == 0 else None


def _installed_commit() -> tuple[str | None, bool | None, str | None]:
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    commit = json.loads(text).get("vcs_info", {}).get("commit_id") if text else None
    return (commit, False, None) if commit else (None, None, None)


def lock_digest(repository: Path = REPOSITORY) -> str | None:
    """Digest of the locks for this kind of machine; None where the code was installed without them."""
    paths = [repository / path for path in LOCKS["gpu" if gpus() else "cpu"]]
    return joint_digest([path.read_bytes() if path.is_file() else None for path in paths])


def joint_digest(contents: Sequence[bytes | None]) -> str | None:
    """SHA-256 over files, each with its length; None where one is missing."""
    digest = hashlib.sha256()
    for content in contents:
        if content is None:
            return None
        digest.update(f"{len(content)}\n".encode() + content)
    return digest.hexdigest()


def installed_packages() -> dict[str, str]:
    """Name (as normalised by PEP 503) and version of every installed distribution."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        stated = distribution.metadata  # read and parsed at each access
        name = re.sub(r"[-_.]+", "-", stated["Name"] or "").lower()
        # The first on the path is the one that an import finds.
        if name:
            found.setdefault(name, stated["Version"])
    return dict(sorted(found.items()))


def hardware() -> dict[str, str | int | float | list[str]]:
    """Processor, cores that this process may use, memory in GiB, and the GPUs with memory and driver."""
    return {
        "cpu": _cpu_name(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory_gib": _memory_gib(),
        "gpus": gpus(),
    }


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or "unknown"


def _memory_gib() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return 0.0


def gpus() -> list[str]:
    """One line a GPU: name, memory, driver; empty where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run([program, *query], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in result.stdout.splitlines() if line.strip()] if result.returncode == 0 else []


def environment_that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that steer the libraries of a run, sorted; what is secret by its name or looks it is hidden."""
    return {
        name: HIDDEN if _SECRET_NAME.search(name) else redact(value)
        for name, value in sorted(environment.items())
        if _MATTERS.match(name) and name not in _OF_ONE_PROCESS
    }


def redacted_command(words: Sequence[str]) -> list[str]:
    """A command line without the values of options such as ``--hub-token``, and without secrets in other words."""
    shown = []
    hide_next = False
    for word in words:
        option, equals, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            shown.append(HIDDEN)
            hide_next = False
        elif equals and _SECRET_OPTION.match(option):
            shown.append(f"{option}={HIDDEN}")
            hide_next = False
        else:
            shown.append(redact(word))
            hide_next = bool(_SECRET_OPTION.match(word))
    return shown


def redact(text: str) -> str:
    """The text without access tokens of known shapes and user names in addresses; the home folder becomes ``~``."""
    text = _USER_INFO.sub(f"{HIDDEN}@", _SECRET_VALUE.sub(HIDDEN, text))
    try:
        home = str(Path.home())
    except RuntimeError:  # a user of a container, say, who has none
        return text
    return re.sub(rf"{re.escape(home)}(?=/|$|:)", "~", text) if home not in ("/", "") else text
