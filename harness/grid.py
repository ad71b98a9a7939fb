"""The grid of a protocol: its cells, their names, their seeds, and what takes a cell out of the protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from harness.protocol import Protocol, available, drift, load_protocol, unknown_value
from harness.records import Seeds
from harness.seeds import derived_seed
from methods.errors import UserError

_CELL_ID = re.compile(r"^([^/]+)/([^/]+)/n(\d+)/([^/]+)/seed(\d+)$")


@dataclass(frozen=True, order=True)
class Cell:
    """One run: a base model, trained by one method at one reuse ratio with one seed."""

    protocol_id: str
    model: str
    reuse: int
    method: str
    seed: int

    @property
    def id(self) -> str:
        """``tiny/tiny-qwen3/n32/respo/seed0``: the path of the cell in a store and in a folder of runs."""
        return f"{self.protocol_id}/{self.model}/n{self.reuse}/{self.method}/seed{self.seed}"

    @property
    def path(self) -> Path:
        """The same as a relative path."""
        return Path(self.id)

    @property
    def seeds(self) -> Seeds:
        """Every seed of the run. They depend on the run's seed only: all cells share their random numbers."""
        return Seeds(
            run=self.seed,
            training=derived_seed(self.seed, "training"),
            rollout=derived_seed(self.seed, "rollout"),
            evaluation=derived_seed(self.seed, "evaluation"),
        )

    @classmethod
    def from_id(cls, text: str) -> Cell:
        """The cell of that id.

        Raises:
            UserError: the text is no cell id.
        """
        match = _CELL_ID.match(text)
        if not match:
            raise UserError(
                f"cell {text!r} is no cell id: it looks like tiny/tiny-qwen3/n32/respo/seed0, as `reuse-bench status` "
                "prints it"
            )
        protocol, model, reuse, method, seed = match.groups()
        return cls(protocol, model, int(reuse), method, int(seed))


def cells(
    protocol: Protocol,
    methods: Iterable[str] | None = None,
    reuses: Iterable[int] | None = None,
    models: Iterable[str] | None = None,
    seeds: Iterable[int] | None = None,
) -> list[Cell]:
    """The cells of a protocol, or those of the given values, in the protocol's order and without repeats.

    A method that is installed but not in the protocol is taken too: with its own defaults it competes under the same
    conditions. So is another reuse ratio that divides the updates, which makes a run ``open`` (`deviations`). A further
    seed is another sample of the same protocol.

    Raises:
        UserError: a value that cannot be run; it names the known ones.
    """
    where = f"protocol {protocol.id}"
    listed = list(protocol.methods.hyperparameters)
    chosen_methods = listed if methods is None else list(dict.fromkeys(methods))
    chosen_reuses = protocol.reuse.ratios if reuses is None else list(dict.fromkeys(reuses))
    chosen_models = [m.name for m in protocol.models] if models is None else list(dict.fromkeys(models))
    chosen_seeds = protocol.seeds.default if seeds is None else list(dict.fromkeys(seeds))
    for model in chosen_models:
        protocol.model(model)
    unlisted = [method for method in chosen_methods if method not in listed]
    if unlisted:
        installed = _installed_methods()
        for method in unlisted:
            if method not in installed:
                known = [*listed, *(name for name in installed if name not in listed)]
                raise UserError(unknown_value("method", method, known, where))
    for reuse in chosen_reuses:
        _check_reuse(protocol, reuse)
    for seed in chosen_seeds:
        if seed < 0:
            raise UserError(f"seed {seed} is negative: give 0 or more")
    return [
        Cell(protocol.id, model, reuse, method, seed)
        for model, reuse, method, seed in product(chosen_models, chosen_reuses, chosen_methods, chosen_seeds)
    ]


def deviations(protocol: Protocol, cell: Cell) -> list[str]:
    """How a run of ``cell`` differs from the protocol that this package ships, one line each.

    Empty: the run is in the closed division. The sections ``runtime`` and ``planning`` do not count.
    """
    stated = load_protocol(protocol.base_id) if protocol.base_id in available() else protocol
    lines = drift(protocol)
    if cell.reuse not in stated.reuse.ratios:
        known = ", ".join(map(str, stated.reuse.ratios))
        lines.append(f"reuse: N = {cell.reuse} instead of one of {known}")
    return lines


def _check_reuse(protocol: Protocol, reuse: int) -> None:
    every = protocol.checkpoints.every_updates
    if reuse < 1 or protocol.update.updates % reuse or every % reuse:
        known = ", ".join(map(str, protocol.reuse.ratios))
        raise UserError(
            f"reuse ratio {reuse} cannot be run under protocol {protocol.id}: its ratios are {known}; another one must "
            f"divide {protocol.update.updates} (updates) and {every} (updates between checkpoints)"
        )


def _installed_methods() -> list[str]:
    from methods import available as installed

    return list(installed())
