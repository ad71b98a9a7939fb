"""A process that has imported the training stack once and forks every Python process of a local run.

A cell needs six processes that import torch, vLLM, DeepSpeed, OpenRLHF or lm-eval; for a tiny model on a CPU these
imports took more time than the training. `fork_server` starts one process that imports everything and then forks; a
small command takes the place of ``sys.executable``, also as Ray's ``py_executable`` and for what vLLM starts through
`multiprocessing` (`harness.fork_client`). Without a server, `python_executable` is ``sys.executable``.

Only for machines without CUDA. Nothing is computed before the fork: threads do not survive it. A process that is
forked leads a session of its own, and ends when its client or the server does. When the server dies, another one takes
its place, and new processes wait for it.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import logging
import multiprocessing
import os
import random
import runpy
import selectors
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness import data_only
from harness.openrlhf import cpu

VARIABLE = "REUSE_BENCH_FORK_SERVER"
"""The command that forks the server of this run, where there is one."""
CLIENT = Path(__file__).with_name("fork_client.py")
ROOT = Path(__file__).resolve().parents[1]
WHOSE = "whose"
"""The file beside the command that says which environment and checkout the server has."""
PRELOADED = (
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.trainer",
    "deepspeed",
    "peft",
    "datasets",
    "torch.utils.tensorboard",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.qwen3",
    "lm_eval.evaluator",
    "math_verify",
    "uvloop",
    "harness.lm_eval_vllm",
    "harness.scheduler",
)
"""The slow imports of a cell's processes. A name that does not exist here is left for the process itself to miss.

Nothing of this may import Ray, which reads a process's variables (the number of its job) while its library is loaded.
"""
MOST_FILES = 250
"""As many open files can be handed to a process at once; the system's limit is 253."""
_LOG = logging.getLogger(__name__)
SURVIVING_THREADS = {"jemalloc_bg_thd"}
"""Names of threads that their library starts again in the child: pyarrow's allocator does."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", cpu.THREADS_VARIABLE: "1"}
"""For the server alone, whatever a run may compute with: some libraries compute while they are imported."""


def python_executable() -> str:
    """What to run in place of ``sys.executable``: a command that forks the server, or a Python of its own.

    A server of another environment or checkout, inherited from a run around this one, has other modules: no use of it.
    """
    command = os.environ.get(VARIABLE)
    if not command:
        return sys.executable
    try:
        whose = Path(command).with_name(WHOSE).read_text()
    except OSError:
        return sys.executable
    return command if whose == _here() else sys.executable


def _here() -> str:
    """The environment and the checkout that modules come from."""
    return f"{sys.prefix}\n{ROOT}\n"


def worker_runtime_env() -> dict[str, str]:
    """The part of a Ray runtime environment that has workers forked; empty without a server."""
    command = python_executable()
    return {} if command == sys.executable else {"py_executable": shlex.quote(command)}


def fork_subprocesses() -> None:
    """Have the processes that this one starts through `multiprocessing` forked as well."""
    multiprocessing.set_executable(python_executable())


@contextmanager
def fork_server() -> Iterator[None]:
    """Have the processes of this run forked while the block lasts, where that is possible: without CUDA.

    A server that cannot start is told of in one line of the log, which goes to standard error: the run is slower.
    """
    if cpu.has_cuda() or python_executable() != sys.executable:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="reuse-bench-") as folder:
        address, command = str(Path(folder) / "socket"), Path(folder) / "python"
        command.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-S", str(CLIENT), address])} "$@"\n')
        command.chmod(0o700)
        Path(folder, WHOSE).write_text(_here())
        around = os.environ.get(VARIABLE)
        keeper = _Keeper(address)
        try:
            if keeper.start():
                os.environ[VARIABLE] = str(command)
            yield
        finally:
            os.environ.pop(VARIABLE, None)
            if around:
                os.environ[VARIABLE] = around
            keeper.end()


class _Keeper:
    """Starts the server, and another one when it has died.

    The socket that it listens at belongs to this process: who asks for a process in between waits for the next server.
    """

    def __init__(self, address: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(address)
        self.listener.listen(64)
        self.errors = Path(address).with_name("errors")
        search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.environment = {
            **os.environ,
            **cpu.environment(),
            **data_only.ENVIRONMENT,
            **ONE_THREAD,
            "PYTHONPATH": search,
        }
        self.server: subprocess.Popen[bytes] | None = None
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.over = False
        self.starting = threading.Lock()

    def start(self) -> bool:
        """Start a server, and go on to look after it; False when it has not got as far as to listen."""
        if self._launch():
            self.thread.start()
            return True
        self.listener.close()
        return False

    def end(self) -> None:
        """End the server with its processes."""
        with self.starting:
            self.over = True
        if self.server and self.server.stdin:
            self.server.stdin.close()
            self.server.wait()
        if self.thread.is_alive():
            self.thread.join()
        self.listener.close()

    def _keep(self) -> None:
        assert self.server
        while not self.over:
            code = self.server.wait()
            if not self.over:
                _LOG.warning(
                    "reuse-bench: the process that forks those of this run has ended (code %d), and they with it; "
                    "another one takes its place",
                    code,
                )
                if not self._launch():
                    self.listener.close()  # from now on processes start by themselves
                    return

    def _launch(self) -> bool:
        with self.starting, self.errors.open("wb") as stream:
            if self.over:
                return False
            self.server = subprocess.Popen(
                [sys.executable, "-m", "harness.fork_server", str(self.listener.fileno())],
                env=self.environment,
                pass_fds=[self.listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                start_new_session=True,
            )
        assert self.server.stdout
        if self.server.stdout.readline():
            return True
        if not self.over:
            said = self.errors.read_text(errors="replace").strip().splitlines()
            _LOG.warning(
                "reuse-bench: every process of this run imports the training stack anew, which makes a cell slower, "
                "because the process that would do it once did not start: %s",
                said[-1] if said else f"it ended with code {self.server.wait()}",
            )
        return False


# The server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A process to be: what follows ``python``, environment, folder, and open files by the number they are to have."""

    arguments: Sequence[str]
    environment: dict[str, str]
    folder: str
    files: Mapping[int, int]


