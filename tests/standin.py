"""Light cells for the scheduler: they hold GPUs and take time like real ones, and write down everything they do.

Run as a driver: ``python -m tests.standin ADDRESS RUNS CELLS``, where CELLS is a JSON list of `Standin` fields.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import lifetime
from harness.openrlhf.placement import Reservation
from harness.protocol import Runtime
from harness.ray_cluster import connect
from harness.scheduler import Ending, Item, run_grid
from methods.errors import UserError


def append(path: Path, line: dict[str, Any]) -> None:
    """One whole line of JSON at the end of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps(line) + "\n")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def let_go(*cells: Standin) -> None:
    """Let cells that wait do their last update."""
    for cell in cells:
        cell.gate.touch()


def replace_file(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


@dataclass(frozen=True)
class Standin:
    """A cell that needs ``trainers`` + ``engines`` GPUs for ``updates_in_all`` updates of ``seconds`` each.

    ``fails`` makes every training attempt fail at once: "same" (one reason), "input" (a user's error). With ``waits``
    the last update is not done before `let_go`, however slow the machine and whatever is done to others meanwhile.
    """

    name: str
    folder: str
    updates_in_all: int = 20
    seconds: float = 0.25
    save_every: int = 2
    trainers: int = 1
    engines: int = 1
    evaluation_gpus: int = 1
    fails: str = ""
    waits: bool = False

    @property
    def id(self) -> str:
        return self.name

    @property
    def runtime(self) -> Runtime:
        return Runtime(
            trainer_gpus=self.trainers,
            engines=self.engines,
            colocate=False,
            evaluation_gpus=self.evaluation_gpus,
            train_micro_batch=1,
            rollout_micro_batch=1,
        )

    @property
    def run(self) -> Path:
        return Path(self.folder, self.name)

    @property
    def gate(self) -> Path:
        return Path(self.folder, f"{self.name}.may-end")

    def ending(self) -> Ending | None:
        return "done" if (self.run / "record.json").exists() else None

    def is_trained(self) -> bool:
        return (self.run / "trained").exists()

    def updates(self) -> int:
        path = self.run / "checkpoint"
        return int(path.read_text()) if path.exists() else 0

    def train(self, ray_address: str) -> None:
        append(self.run / "attempts.jsonl", {"from": self.updates(), "pid": os.getpid(), "address": ray_address})
        if self.fails == "same":
            raise RuntimeError(f"no luck at 0x{time.time_ns():x} in /tmp/{os.getpid()}")
        if self.fails == "input":
            raise UserError("the file is wrong: mend it")
        holders = self._hold()
        done = self.updates()
        kept = [line for line in lines(self.run / "updates.jsonl") if line["update"] <= done]
        replace_file(self.run / "updates.jsonl", "".join(json.dumps(line) + "\n" for line in kept))
        for update in range(done + 1, self.updates_in_all + 1):
            self._beat(holders)
            while self.waits and update == self.updates_in_all and not self.gate.exists():
                self._beat(holders)
            append(self.run / "updates.jsonl", {"update": update, "pid": os.getpid()})
            if update % self.save_every == 0:
                replace_file(self.run / "checkpoint", str(update))
        append(self.run / "trained", {"pid": os.getpid()})

    def _hold(self) -> list[Any]:
        """Claim every reserved GPU, as OpenRLHF's actors do."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        reservation = Reservation.from_environment()
        assert reservation is not None
        assert (reservation.trainers, reservation.engines) == (self.trainers, self.engines)
        group = reservation.placement_group()
        holder = ray.remote(num_gpus=1, num_cpus=1)(Holder)
        return [
            holder.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote(
                self.name, os.environ[lifetime.VARIABLE]
            )
            for index in range(self.trainers + self.engines)
        ]

    def _beat(self, holders: list[Any]) -> None:
        import ray

        ray.get([holder.beat.remote(str(self.run.parent / "beats"), self.seconds) for holder in holders])

    def evaluate(self) -> None:
        for _ in range(4):
            Holder(self.name).beat(str(self.run.parent / "beats"), self.seconds, self.evaluation_gpus)
        count = len(lines(self.run / "updates.jsonl"))
        replace_file(self.run / "record.json", json.dumps({"updates": count}))
        append(self.run / "evaluations.jsonl", {"pid": os.getpid()})

    def wait_again(self, reason: str) -> None:
        append(self.run / "waits.jsonl", {"reason": reason})

    def give_up(self, reason: str) -> None:
        append(self.run / "given_up.jsonl", {"reason": reason})


class Holder:
    """Has GPUs, and says so again and again."""

    def __init__(self, cell: str, step_file: str | None = None) -> None:
        self.cell = cell
        if step_file:  # in a process of its own, which joins the step as OpenRLHF's workers do
            os.environ[lifetime.VARIABLE] = step_file
            lifetime.join_step()

    def beat(self, folder: str, seconds: float, gpus: int = 1) -> None:
        import ray

        context = ray.get_runtime_context()
        ids = ray.get_gpu_ids()
        assert len(ids) == gpus
        for moment in range(2):
            line = {"time": time.time(), "node": context.get_node_id(), "cell": self.cell, "holder": os.getpid()}
            for gpu in ids:
                append(Path(folder, f"{os.getpid()}.jsonl"), line | {"gpu": gpu})
            if moment == 0:
                time.sleep(seconds)


def main() -> None:
    address, runs, cells = sys.argv[1], Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text())
    import ray

    connect(address)
    items = [Item(Standin(**cell), cell.get("updates_in_all", 20), 1.0) for cell in cells]
    try:
        endings = run_grid(items, address, runs, retry_seconds=0.5)
    except UserError as error:
        print(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(3)
    finally:
        ray.shutdown()
    print(json.dumps(endings))


if __name__ == "__main__":
    main()
