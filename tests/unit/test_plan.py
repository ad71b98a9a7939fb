"""Estimates and the scheduling policy: against DeepSpeed's figures, published sizes, bounds, and brute force."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.grid import Cell, cells
from harness.plan import (
    GIB,
    GPUS,
    CellEstimate,
    Gpu,
    Memory,
    Schedule,
    cluster_nodes,
    disk_peak,
    estimate,
    fluid_bound,
    memory,
    simulate,
    trainer_states,
)
from harness.protocol import load_protocol
from harness.queueing import Job, Need, Nodes, Queue
from methods.errors import UserError
from reuse_bench.main import app


def paper_estimates() -> list[CellEstimate]:
    return [
        estimate(protocol, cell)
        for protocol in map(load_protocol, ("qwen3-1.7b", "qwen3-30b-a3b"))
        for cell in cells(protocol)
    ]


def made_up(index: int, gpus: int, training: float, evaluation: float = 0.0, evaluation_gpus: int = 1) -> CellEstimate:
    return CellEstimate(
        cell=Cell("p", "m", 8, "grpo", index),
        need=Need(gpus),
        training_seconds=training,
        parts={},
        evaluation_need=Need(evaluation_gpus),
        evaluation_seconds=evaluation,
        disk_peak=3.0,
        disk_kept=1.0,
        memory=None,
        real_gpus=True,
    )


class TestMemory:
    @pytest.mark.parametrize(
        ("name", "gpu"), [("qwen3-1.7b", "A100"), ("qwen3-1.7b", "H100"), ("qwen3-30b-a3b", "H200")]
    )
    def test_the_paper_protocols_fit_eight_gpus(self, name: str, gpu: str) -> None:
        protocol = load_protocol(name)
        assert protocol.runtime.gpus == 8
        found = memory(protocol, protocol.models[0].name, protocol.runtime, GPUS[gpu])
        assert found.fits
        assert found.peak < 0.9 * found.available  # room for what the estimate forgets
        assert GPUS[gpu].memory_gib < (80 if gpu != "H200" else 141)

    def test_documented_figures(self) -> None:
        """The table in docs/protocols.md is what the model says."""
        text = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text(encoding="utf-8")
        for name, gpu in (("qwen3-1.7b", "H100"), ("qwen3-30b-a3b", "H200")):
            protocol = load_protocol(name)
            found = memory(protocol, protocol.models[0].name, protocol.runtime, GPUS[gpu])
            phases = (found.update, found.log_probs, found.generation, found.host, found.available)
            assert f"| `{name}` | 8 x {gpu} | " + " | ".join(f"{value:.0f}" for value in phases) + " |" in text

    @pytest.mark.parametrize(
        "changes",
        [
            {"zero_stage": 2, "trainer_sleeps": True},  # 30B with whole weights on every GPU
            {"train_micro_batch": 8},
            {"trainer_sleeps": False},
        ],
    )
    def test_what_does_not_fit(self, changes: dict[str, Any]) -> None:
        protocol = load_protocol("qwen3-30b-a3b").with_overrides({f"runtime.{k}": v for k, v in changes.items()})
        assert not memory(protocol, "qwen3-30b-a3b-base", protocol.runtime, GPUS["H200"]).fits

    def test_thirty_billion_do_not_fit_eighty_gigabytes(self) -> None:
        protocol = load_protocol("qwen3-30b-a3b")
        assert not memory(protocol, "qwen3-30b-a3b-base", protocol.runtime, GPUS["H100"]).fits

    @pytest.mark.slow
    @pytest.mark.stack
    def test_trainer_states_against_deepspeeds_own_estimate(self) -> None:
        pytest.importorskip("deepspeed")
        from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

        for name in ("qwen3-1.7b", "qwen3-30b-a3b"):
            protocol = load_protocol(name)
            (planning,) = protocol.planning.values()
            sizes, runtime = planning.architecture, protocol.runtime
            ours = trainer_states(sizes, runtime)
            found = (ours.weights + ours.gradients + ours.moments) * GIB
            if runtime.zero_stage == 2:
                _, theirs = estimate_zero2_model_states_mem_needs(sizes.parameters, 8, 1, cpu_offload=False)
            else:
                _, theirs, _ = estimate_zero3_model_states_mem_needs(
                    sizes.parameters, sizes.largest_block, 8, 1, cpu_offload=False, cpu_offload_params=False
                )
                found += ours.working * GIB
            assert theirs * 0.99 < found < theirs * 1.15


class TestEstimates:
    def test_the_paper(self) -> None:
        found = paper_estimates()
        assert len(found) == 24
        assert {one.need.total for one in found} == {8}
        for one in found:
            assert one.training_seconds == pytest.approx(sum(one.parts.values()))
            assert min(one.parts.values()) >= 0
            assert one.memory
            assert one.memory.fits
        # reusing rollouts more saves time: fewer long tails, fewer syncs, the same updates
        by_reuse = {one.cell.reuse: one for one in found if one.cell.method == "respo" and "1.7b" in one.cell.model}
        assert by_reuse[8].training_seconds > by_reuse[16].training_seconds > by_reuse[32].training_seconds
        assert by_reuse[8].parts["updates"] == by_reuse[32].parts["updates"]

    def test_update_flops_by_hand(self) -> None:
        """6 P per token in forward and backward, and 2 P more for recomputation, dominate (Kaplan et al. 2020)."""
        protocol = load_protocol("qwen3-1.7b")
        one = estimate(protocol, cells(protocol)[0])
        tokens = 1024 * 256 * (150 + 2000)
        seconds = 8 * 1.72e9 * tokens / (8 * 989e12 * 0.30)
        assert seconds < one.parts["updates"] < 1.15 * seconds

    def test_decoding_by_hand(self) -> None:
        """All tokens, read at the stated bandwidth: weights once a step, keys and values of 256 responses."""
        protocol = load_protocol("qwen3-1.7b")
        one = estimate(protocol, cells(protocol, reuses=[32])[0])
        step = (2 * 1.72e9 + 256 * 1150 * 2 * 28 * 8 * 128 * 2) / (3.35e12 * 0.40)
        bulk = 1024 * 256 * 2000 / 8 / 256 * step
        assert bulk < one.parts["generation"] < 1.2 * bulk

    def test_mixture_of_experts_reads_what_its_tokens_touch(self) -> None:
        (planning,) = load_protocol("qwen3-30b-a3b").planning.values()
        sizes = planning.architecture
        assert sizes.touched_parameters(1) == pytest.approx(sizes.active_parameters)
        assert sizes.touched_parameters(10_000) == pytest.approx(sizes.parameters - sizes.vocabulary * sizes.hidden)
        assert sizes.active_parameters < sizes.touched_parameters(4) < sizes.touched_parameters(64) < sizes.parameters

    def test_measured_cells(self) -> None:
        protocol = load_protocol("tiny")
        one = estimate(protocol, cells(protocol)[0])
        assert (one.training_seconds, one.evaluation_seconds, one.need, one.gpu_hours) == (140, 8, Need(2), 0)

    def test_more_gpus_take_less_time(self) -> None:
        protocol = load_protocol("qwen3-1.7b")
        cell = cells(protocol)[0]
        four, eight = (estimate(protocol, cell, protocol.runtime.with_gpus(count)) for count in (4, 8))
        assert 1.5 < four.training_seconds / eight.training_seconds <= 2

    def test_no_room_for_the_cache(self) -> None:
        protocol = load_protocol("qwen3-30b-a3b").with_overrides({"runtime.engine_memory_share": 0.2})
        with pytest.raises(UserError, match=r"engine memory: 0.2 of 2 x 139 GiB"):
            estimate(protocol, cells(protocol)[0])

    def test_nothing_stated(self) -> None:
        protocol = load_protocol("qwen3-1.7b").with_overrides({"planning": {}})
        with pytest.raises(UserError, match=r"planning.qwen3-1.7b-base is missing"):
            estimate(protocol, cells(protocol)[0])

    def test_fits_compares_the_peak(self) -> None:
        fitting = Memory(update=1, log_probs=2, generation=3, host=0, available=3)
        assert fitting.fits
        assert not replace(fitting, log_probs=3.1).fits


CLUSTERS = st.lists(st.integers(1, 8), min_size=1, max_size=4)
WORK = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 50), st.integers(0, 10), st.integers(1, 2)), min_size=1, max_size=12
)


class TestSchedule:
    @settings(deadline=None)
    @given(CLUSTERS, WORK)
    def test_every_schedule_is_lawful(self, sizes: list[int], work: list[tuple[int, int, int, int]]) -> None:
        nodes = {f"n{index}": gpus for index, gpus in enumerate(sizes)}
        largest = max(sizes)
        estimates = [
            made_up(index, min(gpus, largest), training, evaluation, min(evaluation_gpus, largest))
            for index, (gpus, training, evaluation, evaluation_gpus) in enumerate(work)
        ]
        schedule = simulate(estimates, nodes)
        check_lawful(schedule, estimates, nodes)
        assert schedule.makespan >= fluid_bound(estimates, nodes) - 1e-9
        assert schedule.makespan <= sum(one.seconds for one in estimates) + 1e-9  # never worse than one by one

    def test_the_paper_on_its_clusters(self) -> None:
        estimates = paper_estimates()
        for count in (1, 2, 4, 8):
            nodes = cluster_nodes(f"{count}x8")
            schedule = simulate(estimates, nodes)
            check_lawful(schedule, estimates, nodes)
            assert schedule.makespan <= 1.05 * fluid_bound(estimates, nodes)

    def test_longest_first(self) -> None:
        schedule = simulate([made_up(index, 1, seconds) for index, seconds in enumerate((1, 5, 3))], {"n": 1})
        order = [placed.job.id for placed in schedule.placed if placed.job.stage == "training"]
        assert order == ["p/m/n8/grpo/seed1", "p/m/n8/grpo/seed2", "p/m/n8/grpo/seed0"]

    def test_evaluation_runs_while_others_train(self) -> None:
        """3 GPUs: the pair holds two, and the third evaluates what has ended."""
        estimates = [made_up(0, 2, 10, 5), made_up(1, 2, 9, 5)]
        schedule = simulate(estimates, {"n": 3})
        assert schedule.makespan == 10 + 9 + 5
        evaluated = next(placed for placed in schedule.placed if placed.job.stage == "evaluation")
        assert (evaluated.start, evaluated.end) == (10, 15)

    def test_large_job_is_not_starved(self) -> None:
        """Without a reservation the small jobs would keep one GPU of the node busy until the last of them."""
        large = made_up(0, 4, 30)
        small = [made_up(index, 1, 20 - index * 0.01) for index in range(1, 60)]
        queue, nodes = Queue(), Nodes({"n": 4})
        for one in small[:4]:
            queue.add(Job(one.cell.id, "training", one.need, one.training_seconds))
        assert len(queue.start(nodes)) == 4
        queue.add(Job("large", "training", large.need, large.training_seconds))
        for one in small[4:]:
            queue.add(Job(one.cell.id, "training", one.need, one.training_seconds))
        nodes.give_back(Need(1), ["n"])
        assert queue.start(nodes) == []
        for _ in range(3):
            nodes.give_back(Need(1), ["n"])
        assert [job.id for job, _ in queue.start(nodes)] == ["large"]

    def test_small_jobs_use_what_the_large_one_cannot(self) -> None:
        queue = Queue([Job("large", "training", Need(8), 9), Job("small", "training", Need(2), 1)])
        nodes = Nodes({"big": 8, "little": 2})
        nodes.take(Need(1))
        nodes.take(Need(1))  # the little node is full now
        nodes.take(Need(1))  # and one GPU of the big one is busy
        nodes.give_back(Need(1), ["little", "little"])
        assert [(job.id, place) for job, place in queue.start(nodes)] == [("small", ("little",))]

    def test_an_evaluation_comes_before_a_longer_training(self) -> None:
        queue = Queue([Job("trains", "training", Need(1), 9), Job("is evaluated", "evaluation", Need(1), 1)])
        assert [job.id for job, _ in queue.start(Nodes({"n": 1}))] == ["is evaluated"]

    def test_only_the_first_job_that_waits_reserves(self) -> None:
        """Otherwise the second one would hand the first one's node to whoever comes after it."""
        nodes = Nodes({"big": 8, "little": 4})
        for need in (Need(1), Need(7)):  # on the fullest node with room: one GPU of the little one, seven of the big
            nodes.take(need)
        assert (nodes.free("big"), nodes.free("little")) == (1, 3)
        waiting = [("first", Need(8), 9), ("second", Need(4), 8), ("small", Need(1), 1)]
        queue = Queue([Job(name, "training", need, seconds) for name, need, seconds in waiting])
        assert [(job.id, place) for job, place in queue.start(nodes)] == [("small", ("little",))]

    def test_a_node_that_is_too_small_for_a_job_is_not_kept_for_it(self) -> None:
        nodes = Nodes({"big": 8, "little": 4})
        nodes.take(Need(5))
        assert (nodes.free("big"), nodes.free("little")) == (3, 4)
        queue = Queue([Job("large", "training", Need(8), 9), Job("small", "training", Need(1), 1)])
        assert [(job.id, place) for job, place in queue.start(nodes)] == [("small", ("little",))]

    def test_nodes_to_be_avoided_get_nothing(self) -> None:
        """Those that a job has just failed on, say."""
        queue, nodes = Queue([Job("one", "training", Need(1), 1)]), Nodes({"n": 1})
        assert queue.start(nodes, avoiding={"n"}) == []
        nodes.add("other", 8)
        assert [(job.id, place) for job, place in queue.start(nodes, avoiding={"n"})] == [("one", ("other",))]

    def test_many_nodes_at_once(self) -> None:
        nodes = Nodes({"a": 8, "b": 8, "c": 4})
        assert nodes.take(Need(8, 2)) == ("a", "b")
        assert nodes.take(Need(4, 2)) is None
        assert nodes.total_free == 4  # nothing was claimed by the one that did not fit
        nodes.give_back(Need(8, 2), ("a", "b"))
        assert nodes.total_free == 20

    def test_nodes_come_and_go(self) -> None:
        nodes = Nodes({"a": 2, "b": 2})
        place = nodes.take(Need(2))
        assert place == ("a",)
        nodes.remove("a")
        nodes.give_back(Need(2), place)  # its GPUs are gone with it
        assert nodes.total_free == 2
        nodes.add("c", 8)
        assert nodes.take(Need(8)) == ("c",)

    def test_nothing_is_given_back_twice(self) -> None:
        nodes = Nodes({"a": 2})
        with pytest.raises(AssertionError, match="twice"):
            nodes.give_back(Need(1), ["a"])

    @pytest.mark.parametrize(("need", "words"), [(Need(9), "9 GPUs on one node"), (Need(8, 3), "3 nodes of 8 GPUs")])
    def test_too_few_gpus(self, need: Need, words: str) -> None:
        with pytest.raises(UserError, match=rf"cell x needs {words}.*2 nodes of at most 8 \(12 GPUs in all\)"):
            Nodes({"a": 8, "b": 4}).check(need, "cell x")

    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
    def test_grahams_bound(self, seconds: list[int], count: int) -> None:
        """Longest first is within 4/3 - 1/(3m) of the best assignment, found here by trying all."""
        nodes = {f"n{index}": 1 for index in range(count)}
        found = simulate([made_up(index, 1, value) for index, value in enumerate(seconds)], nodes).makespan
        best = min(
            max(sum(value for value, node in zip(seconds, place, strict=True) if node == n) for n in range(count))
            for place in itertools.product(range(count), repeat=len(seconds))
        )
        assert best <= found <= best * (4 / 3 - 1 / (3 * count)) + 1e-9

    def test_disk(self) -> None:
        estimates = [made_up(index, 1, 10) for index in range(3)]
        assert disk_peak(estimates, simulate(estimates, {"n": 1})) == 1 + 1 + 3
        assert disk_peak(estimates, simulate(estimates, {"n": 3})) == 9

    @pytest.mark.parametrize("text", ["8", "0x8", "2x0", "x", "2x8x1", "-1x8", "axb"])
    def test_no_cluster(self, text: str) -> None:
        with pytest.raises(UserError, match="is no cluster"):
            cluster_nodes(text)