def _read_request(client: socket.socket) -> Request:
    header, files, _, _ = socket.recv_fds(client, 4, MOST_FILES)
    (length,) = struct.unpack("!I", header)
    body = b""
    while len(body) < length:
        part = client.recv(length - len(body))
        if not part:
            raise ConnectionError("the client left in the middle of its request")
        body += part
    said = json.loads(body)
    return Request(said["arguments"], said["environment"], said["folder"], dict(zip(said["files"], files, strict=True)))


class _Server:
    """One thread, which must not be more: a fork copies only the thread that asks for it."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.events = selectors.DefaultSelector()
        self.events.register(listener, selectors.EVENT_READ, ("new", 0))
        self.events.register(0, selectors.EVENT_READ, ("end", 0))
        self.clients: dict[int, socket.socket] = {}  # by process
        self.pidfds: dict[int, int] = {}

    def serve(self) -> Request | None:
        """Fork on request. Returns None in the server, at its end, and the request in each process it forked."""
        while True:
            for key, _ in self.events.select():
                kind, pid = key.data
                if kind == "end":
                    for child in list(self.clients):
                        _kill(child, signal.SIGKILL)
                    return None
                if kind == "new":
                    request = self._new()
                    if request:
                        return request
                elif kind == "client" and pid in self.clients:
                    self._hear(pid)
                elif kind == "process" and pid in self.clients:
                    self._ended(pid)

    def _new(self) -> Request | None:
        client, _ = self.listener.accept()
        try:
            request = _read_request(client)
        except (OSError, ValueError, KeyError):
            client.close()
            return None
        pid = os.fork()
        if pid == 0:
            self._let_go(client)
            return request
        for number in request.files.values():
            os.close(number)
        self.clients[pid] = client
        self.pidfds[pid] = os.pidfd_open(pid)
        self.events.register(client, selectors.EVENT_READ, ("client", pid))
        self.events.register(self.pidfds[pid], selectors.EVENT_READ, ("process", pid))
        return None

    def _let_go(self, client: socket.socket) -> None:
        """In the child: close what belongs to the server."""
        self.events.close()
        for one in (self.listener, client, *self.clients.values()):
            one.close()
        for number in self.pidfds.values():
            os.close(number)

    def _hear(self, pid: int) -> None:
        sent = self.clients[pid].recv(16)
        for number in sent or [signal.SIGKILL]:  # a client that is gone takes its process with it
            _kill(pid, number)
        if not sent:
            self.events.unregister(self.clients[pid])

    def _ended(self, pid: int) -> None:
        _, status = os.waitpid(pid, 0)
        client, pidfd = self.clients.pop(pid), self.pidfds.pop(pid)
        self.events.unregister(pidfd)
        os.close(pidfd)
        if client in self.events.get_map():
            self.events.unregister(client)
        with suppress(OSError):  # the client may be gone
            client.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
        client.close()


def _kill(pid: int, number: int) -> None:
    """Send a signal to the process and what it started."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
            return
        except ProcessLookupError:
            continue  # it has no group yet, or has ended


def _become(request: Request) -> None:
    """In the child: be the process that was asked for, to its end."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    aside = {}  # first out of the way: a number may be another one's place
    for target, number in request.files.items():
        aside[target] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 1 << 10)
        os.close(number)
    for target, number in aside.items():
        os.dup2(number, target)
        os.close(number)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    random.seed()
    import numpy
    import torch

    numpy.random.seed()
    torch.set_num_threads(cpu.threads())  # what it has read is the server's
    arguments = list(request.arguments)
    while arguments[0].startswith("-") and arguments[0] not in ("-c", "-m"):  # options of the interpreter
        del arguments[: 2 if arguments[0] in ("-W", "-X") else 1]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def _exit_code(request: Request) -> int:
    """Run the process, and say how it ended as Python would have."""
    try:
        _become(request)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """Leave as Python does, but without taking thousands of shared modules apart, which takes seconds."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are not daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _preload() -> None:
    cpu.install()
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    if "ray" in sys.modules:
        raise SystemExit("Ray was imported before the fork: leave out of PRELOADED what imports it")
    gc.collect()
    gc.freeze()  # the collector of a child leaves these objects alone, and their pages shared


def main() -> None:
    """Import, listen, and say so with one line; ends when standard input does."""
    warnings.simplefilter("ignore")
    ready = os.dup(1)
    os.dup2(2, 1)  # what libraries print while they are imported is nobody's answer
    _preload()
    tasks = [one for one in Path("/proc/self/task").iterdir() if one.name != str(os.getpid())]
    threads = {(one / "comm").read_text().strip() for one in tasks}
    if threads - SURVIVING_THREADS or threading.active_count() > 1:
        raise SystemExit(f"a library has started threads, which a fork would lose: {sorted(threads)}")
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        os.write(ready, b"ready\n")
        os.close(ready)
        request: Any = _Server(listener).serve()
    if request:
        _end(_exit_code(request))


if __name__ == "__main__":
    main()
