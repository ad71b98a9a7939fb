"""Which waiting job starts next, and where: the scheduling policy without Ray, for planning and for running alike.

- A job gets all of its GPUs at once or none, so that no two half-started jobs can wait for each other.
- Evaluations come before trainings: they are short, and a cell is only worth something when it has been evaluated.
- Among trainings the longest comes first (Graham 1969: at most 4/3 of the shortest possible schedule, and close to it
  when there are several times more cells than places).
- A job goes to the fullest node that still has room for it, which keeps whole nodes free for large jobs.
- The first job that must wait reserves nodes for itself: smaller ones may not slip in there for ever.

All operations cost at most the number of GPUs of a node, whatever the number of nodes or jobs.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from methods.errors import UserError

Stage = Literal["evaluation", "training"]
_ORDER: dict[Stage, int] = {"evaluation": 0, "training": 1}


@dataclass(frozen=True, order=True)
class Need:
    """GPUs of a job: ``gpus`` on each of ``nodes`` different nodes."""

    gpus: int
    nodes: int = 1

    @property
    def total(self) -> int:
        """GPUs in all."""
        return self.gpus * self.nodes


@dataclass(frozen=True)
class Job:
    """Work that waits for GPUs. ``seconds`` is an estimate; only the order depends on it."""

    id: str
    stage: Stage
    need: Need
    seconds: float


class Nodes:
    """Free GPUs by node. Nodes with equally many free GPUs are kept together, so that none has to be searched for."""

    def __init__(self, gpus: Mapping[str, int]) -> None:
        self.capacity: dict[str, int] = {}
        self._free: dict[str, int] = {}
        self._by_free: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for node, count in gpus.items():
            self.add(node, count)

    def add(self, node: str, gpus: int) -> None:
        """A node that has come up, with all of its GPUs free."""
        self.capacity[node] = gpus
        self._put(node, gpus)

    def remove(self, node: str) -> None:
        """A node that is gone. GPUs of jobs that ran there are not given back."""
        del self.capacity[node]
        del self._by_free[self._free.pop(node)][node]

    def free(self, node: str) -> int:
        """Free GPUs of a node."""
        return self._free[node]

    @property
    def total_free(self) -> int:
        """Free GPUs of all nodes."""
        return sum(self._free.values())

    def take(self, need: Need, avoiding: Collection[str] = ()) -> tuple[str, ...] | None:
        """Claim the GPUs of a job, on the fullest nodes that have room; None, and nothing claimed, when they do not."""
        chosen: list[str] = []
        for free in range(need.gpus, self._most() + 1):
            for node in self._by_free[free]:
                if node not in avoiding:
                    chosen.append(node)
                    if len(chosen) == need.nodes:
                        for taken in chosen:
                            self._put(taken, self._free[taken] - need.gpus)
                        return tuple(chosen)
        return None

    def give_back(self, need: Need, nodes: Iterable[str]) -> None:
        """Free the GPUs of a job that has ended. Nodes that are gone are passed over."""
        for node in nodes:
            if node in self._free:
                free = self._free[node] + need.gpus
                if free > self.capacity[node]:
                    raise AssertionError(f"{node}: {free} of {self.capacity[node]} GPUs free: given back twice")
                self._put(node, free)

    def emptiest(self, need: Need) -> frozenset[str]:
        """The nodes on which the job could soonest run, by what is free now; empty when too few are large enough."""
        chosen: list[str] = []
        for free in range(self._most(), -1, -1):
            for node in self._by_free[free]:
                if self.capacity[node] >= need.gpus:
                    chosen.append(node)
                    if len(chosen) == need.nodes:
                        return frozenset(chosen)
        return frozenset()

    def check(self, need: Need, what: str) -> None:
        """Whether the job could run if the cluster were empty.

        Raises:
            UserError: it could not; with the arithmetic.
        """
        fitting = sum(count >= need.gpus for count in self.capacity.values())
        if fitting < need.nodes:
            largest = max(self.capacity.values(), default=0)
            needs = f"{need.gpus} GPUs on one node" if need.nodes == 1 else f"{need.nodes} nodes of {need.gpus} GPUs"
            raise UserError(
                f"{what} needs {needs}, and the cluster has {len(self.capacity)} nodes of at most {largest} "
                f"({sum(self.capacity.values())} GPUs in all): give fewer with --gpus-per-cell, or another cluster"
            )

    def _most(self) -> int:
        return max((free for free, nodes in self._by_free.items() if nodes), default=0)

    def _put(self, node: str, free: int) -> None:
        before = self._free.get(node)
        if before is not None:
            del self._by_free[before][node]
        self._free[node] = free
        self._by_free[free][node] = None


class Queue:
    """Jobs that wait for GPUs."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._waiting: defaultdict[Need, list[tuple[int, float, str, Job]]] = defaultdict(list)
        for job in jobs:
            self.add(job)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, job: Job) -> None:
        """Let a job wait."""
        heapq.heappush(self._waiting[job.need], (_ORDER[job.stage], -job.seconds, job.id, job))

    def start(self, nodes: Nodes, avoiding: Collection[str] = ()) -> list[tuple[Job, tuple[str, ...]]]:
        """Start what can start now, not on the nodes to be avoided: claims the GPUs, and returns jobs with nodes."""
        started: list[tuple[Job, tuple[str, ...]]] = []
        blocked: set[Need] = set()
        reserved: frozenset[str] = frozenset()
        while True:
            heads = [heap[0] for need, heap in self._waiting.items() if heap and need not in blocked]
            if not heads:
                return started
            job = min(heads, key=lambda entry: entry[:3])[3]
            place = nodes.take(job.need, avoiding=reserved.union(avoiding) if avoiding else reserved)
            if place is None:
                blocked.add(job.need)
                reserved = reserved or nodes.emptiest(job.need)
                continue
            heapq.heappop(self._waiting[job.need])
            started.append((job, place))