def check_lawful(schedule: Schedule, estimates: list[CellEstimate], nodes: dict[str, int]) -> None:
    """Every job once, evaluation after training, and no node ever with more GPUs in use than it has."""
    ends = {}
    for placed in schedule.placed:
        key = (placed.job.id, placed.job.stage)
        assert key not in ends
        assert len(set(placed.nodes)) == placed.job.need.nodes
        ends[key] = placed
    assert set(ends) == {(one.cell.id, stage) for one in estimates for stage in ("training", "evaluation")}
    for one in estimates:
        assert ends[one.cell.id, "evaluation"].start >= ends[one.cell.id, "training"].end
    for moment in {placed.start for placed in schedule.placed}:
        used = dict.fromkeys(nodes, 0)
        for placed in schedule.placed:
            if placed.start <= moment < placed.end:
                for node in placed.nodes:
                    used[node] += placed.job.need.gpus
        assert all(used[node] <= nodes[node] for node in nodes)


class TestCommand:
    def run(self, *arguments: str) -> Any:
        result = CliRunner().invoke(app, ["plan", *arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0
        return json.loads(result.output)

    def test_the_24_cells(self) -> None:
        found = self.run("--protocol", "qwen3-1.7b", "--protocol", "qwen3-30b-a3b", "--cluster", "4x8", "--price", "2")
        assert len(found["cells"]) == 24
        assert found["gpu_hours"] == pytest.approx(sum(cell["gpu_hours"] for cell in found["cells"]))
        assert found["cost"] == pytest.approx(2 * found["gpu_hours"])
        assert 0.999999 < found["makespan_seconds"] / found["fluid_bound_seconds"] <= 1.05
        assert max(cell["ends_after_seconds"] for cell in found["cells"]) == found["makespan_seconds"]
        assert found["memory"]["qwen3-30b-a3b-base"]["fits"]
        assert any("assumed" in line for line in found["assumptions"])

    def test_chosen_cells_on_their_own_machine(self) -> None:
        found = self.run("--protocol", "tiny", "--reuse", "32", "--method", "respo", "--seed", "5")
        assert [cell["id"] for cell in found["cells"]] == ["tiny/tiny-qwen3/n32/respo/seed5"]
        assert found["cluster_gpus"] == 2
        assert found["gpu_hours"] == 0

    def test_fewer_gpus_a_cell(self) -> None:
        found = self.run("--protocol", "qwen3-1.7b", "--gpus-per-cell", "4", "--cluster", "1x8")
        assert {cell["gpus"] for cell in found["cells"]} == {4}

    def test_a_protocol_that_is_named_twice_is_planned_once(self) -> None:
        assert len(self.run("--protocol", "qwen3-1.7b", "--protocol", "qwen3-1.7b")["cells"]) == 12

    def test_text(self) -> None:
        result = CliRunner().invoke(app, ["plan", "--protocol", "qwen3-1.7b", "--cluster", "1x8"])
        assert "GPU-hours" in result.output
        assert "fits" in result.output

    def test_too_small_a_cluster(self) -> None:
        with pytest.raises(UserError, match=r"needs 8 GPUs on one node"):
            CliRunner().invoke(app, ["plan", "--protocol", "qwen3-1.7b", "--cluster", "9x4"], catch_exceptions=False)


def test_gpus_are_those_of_the_data_sheets() -> None:
    assert GPUS["H200"] == Gpu(139.0, 989e12, 4.8e12)


def test_a_cluster_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(UserError, match="99999999999 nodes"):
        cluster_nodes("99999999999x8")
    with pytest.raises(UserError, match="no node has 99999999999 GPUs"):
        cluster_nodes("1x99999999999")
