"""The scheduler on a real Ray cluster of several nodes, with light work in the place of training, and with crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.openrlhf.ports import quiet_port
from harness.scheduler import read_journal, request_stop
from tests.standin import Standin, let_go, lines

pytestmark = [pytest.mark.slow, pytest.mark.stack]

ROOT = Path(__file__).resolve().parents[2]


def wait_until(condition: Callable[[], Any], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.1)


OBSERVER = """
import json, sys, time, ray
from ray.util.placement_group import placement_group_table
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
with open(sys.argv[2], "a") as stream:
    while True:
        capacity = {n["NodeID"]: n["Resources"].get("GPU", 0) for n in ray.nodes() if n["Alive"]}
        used = {}
        for group in placement_group_table().values():
            if group["state"] == "CREATED":
                for index, node in group["bundles_to_node_id"].items():
                    used[node] = used.get(node, 0) + group["bundles"][index].get("GPU", 0)
        stream.write(json.dumps([capacity, used]) + "\\n")
        stream.flush()
        time.sleep(0.2)
"""


@dataclass
class Lab:
    """A cluster that can lose nodes, and drivers that can be killed."""

    cluster: Any
    nodes: list[Any]
    client: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def driver(self, runs: Path, cells: list[Standin], address: str | None = None) -> subprocess.Popen[str]:
        runs.mkdir(parents=True, exist_ok=True)
        spec = runs / "cells.json"
        spec.write_text(json.dumps([vars(cell) for cell in cells]))
        return self._start(
            [
                *(sys.executable, "-W", "ignore", "-m", "tests.standin"),
                *(address or self.cluster.address, str(runs), str(spec)),
            ]
        )

    def observer(self, path: Path) -> subprocess.Popen[str]:
        return self._start([sys.executable, "-W", "ignore", "-c", OBSERVER, self.cluster.address, str(path)])

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.processes.append(process)
        return process


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Three nodes of two pretend GPUs, and a head without any."""
    pytest.importorskip("ray", reason="the training stack is not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.delenv("RAY_ADDRESS", raising=False)
        # gRPC's handlers of forks start threads in the child, which sometimes end it (SIGSEGV) before Ray's client
        # server has begun.
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                **{"num_cpus": 2, "num_gpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20},
                "ray_client_server_port": (port := quiet_port()),
            },
        )
        nodes = [cluster.add_node(num_cpus=4, num_gpus=2, object_store_memory=80 << 20) for _ in range(3)]
        found = Lab(cluster, nodes, f"ray://127.0.0.1:{port}")
        try:
            yield found
        finally:
            for process in found.processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            cluster.shutdown()


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    return output


def assert_complete(cell: Standin) -> None:
    """All updates once and in order, trained once, evaluated once."""
    assert [line["update"] for line in lines(cell.run / "updates.jsonl")] == list(range(1, cell.updates_in_all + 1))
    assert len(lines(cell.run / "trained")) == 1
    assert len(lines(cell.run / "evaluations.jsonl")) == 1
    assert json.loads((cell.run / "record.json").read_text()) == {"updates": cell.updates_in_all}


def assert_no_gpu_twice(runs: Path) -> None:
    """No GPU had two holders at a time."""
    beats: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in (runs / "beats").glob("*.jsonl"):
        for beat in lines(path):
            # A worker of Ray that has evaluated one cell may evaluate another one later.
            beats[beat["node"], beat["gpu"]][f"{beat['holder']} {beat['cell']}"].append(beat["time"])
    assert beats
    for holders in beats.values():
        spans = sorted((min(times), max(times)) for times in holders.values())
        for (_, last), (first, _) in pairwise(spans):
            assert last <= first


def test_from_outside_the_cluster(lab: Lab, tmp_path: Path) -> None:
    """Through Ray's client; what runs on the nodes connects as ever."""
    runs = tmp_path / "runs"
    cell = Standin("cell", str(runs), updates_in_all=2)
    ended(lab.driver(runs, [cell], lab.client))
    assert_complete(cell)
    assert [line["address"] for line in lines(cell.run / "attempts.jsonl")] == [lab.cluster.address]


