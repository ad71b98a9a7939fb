"""The Ray that a run uses: the one at an address, or a local one that is started and stopped again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import urlsplit

from harness.fork_server import fork_server
from harness.provenance import gpus, install_stack
from methods.errors import UserError

LOCAL_OBJECT_STORE_BYTES = 1 << 30
REACH_SECONDS = 5.0
"""How long a machine may take to answer at all."""
GONE_SECONDS = 45.0
"""How long nothing may listen at the address of a Ray that was there. After 60 s Ray would end all of its processes,
the driver included, and nobody would say what to do."""
LOOK_SECONDS = 2.0
CLIENT_TRIES = 3
"""How often Ray's client server is asked for a server of this client."""
EXIT_INTERRUPTED = 3
LOOPBACK = "127.0.0.1"
"""Where a local Ray and everything that it starts listens: nothing outside this machine can reach it."""
_ON_LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # or Ray takes the machine's outward address, and listens on all
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": LOOPBACK,
}
NICENESS = "RAY_worker_niceness"
"""By how much a Ray that is started here lowers the priority of its workers: by 15 when it is not told, so that beside
any other work on the machine they get next to nothing of it."""
CELL_MEMORY_BYTES = 6 << 30
"""A tiny cell takes 4.7 GB at its peak, nearly all of it libraries in five processes."""
_MAKE = "accelerator_type:"
"""Ray adds a resource of such a name to a node on which it finds GPUs."""
CPUS_PER_CELL = 6
"""Ray's CPUs are a count of processes, not of cores: driver, controller, engine, trainer and room for two more."""


def import_ray() -> object:
    """Import Ray, or say what to install."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"training needs the package ray, which is not installed: {install_stack()}") from error
    return ray


def cells_that_fit() -> int:
    """Cells that this machine can run at once without GPUs: one for each core, and memory for all of them.

    A cell keeps about one core busy: its trainer and its engine take turns.
    """
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // CELL_MEMORY_BYTES))


@contextmanager
def ray_cluster(address: str | None, *, cells_at_once: int = 1, pretend_gpus: int = 0) -> Iterator[str]:
    """Be connected to Ray; yields the address that other processes of the run connect to.

    Args:
        address: of a running cluster (``auto``, ``host:port`` or ``ray://...``), or None for a local one.
        cells_at_once: how many cells a local Ray has to have room for.
        pretend_gpus: GPUs that a local Ray claims on a machine without any.

    Raises:
        UserError: no Ray answers at the address.
    """
    import_ray()
    import ray

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault(NICENESS, "0")
    with on_loopback() if address is None else nullcontext(), fork_server() if address is None else nullcontext():
        before = signal.getsignal(signal.SIGTERM)
        _connect(address, cells_at_once, pretend_gpus)
        try:
            _take_sigterm(signal.default_int_handler)
            context = ray.get_runtime_context()
            yield address if address and address.startswith("ray://") else context.gcs_address
        finally:
            ray.shutdown()
            _take_sigterm(before)


def _take_sigterm(handler: Any) -> None:
    """Batch systems send SIGTERM to end a run: as good as Ctrl-C. Ray would print a stack, and abort after 3 s."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def on_loopback() -> Iterator[None]:
    """Have a Ray that is started in the block, and all processes of a run, listen on loopback alone.

    Ray's own switch for this is meant for laptops whose firewall would ask; it is read while Ray is imported.
    """
    from ray._private import ray_constants

    before = {name: os.environ.get(name) for name in _ON_LOOPBACK}
    several = ray_constants.ENABLE_RAY_CLUSTER
    os.environ.update(_ON_LOOPBACK)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = several
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def gpus_by_node() -> dict[str, int]:
    """GPUs of each node that is alive and has any, on the Ray that this process is connected to."""
    import ray

    return {
        node["NodeID"]: int(node["Resources"].get("GPU", 0))
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("GPU", 0) >= 1
    }


def nodes_with_real_gpus() -> set[str]:
    """Nodes whose GPUs are of a make that Ray knows; others were told with ``--num-gpus`` to pretend some."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if any(name.startswith(_MAKE) for name in node["Resources"])}


@contextmanager
def end_when_gone(address: str) -> Iterator[None]:
    """End this process, with a sentence and the exit code of an interruption, when the Ray at the address is gone.

    At once and from a thread: whoever calls Ray then waits for it, at the end of the block too.
    """
    over = threading.Event()

    def watch() -> None:
        answered = time.monotonic()
        while not over.wait(LOOK_SECONDS):
            with suppress(OSError):
                _check_reachable(address)
                answered = time.monotonic()
            if time.monotonic() - answered > GONE_SECONDS:
                print(
                    f"reuse-bench: the Ray at {address} has been gone for {GONE_SECONDS:.0f} s; nothing that is "
                    "complete is lost: start a cluster again, and give the same command with its address",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(EXIT_INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _check_reachable(address: str) -> None:
    """Whether anything listens at ``host:port`` or ``ray://host:port``: Ray itself would try for minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        port = place.port
    except ValueError as error:
        raise ConnectionError(str(error)) from error
    if place.hostname and port:
        with socket.create_connection((place.hostname, port), timeout=REACH_SECONDS):
            pass


def connect(address: str) -> None:
    """Connect this process to the Ray at an address.

    Behind ``ray://`` Ray forks a server for each client, which now and then dies in gRPC's own handlers of forks before
    it has begun: it is asked for again.

    Raises:
        OSError, ValueError, RuntimeError: no Ray answers there.
    """
    import ray

    _check_reachable(address)
    for left in reversed(range(CLIENT_TRIES if address.startswith("ray://") else 1)):
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            return
        except ConnectionAbortedError:
            if not left:
                raise


def _connect(address: str | None, cells_at_once: int, pretend_gpus: int) -> None:
    import ray

    try:
        if address is not None:
            connect(address)
        else:
            ray.init(
                address="local",  # not another one that happens to run on this machine
                num_cpus=CPUS_PER_CELL * cells_at_once,
                num_gpus=None if gpus() else pretend_gpus or None,
                include_dashboard=False,
                object_store_memory=LOCAL_OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level="ERROR",
                _node_ip_address=LOOPBACK,
            )
    except (OSError, ValueError, RuntimeError) as error:
        where = f"at {address}" if address else "on this machine"
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"no Ray can be used {where} ({reason}): check --address, or leave it out to start a local one"
        ) from error
