"""Run many cells on a Ray cluster: as many at once as fit, and on through crashes.

One driver decides (`harness.queueing`), Ray reserves and runs. For each step of a cell, training or evaluation, one
placement group takes all of its GPUs at once on nodes that the driver has chosen; the step then runs as a Ray task on
the first of them, and OpenRLHF is handed the reserved group (`harness.openrlhf.placement`). A group belongs to the
driver: when the driver dies, Ray removes it and ends what runs inside, so that nothing keeps GPUs or goes on unwatched.
GPUs are given to the next step when all processes of the one before are gone (`harness.lifetime`).

What a step has done lies in the cell's folder, which all nodes must see. A step that fails is tried again, and
continues from there; one that fails twice in the same way without getting further is given up, and the others go on.
``schedule.jsonl`` in the folder of runs tells what was started where, and how it ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import RawIOBase
from pathlib import Path
from typing import Any, Literal, Protocol

from harness import lifetime, plan, runner, training
from harness.fork_server import worker_runtime_env
from harness.openrlhf.placement import VARIABLE, Reservation
from harness.protocol import Runtime
from harness.queueing import Job, Need, Nodes, Queue, Stage
from harness.ray_cluster import end_when_gone, gpus_by_node, nodes_with_real_gpus
from harness.records import regular
from harness.run_directory import now
from harness.runner import CellJob
from methods.errors import UserError

Ending = Literal["done", "collapsed", "failed"]
Event = Literal[
    "started", "ended", "retried", "given up", "node up", "node down", "not placed", "still there", "interrupted"
]
Listener = Callable[[Event, str, str], None]
"""Called with what happened, the cell's or node's id, and a word to it."""

JOURNAL = "schedule.jsonl"
DRIVER_LOCK = ".driver.lock"
STOP_FILE = ".stop"

POLL_SECONDS = 0.5
RESERVE_SECONDS = 10.0
"""How long Ray may take to grant GPUs that should be free; then somebody else has them."""
LOOK_SECONDS = 2.0
"""How often Ray is asked which nodes there are."""
COOL_DOWN_SECONDS = 20.0
"""How long a node is left alone after that, or after it has failed."""
GRACE_SECONDS = 30.0
"""How long interrupted steps have to leave their state in order."""
LINGER_SECONDS = 20.0
"""How long the processes of a step may outlive it before they are killed."""
FORMER_SECONDS = 120.0
"""How long a driver waits for what an earlier one has left."""
MAX_ATTEMPTS = 10
_CARRIED = re.compile(r"^REUSE_BENCH_(?!PLACEMENT|WORKER)\w+$|^HF_(HOME|HUB_CACHE|HUB_OFFLINE)$|^XDG_CACHE_HOME$")
"""Variables of the driver that the steps need too: where data and models lie. Nothing secret."""
SAME_WAY = {"work": 2, "machine": 4}
"""A step is given up at that many failures in the same way without progress: its own, or those of its machine."""


class Work(Protocol):
    """A cell, as the scheduler sees it. Shipped to Ray workers by pickle, within one run of the driver only."""

    @property
    def id(self) -> str:
        """Its name; unique in the grid."""

    @property
    def runtime(self) -> Runtime:
        """How many GPUs it takes, and how they are split."""

    def ending(self) -> Ending | None:
        """How it has ended; None when it has not, or failed before."""

    def is_trained(self) -> bool:
        """Whether only the evaluation is missing."""

    def updates(self) -> int:
        """Policy updates that are safe on disk: what tells a retry that got further from one that did not."""

    def train(self, ray_address: str) -> None:
        """Train to the end, from wherever the folder stands. Runs on a node of the cluster."""

    def evaluate(self) -> None:
        """Evaluate and record. Runs on a node of the cluster, with its GPUs visible."""

    def wait_again(self, reason: str) -> None:
        """Say in the cell's state that it waits for another attempt."""

    def give_up(self, reason: str) -> None:
        """Record the failure."""