def test_through_the_death_of_a_node_a_worker_and_the_driver(lab: Lab, tmp_path: Path) -> None:
    """Four cells on three nodes. Nothing is lost, nothing done twice, and no GPU given twice."""
    runs = tmp_path / "runs"
    cells = [
        Standin(f"cell{index}", str(runs), updates_in_all=30 - 2 * index, seconds=0.15, waits=True)
        for index in range(4)
    ]
    observations = tmp_path / "observations.jsonl"
    observer = lab.observer(observations)
    driver = lab.driver(runs, cells)
    first = cells[:3]
    wait_until(lambda: all(cell.updates() >= 4 for cell in first))
    assert cells[3].updates() == 0  # the shortest waits: there are places for three
    wait_until(lambda: any(sum(used.values()) == 6 for _, used in lines(observations)))  # all GPUs in use at once

    # a node disappears
    started = {line["id"]: line["nodes"][0] for line in read_journal(runs) if line["event"] == "started"}
    lost = lab.nodes.pop()
    victim = next(cell for cell in first if started[cell.id] == lost.node_id)
    before = victim.updates()
    lab.cluster.remove_node(lost, allow_graceful=False)
    wait_until(lambda: any((line["event"], line["id"]) == ("retried", victim.id) for line in read_journal(runs)))

    # a worker is killed
    other = next(cell for cell in first if cell is not victim)
    assert not other.is_trained()
    os.kill(lines(other.run / "attempts.jsonl")[-1]["pid"], signal.SIGKILL)
    let_go(next(cell for cell in first if cell not in (victim, other)))  # there are places for two
    wait_until(lambda: len(lines(other.run / "attempts.jsonl")) == 2)

    # the driver is killed
    at = other.updates()
    wait_until(lambda: other.updates() > at or at == other.updates_in_all - 2)
    driver.kill()
    driver.wait()
    assert not all(cell.ending() for cell in cells)

    # and the same command is given again
    let_go(*cells)
    endings = json.loads(ended(lab.driver(runs, cells)).splitlines()[-1])
    observer.kill()
    assert endings == dict.fromkeys(endings, "done")
    assert set(endings) == {cell.id for cell in cells}
    for cell in cells:
        assert_complete(cell)
    assert_no_gpu_twice(runs)
    resumed = [line["from"] for line in lines(victim.run / "attempts.jsonl")]
    assert resumed[0] == 0
    assert resumed[1] >= before  # from its last checkpoint, not from the start
    samples = lines(observations)
    assert len(samples) > 20
    for capacity, used in samples:
        assert all(gpus <= capacity.get(node, 2) for node, gpus in used.items())

    # a third time: nothing is left to do
    attempts = [len(lines(cell.run / "attempts.jsonl")) for cell in cells]
    ended(lab.driver(runs, cells))
    assert [len(lines(cell.run / "attempts.jsonl")) for cell in cells] == attempts
    lab.nodes.append(lab.cluster.add_node(num_cpus=4, num_gpus=2, object_store_memory=80 << 20))


def test_a_cell_that_fails_does_not_stop_the_others(lab: Lab, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    good = Standin("good", str(runs), updates_in_all=4)
    same = Standin("same", str(runs), fails="same")
    wrong = Standin("wrong", str(runs), fails="input")
    endings = json.loads(ended(lab.driver(runs, [same, wrong, good])).splitlines()[-1])
    assert endings == {"good": "done", "same": "failed", "wrong": "failed"}
    assert_complete(good)
    assert len(lines(same.run / "attempts.jsonl")) == 2  # twice the same way
    assert "no luck" in lines(same.run / "given_up.jsonl")[0]["reason"]
    assert len(lines(wrong.run / "attempts.jsonl")) == 1  # trying again would not help
    assert lines(wrong.run / "given_up.jsonl")[0]["reason"] == "the file is wrong: mend it"


def test_stopped_and_continued(lab: Lab, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    cell = Standin("cell", str(runs), updates_in_all=12, evaluation_gpus=2, waits=True)
    driver = lab.driver(runs, [cell])
    wait_until(lambda: cell.updates() >= 4)

    # a second driver is refused while the first one works
    refused = ended(lab.driver(runs, [cell]), 2)
    assert "another reuse-bench run" in refused
    assert str(driver.pid) in refused

    assert request_stop(runs)
    ended(driver, 3)
    assert not cell.is_trained()
    assert not request_stop(runs)  # nobody is left to stop
    let_go(cell)
    ended(lab.driver(runs, [cell]))
    assert_complete(cell)
    assert [line["from"] > 0 for line in lines(cell.run / "attempts.jsonl")] == [False, True]


def test_too_large_a_cell(lab: Lab, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    said = ended(lab.driver(runs, [Standin("large", str(runs), trainers=4)]), 2)
    assert "cell large needs 5 GPUs on one node" in said
    assert "6 GPUs in all" in said


def test_gpus_that_a_node_only_pretends_to_have_are_not_called_gpus(lab: Lab, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    real = lab.cluster.add_node(num_gpus=4, resources={"accelerator_type:H200": 1}, object_store_memory=80 << 20)
    try:
        ended(lab.driver(runs, [Standin("small", str(runs), updates_in_all=1)]))
    finally:
        lab.cluster.remove_node(real)
    said = {line["id"]: line["word"] for line in read_journal(runs) if line["event"] == "node up"}
    assert said.pop(real.node_id) == "4 GPUs"
    assert list(said.values()) == ["room for 1 cell"] * 3


def alone(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    """A process that has a local Ray of its own, without a fork server."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, ray, time\n"
        "from harness import fork_server\n"
        "from harness.ray_cluster import ray_cluster\n"
        f"fork_server.cpu.has_cuda = lambda: True\n{text}"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "REUSE_BENCH_"))}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_workers_of_a_local_ray_have_the_priority_of_the_command(tmp_path: Path) -> None:
    """Those that the fork server forks have it in any case; these are started by Ray."""
    text = (
        "look = lambda: (os.getpriority(os.PRIO_PROCESS, 0), os.environ.get(fork_server.VARIABLE))\n"
        "with ray_cluster(None, pretend_gpus=1):\n"
        "    assert ray.get(ray.remote(look).remote()) == look(), ray.get(ray.remote(look).remote())\n"
    )
    ended(alone(tmp_path, text))


def test_sigterm_is_as_good_as_an_interrupt(tmp_path: Path) -> None:
    text = (
        "try:\n"
        "    with ray_cluster(None, pretend_gpus=1):\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(4)  # there is time to put things in order\n"
        "    print('in order')\n"
    )
    process = alone(tmp_path, text)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert ended(process) == "in order\n"
