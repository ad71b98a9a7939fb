"""What the tests of the real stack share: one Ray, one cache, and few runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.grid import Cell
from harness.protocol import Protocol, load_protocol
from harness.tiny_model import TinyRecipe, tiny_model
from tests.trained import Trained


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A local Ray with room for one cell, for the whole session."""
    pytest.importorskip("openrlhf", reason="the training stack is not installed")
    from harness.ray_cluster import ray_cluster

    with ray_cluster(None, pretend_gpus=2) as address:
        yield address


@pytest.fixture(scope="session")
def tied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose output head shares the embedding's weights: the case in which a weight sync can go stale."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REUSE_BENCH_CACHE", str(cache))
        return tiny_model(TinyRecipe(steps=120, tied_embeddings=True))


@pytest.fixture(scope="session")
def tied_smoke(tied_model: Path) -> Protocol:
    """The smoke protocol on the tied model; at a rate that moves the weights far enough for a stale copy to show."""
    spec = {"name": "tied", "source": str(tied_model), "revision": None, "stated": "test"}
    changes = {"models": [spec], "planning": {}, "optimiser.learning_rate": 3e-3}
    return load_protocol("smoke").with_overrides(changes)


@pytest.fixture(scope="session")
def trained(
    ray_address: str, tied_smoke: Protocol, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Trained]:
    """Train a method on the tied model at N = 4, once for each label."""
    from harness.runner import CellJob, Places, train_only

    folder = tmp_path_factory.mktemp("trained")
    done: dict[tuple[str, str], Trained] = {}

    def train(method: str, label: str) -> Trained:
        if (method, label) not in done:
            cell = Cell(tied_smoke.id, "tied", 4, method, 0)
            job = CellJob(tied_smoke, cell, Places(folder / label / "runs", folder / label / "results"))
            train_only(job, ray_address)
            done[method, label] = Trained(job.run)
        return done[method, label]

    return train