@dataclass(frozen=True)
class Item:
    """A cell with its estimated times, on which only the order depends."""

    work: Work
    training_seconds: float
    evaluation_seconds: float

    def job(self, stage: Stage) -> Job:
        """What it waits for in this stage."""
        runtime = self.work.runtime
        if stage == "evaluation":
            return Job(self.work.id, stage, Need(runtime.evaluation_gpus), self.evaluation_seconds)
        need = Need(runtime.gpus // runtime.nodes, runtime.nodes)
        return Job(self.work.id, stage, need, self.training_seconds)


@dataclass
class Failures:
    """The failures of one cell, and whether another attempt makes sense."""

    seen: list[tuple[str, int]] = field(default_factory=list)

    def add(self, reason: str, updates: int, kind: Literal["work", "machine"]) -> bool:
        """Note a failure at that many updates; True when the cell is to be given up."""
        signature = f"{kind}: {signature_of(reason)}"
        self.seen.append((signature, updates))
        stuck = sum(1 for before, at in self.seen if before == signature and at >= updates)
        return stuck >= SAME_WAY[kind] or len(self.seen) >= MAX_ATTEMPTS

    def in_vain(self) -> int:
        """How many failures there were since the last that came with more updates than those before."""
        return sum(1 for _, at in self.seen if at >= self.seen[-1][1])


def signature_of(reason: str) -> str:
    """A failure without what differs from one time to the next: numbers, addresses, paths."""
    return re.sub(r"0x[0-9a-fA-F]+|/[^\s:,)]+|\b[0-9a-f]{16,}\b|\d+", "#", reason)[:300]


@dataclass(frozen=True)
class _Running:
    """A step that runs, or has asked Ray for its GPUs."""

    item: Item
    job: Job
    nodes: tuple[str, ...]
    group: Any
    started: float
    file: Path | None = None


def run_grid(
    items: Sequence[Item],
    ray_address: str,
    runs: Path,
    *,
    listener: Listener | None = None,
    tick: Callable[[], None] | None = None,
    retry_seconds: float = 5.0,
) -> dict[str, Ending]:
    """Bring every cell to its end, on the Ray that this process is connected to; returns how each has ended.

    Args:
        items: the cells. Those that have ended already are left alone.
        ray_address: where training processes connect to.
        runs: folder of runs, seen by all nodes.
        listener: told of everything that happens.
        tick: called again and again, about twice a second or more often.
        retry_seconds: pause before a cell is tried again; doubled for each of its failures without progress.

    Raises:
        UserError: a cell can never fit, another driver works in ``runs``, or a node does not see it.
        KeyboardInterrupt: interrupted, or stopped with `request_stop`; the same call continues.
    """
    with driver_lock(runs), regular(runs / JOURNAL).open("ab", buffering=0) as journal, end_when_gone(ray_address):
        return _Driver(items, ray_address, runs, journal, listener, tick, retry_seconds).run()


class _Driver:
    def __init__(
        self,
        items: Sequence[Item],
        ray_address: str,
        runs: Path,
        journal: RawIOBase,
        listener: Listener | None,
        tick: Callable[[], None] | None,
        retry_seconds: float,
    ) -> None:
        self.items = {item.work.id: item for item in items}
        if len(self.items) != len(items):
            raise ValueError("two cells have the same id")
        self.address, self.runs, self.journal = ray_address, runs, journal
        self.listener, self.tick, self.retry_seconds = listener, tick, retry_seconds
        self.endings: dict[str, Ending] = {}
        self.failures = {identity: Failures() for identity in self.items}
        self.queue = Queue()
        self.later: list[tuple[float, Job]] = []
        self.cooling: dict[str, float] = {}
        self.asked: list[_Running] = []
        self.running: dict[Any, _Running] = {}
        self.leaving: list[_Running] = []
        self.nodes = Nodes({})
        self.looked = 0.0
        self.step = _remote_step()

    def run(self) -> dict[str, Ending]:
        self._see_nodes(first=True)
        for item in self.items.values():
            ending = item.work.ending()
            if ending:
                self.endings[item.work.id] = ending
                continue
            for stage in ("training", "evaluation"):
                self.nodes.check(item.job(stage).need, f"the {stage} of cell {item.work.id}")
            self.queue.add(item.job("evaluation" if item.work.is_trained() else "training"))
        _check_shared(self.runs, list(self.nodes.capacity))
        self._let_former_end()
        try:
            while len(self.endings) < len(self.items):
                if (self.runs / STOP_FILE).exists():
                    raise KeyboardInterrupt
                self._see_nodes()
                self._start()
                self._collect()
                self._clear()
                if self.tick:
                    self.tick()
        except BaseException:
            self._end_all()
            raise
        return self.endings

    # What happens ---------------------------------------------------------------------------------------------

    def _tell(self, event: Event, identity: str, word: str = "", **facts: object) -> None:
        line = {"time": now(), "event": event, "id": identity, "word": word, **facts}
        with suppress(OSError):  # a full disk ends the cells that need it, each with its sentence, not the driver
            self.journal.write(f"{json.dumps(line)}\n".encode())
        if self.listener:
            self.listener(event, identity, word)

    def _see_nodes(self, first: bool = False) -> None:
        if not first and time.monotonic() - self.looked < LOOK_SECONDS:
            return
        self.looked = time.monotonic()
        alive = gpus_by_node()
        for node in [node for node in self.nodes.capacity if node not in alive]:
            self.nodes.remove(node)
            self._tell("node down", node)
        new = [node for node in alive if node not in self.nodes.capacity]
        real = nodes_with_real_gpus() if new else set()
        for node in new:
            self.nodes.add(node, alive[node])
            self._tell("node up", node, self._room(alive[node], pretend=node not in real))
        if first and not alive:
            raise UserError(
                f"the Ray cluster at {self.address} has no GPUs: add nodes that have, or start Ray with --num-gpus for "
                "pretend ones on a machine without"
            )

    def _room(self, gpus: int, pretend: bool) -> str:
        """What a node has, in words: pretend GPUs are a way to count cells, and no GPUs."""
        if not pretend:
            return f"{gpus} GPUs"
        cells = gpus // min(item.job("training").need.gpus for item in self.items.values())
        return f"room for {cells} cell{'' if cells == 1 else 's'}"

    def _start(self) -> None:
        moment = time.monotonic()
        leaving = {one.job.id for one in self.leaving}
        for entry in [entry for entry in self.later if entry[0] <= moment and entry[1].id not in leaving]:
            self.later.remove(entry)
            self.queue.add(entry[1])
        self.cooling = {node: until for node, until in self.cooling.items() if until > moment}
        for job, nodes in self.queue.start(self.nodes, avoiding=self.cooling):
            group = _reserve(job, nodes)
            self.asked.append(_Running(self.items[job.id], job, nodes, group, moment))
        for one in list(self.asked):
            if _is_granted(one.group):
                self.asked.remove(one)
                file = lifetime.new_step(self.runs, one.group.id.hex())
                reference = _submit(self.step, one.item.work, one.job, one.group, one.nodes, self.address, file)
                self.running[reference] = replace(one, started=time.monotonic(), file=file)
                self._tell("started", one.job.id, one.job.stage, nodes=one.nodes, gpus=one.job.need.total)
            elif moment - one.started > RESERVE_SECONDS:
                # The GPUs are somebody else's, or the node has just died: look elsewhere, and here again later.
                self.asked.remove(one)
                _remove(one.group)
                self.nodes.give_back(one.job.need, one.nodes)
                self._cool(one.nodes)
                self.queue.add(one.job)
                self._tell("not placed", one.job.id, "the GPUs are not to be had", nodes=one.nodes)

    def _cool(self, nodes: Iterable[str]) -> None:
        self.cooling |= dict.fromkeys(nodes, time.monotonic() + COOL_DOWN_SECONDS)

    def _collect(self) -> None:
        import ray

        # Ray grants free GPUs within milliseconds: no need to let them wait.
        patience = POLL_SECONDS / 10 if self.asked else POLL_SECONDS
        if not self.running:
            time.sleep(patience)
            return
        ready, _ = ray.wait(list(self.running), num_returns=1, timeout=patience)
        for reference in ready:
            one = self.running.pop(reference)
            self.leaving.append(replace(one, started=time.monotonic()))
            try:
                ray.get(reference)
            except BaseException as error:
                _remove(one.group)
                self._failed(one, error)
            else:
                _remove(one.group)
                self._ended(one)

    def _clear(self) -> None:
        """Take back the GPUs of steps that have ended, when their last process is gone."""
        for one in list(self.leaving):
            assert one.file
            if lifetime.is_over(one.file):
                self.leaving.remove(one)
                self.nodes.give_back(one.job.need, one.nodes)
            elif time.monotonic() - one.started > LINGER_SECONDS and one.group:
                self._tell("still there", one.job.id, lifetime.said(one.file), nodes=one.nodes)
                _kill(one.file, one.nodes)
                self.leaving[self.leaving.index(one)] = replace(one, group=None)  # once

    def _let_former_end(self) -> None:
        """Wait for the processes that a dead driver has left: Ray counts their GPUs as free already.

        Raises:
            UserError: they do not end.
        """
        started, killed = time.monotonic(), False
        while left := lifetime.lingering(self.runs):
            waited = time.monotonic() - started
            if waited > FORMER_SECONDS:
                raise UserError(
                    f"{self.runs}: {lifetime.said(left[0])} of an earlier run may still use GPUs: end it, and give the "
                    "same command again"
                )
            if waited > LINGER_SECONDS and not killed:
                killed = True
                for file in left:
                    _kill(file, list(self.nodes.capacity))
            time.sleep(POLL_SECONDS / 10)

    def _ended(self, one: _Running) -> None:
        seconds = round(time.monotonic() - one.started, 1)
        self._tell("ended", one.job.id, one.job.stage, seconds=seconds)
        if one.job.stage == "training":
            self.queue.add(one.item.job("evaluation"))
            return
        ending = one.item.work.ending()
        if ending is None:
            self._failed(one, RuntimeError("the evaluation ended without a record"))
        else:
            self.endings[one.job.id] = ending

    def _failed(self, one: _Running, error: BaseException) -> None:
        work = one.item.work
        kind, reason = _explain(error)
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "machine" and not reason.startswith("WorkerCrashedError"):
            self._cool(one.nodes)  # Ray may take a while to see that a node is gone; a worker alone is soon replaced
        hopeless = kind == "input"
        failures = self.failures[work.id]
        if failures.add(reason, work.updates(), "machine" if kind == "machine" else "work") or hopeless:
            self._tell("given up", work.id, reason, stage=one.job.stage)
            with suppress(OSError, UserError):  # a full disk, or its folder is damaged or in use: the others go on
                work.give_up(reason)
            self.endings[work.id] = "failed"
            return
        pause = self.retry_seconds * 2 ** (failures.in_vain() - 1)
        self._tell("retried", work.id, reason, stage=one.job.stage, updates=work.updates())
        with suppress(OSError, UserError):
            work.wait_again(reason)
        stage: Stage = "evaluation" if work.is_trained() else "training"
        self.later.append((time.monotonic() + pause, one.item.job(stage)))

    def _end_all(self) -> None:
        """Let the running steps put their state in order, then take their GPUs away."""
        import ray

        for reference in self.running:
            ray.cancel(reference, force=False)
        if self.running:
            ray.wait(list(self.running), num_returns=len(self.running), timeout=GRACE_SECONDS)
        for one in self.asked:
            _remove(one.group)
        for one in self.running.values():
            _remove(one.group)
            self._tell("interrupted", one.job.id, one.job.stage)


# Cells ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellWork:
    """A real cell: OpenRLHF trains it, lm-eval on vLLM evaluates it (`harness.runner`)."""

    job: CellJob

    @property
    def id(self) -> str:
        """The cell's id."""
        return self.job.cell.id

    @property
    def runtime(self) -> Runtime:
        """As the protocol says, or as it was overridden."""
        return self.job.protocol.runtime

    def ending(self) -> Ending | None:
        """What its record says."""
        record = runner.existing_record(self.job)
        return record.status if record else None

    def is_trained(self) -> bool:
        """Whether training has left its last file."""
        return self.job.run.trained.exists()

    def updates(self) -> int:
        """Those of the last complete checkpoint."""
        if self.is_trained():
            return self.job.protocol.update.updates
        return training.resume_point(self.job.run, self.job.cell)

    def train(self, ray_address: str) -> None:
        """Train it."""
        runner.train_only(self.job, ray_address)

    def evaluate(self) -> None:
        """Evaluate it, or record that it has collapsed."""
        runner.evaluate_only(self.job)

    def wait_again(self, reason: str) -> None:
        """Keep the reason in ``cell.json``."""
        runner.note_failure(self.job, "waiting", reason)

    def give_up(self, reason: str) -> None:
        """Write a record with status ``failed``, where the cell got far enough for one."""
        runner.note_failure(self.job, "failed", reason)
        runner.record_failure(self.job)


def items_of(jobs: Iterable[CellJob]) -> list[Item]:
    """Cells for `run_grid`, with the times that the plan expects of them."""
    items = []
    for job in jobs:
        places = runner.Places(job.places.runs.resolve(), job.places.results.resolve())
        work = CellWork(replace(job, places=places))
        if job.cell.model in job.protocol.planning:
            expected = plan.estimate(job.protocol, job.cell)
            items.append(Item(work, expected.training_seconds, expected.evaluation_seconds))
        else:
            items.append(Item(work, 1.0, 1.0))
    return items


# Ray ------------------------------------------------------------------------------------------------------------


def _reserve(job: Job, nodes: Sequence[str]) -> Any:
    """Ask for all GPUs of the job, on exactly these nodes."""
    from ray.util.placement_group import placement_group

    if job.stage == "evaluation":
        bundles = [{"GPU": float(job.need.gpus), "CPU": 1.0}]
        places = list(nodes)
    else:
        bundles = [{"GPU": 1.0, "CPU": 1.0} for _ in range(job.need.total)]
        places = [node for node in nodes for _ in range(job.need.gpus)]
    selectors = [{"ray.io/node-id": node} for node in places]
    return placement_group(bundles, strategy="PACK", bundle_label_selector=selectors)


def _remove(group: Any) -> None:
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def _kill(file: Path, nodes: Iterable[str]) -> None:
    """Kill what is left of a step on these nodes, without waiting for it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    end = ray.remote(num_cpus=0)(lifetime.end_processes)
    for node in nodes:
        end.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)).remote(file)


def _is_granted(group: Any) -> bool:
    from ray.util.placement_group import placement_group_table

    return bool(placement_group_table(group).get("state") == "CREATED")


def _remote_step() -> Any:
    import ray

    return ray.remote(max_retries=0)(_step)


def _step(work: Work, stage: Stage, address: str, reservation: Reservation | None, file: Path) -> None:
    """In a Ray worker on a node of the cluster: one step of one cell."""
    if reservation is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ.update(reservation.to_environment())
    import ray

    if address.startswith("ray://"):  # here, on a node, there is no need of the way in from outside
        address = ray.get_runtime_context().gcs_address
    with lifetime.step(file):
        if stage == "training":
            work.train(address)
        else:
            work.evaluate()


def _submit(step: Any, work: Work, job: Job, group: Any, nodes: Sequence[str], address: str, file: Path) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

    # Training only watches OpenRLHF's own processes, which hold the GPUs; it must still see them all.
    environment = {name: value for name, value in os.environ.items() if _CARRIED.match(name)}
    options: dict[str, Any] = {
        "num_cpus": 0,
        "runtime_env": {
            "env_vars": environment | {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
            **worker_runtime_env(),
        },
        "name": f"{job.stage} {job.id}",
    }
    if job.stage == "evaluation":
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
        return step.options(scheduling_strategy=strategy, num_gpus=job.need.gpus, **options).remote(
            work, job.stage, address, None, file
        )
    runtime = work.runtime
    reservation = Reservation(
        group=group.id.hex(),
        trainers=runtime.trainers,
        engines=0 if runtime.colocate else runtime.engines * runtime.tensor_parallel,
        tensor_parallel=runtime.tensor_parallel,
    )
    strategy = NodeAffinitySchedulingStrategy(nodes[0], soft=False)
    return step.options(scheduling_strategy=strategy, **options).remote(work, job.stage, address, reservation, file)


def _explain(error: BaseException) -> tuple[Literal["work", "machine", "input", "interrupt"], str]:
    """Whose fault a failed step is, and what happened in one line."""
    from ray import exceptions

    cause: BaseException = error
    if isinstance(error, exceptions.RayTaskError):
        cause = error.cause if isinstance(error.cause, BaseException) else error
    text = " ".join(str(cause).split()) or type(cause).__name__
    if isinstance(cause, KeyboardInterrupt | exceptions.TaskCancelledError):
        return "interrupt", text
    if isinstance(cause, UserError):
        return "input", text
    if isinstance(error, exceptions.RayTaskError):
        return "work", text
    if isinstance(error, exceptions.RayError):
        return "machine", f"{type(error).__name__}: {text.split('. ')[0][:200]}"
    return "work", text


def _check_shared(runs: Path, nodes: Sequence[str]) -> None:
    """Every node must see the folder of runs: a cell may continue on another node than it was started on."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    token = runs.resolve() / f".shared-{os.getpid()}"
    token.touch()
    try:
        look = ray.remote(num_cpus=0)(_sees)
        references = {
            look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)).remote(str(token)): node
            for node in nodes
        }
        for reference, node in references.items():
            if not ray.get(reference):
                raise UserError(
                    f"{runs.resolve()}: node {node[:12]} does not see this folder: put --runs on a file system that "
                    "all nodes share"
                )
    finally:
        token.unlink(missing_ok=True)


