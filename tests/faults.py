"""Kill every part of a run, at every stage, and measure what is lost and how long it takes to go on.

``python -m tests.faults`` takes ten to twenty minutes on two cores and prints a table of docs/cluster.md; ``--write``
puts it there. Everything is real: OpenRLHF trains, vLLM generates and evaluates, Ray runs both. One cell goes through
all faults that one machine can have, or with ``--cluster`` through those of a cluster of several nodes, and must come
to what a cell comes to that is left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness import lifetime
from harness.evaluation import responses_done
from harness.ray_cluster import NICENESS
from harness.run_directory import RunDirectory
from harness.scheduler import read_journal

ROOT = Path(__file__).resolve().parents[1]
REUSE, UPDATES, RESPONSES = 4, 112, 2048
SETTINGS = (
    # Rollouts, updates and evaluations that are long enough to be hit, and a save point after each rollout batch. The
    # learning rate rises nearly to the end, so that a resumed run has to know where it was.
    "optimiser.warmup_ratio=0.9",
    *("update.prompts_per_update=16", f"update.updates={UPDATES}", "checkpoints.every_updates=4"),
    *("evaluation.tasks.tiny_sum4.samples=16", "evaluation.tasks.tiny_sum6.samples=16"),
)
PATIENCE_SECONDS = 600.0
LOSS_GAP = 1e-3
"""How far losses may be apart: sums of floats depend on the order of threads."""
END = "<!-- end of what was measured -->"

Stage = Literal["generation", "an update", "a checkpoint", "evaluation"]


@dataclass(frozen=True)
class Row:
    """One fault. ``lost`` has to be done again; ``seconds`` from the kill to the first update or response after it."""

    killed: str
    stage: Stage
    at: int
    lost: int
    seconds: float

    def __str__(self) -> str:
        unit = "responses" if self.stage == "evaluation" else "updates"
        at = f"{self.stage}, after {self.at} {unit}"
        return f"| {self.killed} | {at} | {self.lost or 'no'} {unit} | {self.seconds:.0f} s |"


@dataclass
class Cell:
    """`reuse-bench run` of one cell, again and again in the same folder."""

    folder: Path
    options: tuple[str, ...] = ()
    mark: str = field(default_factory=lambda: f"REUSE_BENCH_TEST_MARK={uuid.uuid4().hex}")
    driver: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        chosen = ["--protocol", "smoke", "--method", "respo", "--reuse", f"{REUSE}", "--seed", "0"]
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        places = ["--runs", f"{self.folder / 'runs'}", "--results", f"{self.folder / 'results'}"]
        name, _, value = self.mark.partition("=")
        with self.log.open("ab") as log:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "reuse_bench.main", "run", *chosen, *settings, *places, *self.options],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT), name: value},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def run(self) -> RunDirectory:
        found = sorted((self.folder / "runs").glob("smoke.open-*"))
        return RunDirectory((found or [self.folder])[0] / "tiny-qwen3" / f"n{REUSE}" / "respo" / "seed0")

    def wait(self, condition: Callable[[], Any], every: float = 0.005) -> Any:
        """What the condition says when it comes true, while the driver lives."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            assert time.monotonic() < end, f"nothing happened in time: {self.log}"
            assert self.driver is None or self.driver.poll() is None, f"the command has ended: {self.log}"
            time.sleep(every)
        return found

    def finish(self) -> None:
        assert self.driver
        assert self.driver.wait(PATIENCE_SECONDS * 2) == 0, f"the command has failed: {self.log}"

    # How far it is

    def updates(self) -> list[dict[str, Any]]:
        return self.run.read_updates()

    def saved(self) -> int:
        """Updates that a complete checkpoint holds."""
        number = re.fullmatch(r"global_step(\d+)", self.latest().strip())
        return int(number.group(1)) * REUSE if number else 0

    def latest(self) -> str:
        path = self.run.checkpoints / "_actor" / "latest"
        with suppress(FileNotFoundError):
            return path.read_text()
        return ""

    def rollouts(self) -> list[dict[str, Any]]:
        path = self.run.training / "rollouts.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    # Its processes

    def members(self) -> list[lifetime.Member]:
        return [
            one for path in (self.folder / "runs" / lifetime.FOLDER).glob("*") for one in lifetime.processes_of(path)
        ]

    def trainer(self) -> list[int]:
        """The process that trains, when it has said so in this attempt."""
        if not self.run.worker.exists():
            return []
        pid = json.loads(self.run.worker.read_text())["pid"]
        return [one.pid for one in self.members() if one.pid == pid]

    def engine(self) -> list[int]:
        """vLLM's own process, which generates."""
        return [one.pid for one in self.members() if one.name.startswith("EngineCore")]

    def evaluation(self) -> list[int]:
        return [one.pid for one in self.members() if one.name == "lm_eval_vllm"]

    def fork_server(self) -> list[int]:
        assert self.driver
        lists = Path(f"/proc/{self.driver.pid}/task").glob("*/children")  # another thread starts another server
        children = [pid for path in lists for pid in path.read_text().split()]
        return [int(pid) for pid in children if b"harness.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def the_driver(self) -> list[int]:
        assert self.driver
        return [self.driver.pid]

    def everything(self) -> list[int]:
        """Driver, Ray, training, engine, all of it: whatever has the mark in its environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found

    # Stages

    def reach(self, stage: Stage, beyond: int) -> None:
        """Wait until the run is in the middle of this stage, and has saved more than ``beyond`` updates."""
        if stage == "evaluation":
            self.wait(lambda: responses_done(self.run.evaluation) - beyond > RESPONSES // 8)
            return
        self.wait(lambda: self.saved() > beyond and self.trainer() and self.engine())
        if stage == "an update":
            # The second of four has just been written down.
            before = len(self.updates())
            self.wait(lambda: len(lines := self.updates()) > before and lines[-1]["mini_batch"] == 1)
        elif stage == "a checkpoint":
            folder, before = self.run.checkpoints / "_actor", {"", self.latest()}
            names = {path.name for path in folder.glob("global_step*")} | before
            self.wait(lambda: {path.name for path in folder.glob("global_step*")} - names, every=0.0005)
        else:
            # All updates of a rollout batch are saved; then the engine works.
            before = self.saved()
            self.wait(lambda: self.saved() > before)
            (engine,) = self.engine()
            start = processor_seconds(engine)
            self.wait(lambda: processor_seconds(engine) > start + 0.5)
            assert len(self.rollouts()) == self.saved() // REUSE == len(self.updates()) // REUSE, "generation is over"


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill(pids: Callable[[], list[int]], again: bool = False) -> None:
    """SIGKILL them; ``again`` until none is left."""
    found = pids()
    assert found, "there is nothing to kill"
    while found:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found = pids() if again else []


def fault(
    cell: Cell, killed: str, stage: Stage, do: Callable[[], object], beyond: int, *, driver_dies: bool = False
) -> tuple[Row, int]:
    """Let one fault happen, and wait until the run has got further than it was.

    Returns it, and what the next fault has to wait for.
    """
    cell.reach(stage, beyond)
    evaluating = stage == "evaluation"
    working = cell.evaluation() if evaluating else cell.trainer()
    do()
    moment = time.monotonic()
    if driver_dies:
        assert cell.driver
        cell.driver.wait()
        cell.start()
    # What is not killed itself goes on for a moment, before it sees that its node or its driver is gone.
    cell.wait(lambda: not set(working) & {one.pid for one in cell.members()})
    at = responses_done(cell.run.evaluation) if evaluating else len(cell.updates())
    saved = cell.saved()
    if evaluating:
        kept = at
        cell.wait(lambda: responses_done(cell.run.evaluation) > at or recorded(cell))
    else:
        cell.wait(lambda: (now := cell.trainer()) and now != working)
        kept = saved
        cell.wait(lambda: len(cell.updates()) > saved)
    seconds = time.monotonic() - moment
    row = Row(killed, stage, at, at - kept, seconds)
    print(row, flush=True)
    return row, at if evaluating else saved


def recorded(cell: Cell) -> list[Path]:
    return list((cell.folder / "results").rglob("seed0.json"))


def on_one_machine(folder: Path) -> tuple[Cell, list[Row]]:
    """The parts of a run, one after the other, with a local Ray that the command starts."""
    cell, rows, beyond = Cell(folder), [], 0
    faults: list[tuple[str, Callable[[], list[int]], tuple[Stage, ...]]] = [
        ("the trainer", cell.trainer, ("generation", "an update", "a checkpoint")),
        ("vLLM's engine process", cell.engine, ("generation", "an update", "a checkpoint")),
        ("the server that forks the others", cell.fork_server, ("an update",)),
        ("the driver", cell.the_driver, ("generation", "an update", "a checkpoint")),
        ("everything", cell.everything, ("generation", "an update", "a checkpoint")),
        ("the evaluating process, with its engine", cell.evaluation, ("evaluation",)),
        ("the driver", cell.the_driver, ("evaluation",)),
        ("everything", cell.everything, ("evaluation",)),
    ]
    cell.start()
    for killed, pids, stages in faults:
        for stage in stages:
            if stage == "evaluation" and rows[-1].stage != "evaluation":
                beyond = 0
            again = killed == "everything"
            row, beyond = fault(
                cell,
                killed,
                stage,
                lambda pids=pids, again=again: kill(pids, again),  # type: ignore[misc]
                beyond,
                driver_dies=again or killed == "the driver",
            )
            rows.append(row)
    cell.finish()
    return cell, rows


@contextmanager
def cluster() -> Iterator[Any]:
    """A head without GPUs; nodes come later."""
    from ray.cluster_utils import Cluster

    os.environ.pop("RAY_ADDRESS", None)
    os.environ[NICENESS] = "0"  # the nodes share one machine, and with the driver
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    head = {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False, "object_store_memory": 200 << 20}
    found = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield found
    finally:
        found.shutdown()


def on_a_cluster(folder: Path) -> tuple[Cell, list[Row], float]:
    """Nodes are lost while their cell trains or evaluates, each with all that runs on it; and a driver.

    Returns also the seconds from the start to the first update.
    """
    with cluster() as found:
        cell, rows, beyond = Cell(folder, ("--address", found.address)), [], 0
        nodes = {}

        def add() -> None:
            node = found.add_node(num_cpus=4, num_gpus=2, object_store_memory=200 << 20)
            nodes[node.node_id] = node

        def lose() -> None:
            started = [line for line in read_journal(folder / "runs") if line["event"] == "started"]
            found.remove_node(nodes.pop(started[-1]["nodes"][0]), allow_graceful=False)

        for _ in range(3):
            add()
        seconds = first_update(cell)
        plan: list[tuple[str, Stage, Callable[[], object]]] = [
            ("the node of the cell", "generation", lose),
            ("the node of the cell", "an update", lose),
            ("the node of the cell", "a checkpoint", lose),
            ("the driver", "an update", lambda: kill(cell.the_driver)),
            ("the node of the cell", "evaluation", lose),
        ]
        for killed, stage, do in plan:
            beyond = 0 if stage == "evaluation" else beyond
            row, beyond = fault(cell, killed, stage, do, beyond, driver_dies=killed == "the driver")
            rows.append(row)
            if len(nodes) < 3:
                add()
        cell.finish()
    return cell, rows, seconds


def first_update(cell: Cell) -> float:
    """Start the cell; the seconds until it has updated its policy once."""
    began = time.monotonic()
    cell.start()
    cell.wait(lambda: cell.run.root.exists() and cell.updates())
    seconds = time.monotonic() - began
    print(f"the first update came {seconds:.0f} s after the start", flush=True)
    return seconds


def left_alone(folder: Path) -> tuple[Cell, float]:
    """The same cell without any fault, and the seconds to its first update."""
    cell = Cell(folder)
    seconds = first_update(cell)
    cell.finish()
    return cell, seconds


def compare(harmed: Cell, alone: Cell, rows: list[Row]) -> str:
    """Check that the harmed run is complete and did the same work; in one sentence."""
    ours, theirs = harmed.updates(), alone.updates()
    assert [line["update"] for line in ours] == list(range(1, UPDATES + 1))
    for exact in ("rollout", "mini_batch", "learning_rate", "responses"):
        assert [line[exact] for line in ours] == [line[exact] for line in theirs], exact
    pairs = list(zip(harmed.rollouts(), alone.rollouts(), strict=True))
    assert all(one["first_row"] == other["first_row"] for one, other in pairs)
    assert harmed.run.prompts.read_bytes() == alone.run.prompts.read_bytes()
    gap = max(abs(one["loss"] - other["loss"]) for one, other in zip(ours, theirs, strict=True))
    assert gap < LOSS_GAP, gap
    same = sum(one["sequences_sha256"] == other["sequences_sha256"] for one, other in pairs)
    (path,) = recorded(harmed)
    record = json.loads(path.read_text())
    assert record["status"] == "done"
    # It says of every attempt from where it went on.
    trained = [row for row in rows if row.stage != "evaluation"]
    first = [1, *(row.at - row.lost + 1 for row in trained)]
    assert [one["first_update"] for one in record["attempts"]] == first
    assert [one["outcome"] for one in record["attempts"]].count("completed") == 1
    results = f"{harmed.folder / 'results'}"
    verified = subprocess.run(
        [sys.executable, "-m", "reuse_bench.main", "verify", results], cwd=ROOT, capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout
    return f"largest difference of a loss {gap:.2g}, {same} of {len(pairs)} rollout batches the same to the token"


HEAD = "| killed | during | to be done again | until the next new one |\n|---|---|---|---:|\n"


def every_fault(folder: Path, with_cluster: bool) -> str:
    """Those of one machine or of a cluster; returns what goes into the documents."""
    alone, seconds = left_alone(folder / "left-alone")
    where = "On one machine"
    if with_cluster:
        where = "On a cluster of three nodes, where every process imports the training stack by itself"
        found, rows, seconds = on_a_cluster(folder / "cluster")
    else:
        found, rows = on_one_machine(folder / "one-machine")
    table = HEAD + "\n".join(map(str, rows))
    before = f"{where}, a run that is left alone makes its first update {seconds:.0f} s after its start:"
    return (
        f"{textwrap.fill(before, 120)}\n\n{table}\n\n"
        f"Against a run that was left alone: {compare(found, alone, rows)}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the runs go [default: a temporary one]")
    parser.add_argument("--write", type=Path, help="a document whose tables are to be replaced")
    parser.add_argument("--cluster", action="store_true", help="those of a Ray cluster on this machine, nodes included")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        text = every_fault(options.folder or Path(temporary), options.cluster)
    print(text)
    if options.write:
        begin = f"<!-- measured: python -m tests.faults{' --cluster' if options.cluster else ''} -->"
        before, _, rest = options.write.read_text().partition(begin)
        _, found, after = rest.partition(END)
        assert found, f"{options.write} has no place for the table"
        options.write.write_text(f"{before}{begin}\n\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
