"""Make OpenRLHF use GPUs that were reserved for it, all at once, before it was started.

OpenRLHF creates its own placement groups, one after another: two half-started runs could hold what the other waits
for. The scheduler reserves one group for the whole cell instead (`harness.scheduler`) and names it in an environment
variable; `install` hands that group out wherever OpenRLHF asks for a new one. The first bundles are the trainer's; when
engines have GPUs of their own, theirs follow.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ConfigDict

VARIABLE = "REUSE_BENCH_PLACEMENT"


class Reservation(BaseModel):
    """A placement group with one GPU and one CPU in each bundle.

    ``group`` is its id, in hexadecimal. ``engines`` counts the bundles of the engines; 0 when they share the
    trainer's. ``tensor_parallel`` is the number of GPUs of one engine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str
    trainers: int
    engines: int
    tensor_parallel: int

    def to_environment(self) -> dict[str, str]:
        """The variable that carries this to the training process."""
        return {VARIABLE: self.model_dump_json()}

    @classmethod
    def from_environment(cls) -> Reservation | None:
        """What the scheduler has reserved; None when nobody has."""
        text = os.environ.get(VARIABLE)
        return cls.model_validate_json(text) if text else None

    def placement_group(self) -> Any:
        """Ray's handle of the group; it may belong to another job of the same cluster."""
        from ray._raylet import PlacementGroupID
        from ray.util.placement_group import PlacementGroup

        return PlacementGroup(PlacementGroupID(bytes.fromhex(self.group)))


def install() -> None:
    """In the training process, before OpenRLHF's command is run: hand out the reserved group, if there is one."""
    reservation = Reservation.from_environment()
    if reservation is None:
        return
    import openrlhf.trainer.ray.launcher as launcher
    import openrlhf.trainer.ray.vllm_engine as vllm_engine

    # `ray.util` has a function of the module's name, which a plain import would find.
    ray_groups: Any = import_module("ray.util.placement_group")
    group = reservation.placement_group()
    shared = reservation.engines == 0
    allowed = {reservation.trainers} if shared else {reservation.trainers, reservation.engines}

    def reserved(bundles: list[dict[str, float]], *_: object, **__: object) -> Any:
        if len(bundles) not in allowed or any(bundle.get("GPU") != 1 for bundle in bundles):
            raise RuntimeError(f"OpenRLHF asked for {bundles}, which is not what was reserved: {reservation}")
        return group

    # The command module binds the name when it is run, the other two have done so already.
    ray_groups.placement_group = reserved
    launcher.placement_group = reserved
    vllm_engine.placement_group = reserved
    if shared:
        return

    # One trainer alone would be started outside any group; engines' bundles come after the trainer's.
    initiate = launcher.RayActorGroup._initiate_actors

    def initiate_in_group(self: Any, pg: Any, num_gpus_per_actor: float) -> None:
        initiate(self, pg or group, num_gpus_per_actor)

    strategy, indices = vllm_engine.PlacementGroupSchedulingStrategy, vllm_engine.get_bundle_indices
    first = reservation.trainers

    def engine_indices(placement_group: Any, index: int, length: int) -> list[int]:
        everything = indices(placement_group, 0, first + reservation.engines)
        return [bundle for bundle in everything if bundle >= first][index * length : (index + 1) * length]

    def engine_strategy(placement_group_bundle_index: int, **options: Any) -> Any:
        # Engines of one GPU are counted from 0; larger ones come with a bundle that `engine_indices` has chosen.
        shift = first if reservation.tensor_parallel == 1 else 0
        return strategy(placement_group_bundle_index=placement_group_bundle_index + shift, **options)

    launcher.RayActorGroup._initiate_actors = initiate_in_group
    vllm_engine.PlacementGroupSchedulingStrategy = engine_strategy
    vllm_engine.get_bundle_indices = engine_indices
