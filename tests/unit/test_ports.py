"""Ports that are chosen now and bound later must not be ones that the system gives to others meanwhile."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.openrlhf import ports


def a_range(folder: Path, text: str) -> Path:
    path = folder / "range"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32768\t60999\n", range(20_000, 32_768)),
        ("1024\t40000\n", range(40_001, 65_536)),
        ("1024\t65535\n", range(0)),
        ("no numbers", range(20_000, 32_768)),
    ],
)
def test_candidates_lie_outside_the_range_of_the_system(tmp_path: Path, text: str, expected: range) -> None:
    assert list(ports.candidate_ports(a_range(tmp_path, text))) == list(expected)


def test_a_quiet_port_is_free_and_no_port_that_the_system_gives_out() -> None:
    low, high = map(int, ports.SYSTEM_RANGE.read_text().split())
    for _ in range(50):
        port = ports.quiet_port()
        assert not low <= port <= high
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            listener.listen()


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("", ports.quiet_port()))
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "candidate_ports", lambda: range(taken, taken + 1))
        assert ports.quiet_port() == 0, "no quiet port: the system chooses"
        monkeypatch.setattr(ports, "candidate_ports", lambda: range(taken, taken + 10))
        assert taken < ports.quiet_port() < taken + 10


def test_a_module_that_asks_for_any_port_gets_a_quiet_one() -> None:
    module = SimpleNamespace(socket=socket)
    ports.install(module)
    with module.socket.socket() as asked:
        asked.bind(("", 0))
        assert asked.getsockname()[1] in ports.candidate_ports()


@pytest.mark.slow
def test_openrlhf_asks_for_its_ports_in_the_way_that_is_replaced() -> None:
    """In a process of its own, as in a worker: `harness.openrlhf.cpu.install` changes the process."""
    pytest.importorskip("openrlhf")
    program = """
from harness.openrlhf import cpu, ports
cpu.install()
from harness.openrlhf import actors
for module in (actors.launcher, actors.ppo_actor):
    assert module.socket.socket is ports.QuietSocket
assert actors.MethodPolicyActor._get_free_port() in ports.candidate_ports()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
