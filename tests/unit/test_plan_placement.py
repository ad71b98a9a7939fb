"""OpenRLHF is handed the GPUs that were reserved: its own placement code, run on a Ray that only writes down."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.openrlhf import placement
from harness.openrlhf.placement import VARIABLE, Reservation

GROUP = "ab" * 18


SPEC = importlib.util.find_spec("openrlhf")


def source_of(part: str) -> ast.Module:
    if SPEC is None or not SPEC.submodule_search_locations:
        pytest.skip("openrlhf is not installed")
    return ast.parse(Path(SPEC.submodule_search_locations[0], part).read_text())


class Remote:
    """Stands for a class with ``@ray.remote``: notes where each actor is put."""

    def __init__(self) -> None:
        self.options_seen: list[dict[str, Any]] = []

    def options(self, **options: Any) -> Remote:
        self.options_seen.append(options)
        return self

    def remote(self, *_: Any, **__: Any) -> Any:
        address = SimpleNamespace(remote=lambda: ("127.0.0.1", 1))
        return SimpleNamespace(get_master_addr_port=address)

    @property
    def bundles(self) -> list[int]:
        return [options["scheduling_strategy"].index for options in self.options_seen]


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """OpenRLHF's own ``RayActorGroup`` and ``create_vllm_engines``, with Ray and vLLM as shells around them."""
    engines = Remote()

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a placement group of its own")

    def strategy(placement_group: Any, placement_group_bundle_index: int, **_: Any) -> Any:
        return SimpleNamespace(group=placement_group, index=placement_group_bundle_index)

    import sys

    def shell(name: str, **content: Any) -> ModuleType:
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    class Group:
        id = SimpleNamespace(hex=lambda: GROUP)

        def ready(self) -> bool:
            return True

    group = Group()
    table = {"bundles_to_node_id": dict.fromkeys(range(16), "node")}
    groups = shell("ray.util.placement_group", placement_group=forbidden)
    shell("ray.util", placement_group=forbidden, placement_group_table=lambda _: table)
    shell("ray", get=lambda value: value, util=sys.modules["ray.util"])

    def module(name: str, part: str, wanted: set[str], **names: Any) -> ModuleType:
        made = shell(name, ray=sys.modules["ray"], placement_group=forbidden, **names)
        nodes = [node for node in source_of(part).body if getattr(node, "name", None) in wanted]
        assert len(nodes) == len(wanted)
        annotations = ast.parse("from __future__ import annotations").body
        exec(compile(ast.Module([*annotations, *nodes], []), part, "exec"), vars(made))
        return made

    for package in ("openrlhf", "openrlhf.trainer"):
        shell(package, __path__=[])
    helper = module("openrlhf.trainer.ray.utils", "trainer/ray/utils.py", {"get_bundle_indices"})
    launcher = module(
        "openrlhf.trainer.ray.launcher",
        "trainer/ray/launcher.py",
        {"RayActorGroup"},
        PlacementGroupSchedulingStrategy=strategy,
    )
    vllm_engine = module(
        "openrlhf.trainer.ray.vllm_engine",
        "trainer/ray/vllm_engine.py",
        {"create_vllm_engines"},
        PlacementGroupSchedulingStrategy=strategy,
        RolloutRayActor=engines,
        get_bundle_indices=helper.get_bundle_indices,
    )
    shell("openrlhf.trainer.ray", launcher=launcher, vllm_engine=vllm_engine, __path__=[])
    monkeypatch.setattr(Reservation, "placement_group", lambda self: group)
    return SimpleNamespace(
        launcher=launcher, vllm_engine=vllm_engine, groups=groups, engines=engines, group=group, monkeypatch=monkeypatch
    )


def install(stack: SimpleNamespace, **fields: int) -> None:
    reservation = Reservation(group=GROUP, **fields)
    for name, value in reservation.to_environment().items():
        stack.monkeypatch.setenv(name, value)
    placement.install()


def start(stack: SimpleNamespace, trainers: int, engines: int, width: int, shared: bool) -> tuple[Remote, Remote]:
    """What ``train`` of OpenRLHF's command does about GPUs, in its order."""
    bundles = [{"GPU": 1, "CPU": 1}]
    group = stack.groups.placement_group(bundles * trainers, strategy="PACK") if shared else None
    stack.vllm_engine.create_vllm_engines(engines, width, "model", 1, False, False, True, 80, group, 0.5, False, None)
    actors = Remote()
    stack.launcher.RayActorGroup(1, trainers, actors, pg=group, num_gpus_per_actor=0.2 if group else 1)
    for remote in (actors, stack.engines):
        assert all(options["scheduling_strategy"].group is stack.group for options in remote.options_seen)
    return actors, stack.engines


def test_one_trainer_beside_one_engine(stack: SimpleNamespace) -> None:
    install(stack, trainers=1, engines=1, tensor_parallel=1)
    actors, engines = start(stack, 1, 1, 1, shared=False)
    assert (actors.bundles, engines.bundles) == ([0], [1])


def test_several_trainers_beside_several_engines(stack: SimpleNamespace) -> None:
    install(stack, trainers=2, engines=3, tensor_parallel=1)
    actors, engines = start(stack, 2, 3, 1, shared=False)
    assert (actors.bundles, engines.bundles) == ([0, 1], [2, 3, 4])


def test_engines_of_two_gpus(stack: SimpleNamespace) -> None:
    install(stack, trainers=2, engines=4, tensor_parallel=2)
    actors, engines = start(stack, 2, 2, 2, shared=False)
    assert (actors.bundles, engines.bundles) == ([0, 1], [2, 4])


def test_trainer_and_engines_on_the_same_gpus(stack: SimpleNamespace) -> None:
    install(stack, trainers=4, engines=0, tensor_parallel=1)
    actors, engines = start(stack, 4, 4, 1, shared=True)
    assert actors.bundles == engines.bundles == [0, 1, 2, 3]


def test_other_numbers_than_reserved_are_refused(stack: SimpleNamespace) -> None:
    install(stack, trainers=4, engines=0, tensor_parallel=1)
    with pytest.raises(RuntimeError, match="not what was reserved"):
        stack.groups.placement_group([{"GPU": 1, "CPU": 1}] * 3)


def test_without_a_reservation_nothing_changes(stack: SimpleNamespace) -> None:
    stack.monkeypatch.delenv(VARIABLE, raising=False)
    before = stack.groups.placement_group
    placement.install()
    assert stack.groups.placement_group is before