def _sees(path: str) -> bool:
    return Path(path).exists()


# One driver at a time -------------------------------------------------------------------------------------------


@contextmanager
def driver_lock(runs: Path) -> Iterator[None]:
    """Hold the folder of runs; the lock goes with the process, however it ends. An old request to stop is dropped.

    Raises:
        UserError: another driver holds it.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with regular(runs / DRIVER_LOCK).open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            stream.seek(0)
            holder = stream.read().strip() or "unknown"
            raise UserError(
                f"{runs}: another reuse-bench run (process {holder}) is working in this folder: wait for it, stop it "
                "with `reuse-bench stop`, or choose another folder with --runs"
            ) from error
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        (runs / STOP_FILE).unlink(missing_ok=True)
        yield


def request_stop(runs: Path) -> bool:
    """Ask the driver that works in this folder to stop as on Ctrl-C; False when there is none."""
    if not (runs / DRIVER_LOCK).exists():
        return False
    try:
        with driver_lock(runs):
            return False
    except UserError:
        (runs / STOP_FILE).touch()
        return True


def read_journal(runs: Path) -> list[Mapping[str, Any]]:
    """What the drivers of this folder have done, in order; a line cut by a crash is left out."""
    path = runs / JOURNAL
    if not path.exists():
        return []
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines()
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return events
