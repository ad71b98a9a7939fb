"""An address at which no Ray answers, or not any more: one sentence, and soon."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from harness.ray_cluster import ray_cluster
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
