"""An address at which no Ray answers, or not any more: one sentence, and soon."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest

from harness.ray_cluster import connect, ray_cluster
from methods.errors import UserError


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "no-such-host.invalid:6379", "h:x"])
def test_nobody_is_there(address: str) -> None:
    pytest.importorskip("ray", reason="the training stack is not installed")
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        address = address.format(port=taken.getsockname()[1])
        before = time.process_time()
        message = rf"no Ray can be used at {address} \(.+\): check --address"
        with pytest.raises(UserError, match=message), ray_cluster(address):
            pass
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    ("scheme", "failures", "asked", "connected"),
    [("ray://", 2, 3, True), ("ray://", 3, 3, False), ("", 1, 1, False)],
)
def test_a_client_server_that_dies_while_it_starts_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, scheme: str, failures: int, asked: int, connected: bool
) -> None:
    ray = pytest.importorskip("ray", reason="the training stack is not installed")
    calls: list[str] = []

    def init(address: str, **_: object) -> None:
        calls.append(address)
        if len(calls) <= failures:
            raise ConnectionAbortedError("Initialization failure from server")

    monkeypatch.setattr(ray, "init", init)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{scheme}127.0.0.1:{server.getsockname()[1]}"
        with nullcontext() if connected else pytest.raises(ConnectionAbortedError):
            connect(address)
    assert calls == [address] * asked


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_is_gone_for_good_ends_the_run(comes_back: bool) -> None:
    script = (
        "import socket, sys, time\n"
        "from harness import ray_cluster\n"
        "ray_cluster.LOOK_SECONDS, ray_cluster.GONE_SECONDS = 0.05, 1.0\n"
        "ray = socket.create_server(('127.0.0.1', 0))\n"
        "host, port = ray.getsockname()\n"
        "with ray_cluster.end_when_gone(f'{host}:{port}'):\n"
        "    time.sleep(1.5)\n"
        "    ray.close()\n"
        "    time.sleep(0.3)\n"
        "    if sys.argv[1] == 'True': ray = socket.create_server((host, port))\n"
        "    time.sleep(3)\n"
        "time.sleep(0.2)\n"
        "ray.close()\n"
        "time.sleep(1.5)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(comes_back)], capture_output=True, text=True, timeout=60)
    if comes_back:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 3
        assert "has been gone for 1 s; nothing that is complete is lost" in done.stderr
