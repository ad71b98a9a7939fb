"""Cells: which there are, how they are named, and what leaves the protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.grid import Cell, cells, derived_seed, deviations
from harness.protocol import load_protocol
from methods.errors import UserError

METHODS = ["grpo", "gspo", "vespo", "respo"]


def test_the_24_cells_of_the_paper() -> None:
    grid = [cell for name in ("qwen3-1.7b", "qwen3-30b-a3b") for cell in cells(load_protocol(name))]
    assert len({cell.id for cell in grid}) == 24
    assert {(cell.reuse, cell.method) for cell in grid} == {(n, m) for n in (8, 16, 32) for m in METHODS}
    assert {cell.seed for cell in grid} == {0}


def test_chosen_cells() -> None:
    chosen = cells(load_protocol("tiny"), methods=["respo"], reuses=[8, 8], seeds=[7])
    assert [cell.id for cell in chosen] == ["tiny/tiny-qwen3/n8/respo/seed7"]
    assert chosen[0].path.parts == ("tiny", "tiny-qwen3", "n8", "respo", "seed7")


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_id_and_back(reuse: int, seed: int) -> None:
    cell = Cell("tiny.open-1a2b3c4d", "tiny-qwen3", reuse, "my_loss", seed)
    assert Cell.from_id(cell.id) == cell


@pytest.mark.parametrize("text", ["", "tiny", "tiny/m/8/respo/seed0", "tiny/m/n8/respo/0", "a/b/n8/c/seed0/d"])
def test_no_id(text: str) -> None:
    with pytest.raises(UserError, match="no cell id"):
        Cell.from_id(text)


def test_seeds_are_shared_by_all_cells_of_a_run_seed() -> None:
    grid = cells(load_protocol("tiny"))
    assert len({(cell.seed, cell.seeds.training) for cell in grid}) == 3
    first = grid[0].seeds
    assert len({first.training, first.rollout, first.evaluation}) == 3
    # Fixed for ever: records of other machines and years must have the same seeds.
    assert (first.training, first.rollout, first.evaluation) == (1914026828, 884732597, 300498429)


@given(st.integers(0, 2**63))
def test_derived_seeds_fit_everywhere(seed: int) -> None:
    assert 0 <= derived_seed(seed, "training") < 2**31


class TestUnknownValues:
    def test_method(self) -> None:
        with pytest.raises(UserError, match=r"method 'respoo' .*did you mean respo\?.*grpo, gspo, vespo, respo"):
            cells(load_protocol("tiny"), methods=["respoo"])

    def test_model(self) -> None:
        with pytest.raises(UserError, match=r"model 'llama' .*tiny-qwen3"):
            cells(load_protocol("tiny"), models=["llama"])

    @pytest.mark.parametrize("reuse", [0, -8, 3, 128, 512])
    def test_reuse(self, reuse: int) -> None:
        with pytest.raises(UserError, match=rf"reuse ratio {reuse} .*8, 16, 32"):
            cells(load_protocol("tiny"), reuses=[reuse])

    def test_seed(self) -> None:
        with pytest.raises(UserError, match="seed -1"):
            cells(load_protocol("tiny"), seeds=[-1])


class TestDeviations:
    def test_none_in_the_grid(self) -> None:
        for name in ("smoke", "tiny", "qwen3-1.7b", "qwen3-30b-a3b"):
            protocol = load_protocol(name)
            assert [line for cell in cells(protocol) for line in deviations(protocol, cell)] == []

    def test_further_seed_and_other_hardware_stay_inside(self) -> None:
        protocol = load_protocol("tiny")
        cell = cells(protocol, seeds=[11])[0]
        assert deviations(protocol.with_overrides({"runtime.engines": 2}), cell) == []

    def test_other_reuse_ratio(self) -> None:
        protocol = load_protocol("tiny")
        cell = cells(protocol, reuses=[1])[0]
        assert deviations(protocol, cell) == ["reuse: N = 1 instead of one of 8, 16, 32"]

    def test_other_value(self) -> None:
        protocol = load_protocol("tiny").with_overrides({"rollout.top_p": 0.9})
        assert deviations(protocol, cells(protocol)[0]) == ["rollout.top_p: 0.9 instead of 1.0"]

    def test_installed_method_that_the_protocol_does_not_list(self) -> None:
        whole = load_protocol("tiny")
        fewer = {name: value for name, value in whole.methods.hyperparameters.items() if name != "respo"}
        protocol = whole.with_overrides({"methods.hyperparameters": fewer})
        cell = cells(protocol, methods=["respo"])[0]
        assert cell.protocol_id == protocol.id != "tiny"
        assert any(line.startswith("methods.hyperparameters.respo") for line in deviations(protocol, cell))

    def test_a_method_outside_the_protocol_competes_under_the_same_conditions(self) -> None:
        protocol = load_protocol("tiny")
        cell = Cell("tiny", "tiny-qwen3", 8, "cispo", 0)
        assert deviations(protocol, cell) == []
