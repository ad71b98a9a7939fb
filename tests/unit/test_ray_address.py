"""An address at which no Ray answers: one sentence, and soon."""

from __future__ import annotations

import socket
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
