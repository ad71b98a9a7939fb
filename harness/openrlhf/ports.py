"""Ports that nothing else takes between the moment in which they are chosen and the one in which they are bound.

OpenRLHF and vLLM ask the system for a free port, let it go, and bind it seconds later, after other processes were
started. The system gives such a port to whoever asks next, and each of Ray's processes asks for several: now and then
a training would end with EADDRINUSE. The ports here lie outside the range that the system chooses from.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 20_000
"""Ray's workers listen below, where a node was started with its defaults (10002 to 19999)."""
TRIES = 100


def candidate_ports(system_range: Path = SYSTEM_RANGE) -> range:
    """Ports that the system gives to nobody who asks for any; empty where it gives out all of them."""
    try:
        low, high = map(int, system_range.read_text().split())
    except (OSError, ValueError):
        low, high = 32_768, 60_999  # Linux's defaults
    below, above = range(LOWEST, low), range(max(high + 1, LOWEST), 65_536)
    return max(below, above, key=len)


def quiet_port() -> int:
    """A port that is free now and that the system does not give out; 0, any port, when there is none."""
    ports = candidate_ports()
    chance = random.SystemRandom()  # not the generator that a run has seeded: two runs would choose the same
    for _ in range(TRIES if ports else 0):
        port = chance.choice(ports)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    return 0


class QuietSocket(socket.socket):
    """A socket that binds a quiet port where any port is asked for."""

    def bind(self, address: Any) -> None:
        """Like `socket.socket.bind`, for addresses of host and port."""
        host, port = address
        super().bind((host, port or quiet_port()))


def install(*modules: Any) -> None:
    """Let these modules, which ask for free ports through ``socket.socket()``, get quiet ones."""
    for module in modules:
        module.socket = SimpleNamespace(socket=QuietSocket)


def meet_on_loopback() -> None:
    """Have torch's store, where processes find each other, listen on loopback when it is told to meet there.

    By itself it listens on all addresses of the machine, whatever the others were told.
    """
    # `torch.distributed` has a function of the module's name, which a plain import would find.
    rendezvous: Any = import_module("torch.distributed.rendezvous")
    if isinstance(rendezvous.TCPStore, partial):
        return
    rendezvous.TCPStore = partial(_store, rendezvous.TCPStore)


def _store(store: Any, host_name: str, port: int, **options: Any) -> Any:
    if options.get("is_master") and host_name.startswith("127."):
        with suppress(OSError):  # a store of this process listens there already
            options["master_listen_fd"] = socket.create_server((host_name, port)).detach()
    return store(host_name=host_name, port=port, **options)
