"""How close the schedule comes to the best possible one, and what its decisions cost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.grid import Cell, cells
from harness.plan import CellEstimate, cluster_nodes, estimate, fluid_bound, simulate
from harness.protocol import load_protocol
from harness.queueing import Need


def paper_estimates(gpus: dict[str, int] | None = None) -> list[CellEstimate]:
    found = []
    for name in ("qwen3-1.7b", "qwen3-30b-a3b"):
        protocol = load_protocol(name)
        runtime = protocol.runtime.with_gpus((gpus or {}).get(name, 8))
        found += [estimate(protocol, cell, runtime) for cell in cells(protocol)]
    return found


def best_possible(estimates: list[CellEstimate], nodes: dict[str, int], seconds: float) -> tuple[float, float]:
    """Makespan of the best schedule that CP-SAT finds, and its proof of how short none can be.

    Trainings and evaluations are indivisible, stay on one node, and an evaluation follows its training.
    """
    model_module = pytest.importorskip("ortools.sat.python.cp_model")
    model = model_module.CpModel()
    horizon = int(sum(one.seconds for one in estimates)) + len(estimates)
    makespan = model.new_int_var(0, horizon, "makespan")
    work = sum(
        one.need.total * int(one.training_seconds) + one.evaluation_need.total * int(one.evaluation_seconds)
        for one in estimates
    )
    model.add(makespan * sum(nodes.values()) >= work)  # true of every schedule, and spares the solver the search
    on_node: dict[str, list[tuple[Any, int]]] = {node: [] for node in nodes}
    for index, one in enumerate(estimates):
        before = 0
        for stage, need, duration in (
            ("training", one.need, one.training_seconds),
            ("evaluation", one.evaluation_need, one.evaluation_seconds),
        ):
            size = int(duration)  # rounded down: the proof stays a proof
            start = model.new_int_var(0, horizon, f"{stage}{index}")
            model.add(start >= before)
            model.add(makespan >= start + size)
            before = start + size
            here = []
            for node in nodes:
                chosen = model.new_bool_var(f"{stage}{index} on {node}")
                interval = model.new_optional_fixed_size_interval_var(start, size, chosen, f"{stage}{index} {node}")
                on_node[node].append((interval, need.gpus))
                here.append(chosen)
            model.add_exactly_one(here)
    for node, placed in on_node.items():
        model.add_cumulative([interval for interval, _ in placed], [gpus for _, gpus in placed], nodes[node])
    model.minimize(makespan)
    solver = model_module.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    assert status in (model_module.OPTIMAL, model_module.FEASIBLE)
    return solver.objective_value, solver.best_objective_bound


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_paper_grid_against_an_exact_solver(count: int, record_property: Any) -> None:
    """24 cells on 8, 16, 32 and 64 GPUs: within 5 % of what CP-SAT proves to be the least possible."""
    estimates, nodes = paper_estimates(), cluster_nodes(f"{count}x8")
    ours = simulate(estimates, nodes).makespan
    best, bound = best_possible(estimates, nodes, seconds=10)
    fluid = fluid_bound(estimates, nodes)
    record_property("hours", {"ours": ours / 3600, "best found": best / 3600, "proved": bound / 3600})
    print(
        f"\n{8 * count:3d} GPUs: {ours / 3600:.2f} h; exact solver {best / 3600:.2f} h, at least {bound / 3600:.2f} h; "
        f"fluid bound {fluid / 3600:.2f} h"
    )
    assert bound <= best
    assert ours <= 1.05 * max(bound, fluid)


@pytest.mark.slow
def test_cells_of_different_sizes_against_an_exact_solver() -> None:
    """Small cells on 4 GPUs beside large ones on 8: packing matters, not only order."""
    estimates, nodes = paper_estimates({"qwen3-1.7b": 4}), cluster_nodes("3x8")
    ours = simulate(estimates, nodes).makespan
    best, bound = best_possible(estimates, nodes, seconds=10)
    print(f"\nmixed: {ours / 3600:.2f} h; exact solver {best / 3600:.2f} h, at least {bound / 3600:.2f} h")
    assert ours <= 1.05 * max(bound, fluid_bound(estimates, nodes))


def many_cells() -> list[CellEstimate]:
    """10,000 cells that take 200 s on average, as the tiny protocol's do: the hardest case for the loop."""
    draw = random.Random(0)
    return [
        CellEstimate(
            cell=Cell("p", "m", 8, "grpo", index),
            need=Need(draw.choice([1, 2, 4, 8])),
            training_seconds=draw.uniform(100, 300),
            parts={},
            evaluation_need=Need(1),
            evaluation_seconds=draw.uniform(20, 40),
            disk_peak=0,
            disk_kept=0,
            memory=None,
            real_gpus=False,
        )
        for index in range(10_000)
    ]


@pytest.mark.slow
def test_scheduling_loop_with_ten_thousand_cells(benchmark: Any) -> None:
    """On 1,000 pretend nodes of 8 GPUs, deciding takes less than 1 % of the time that the work takes."""
    estimates, nodes = many_cells(), cluster_nodes("1000x8")
    schedule = benchmark.pedantic(simulate, (estimates, nodes), rounds=3, iterations=1)
    print(f"\nloop {schedule.loop_seconds:.2f} s, makespan {schedule.makespan:.0f} s")
    assert schedule.loop_seconds < 0.01 * schedule.makespan
    assert len(schedule.placed) == 20_000
    assert schedule.makespan < 1.2 * fluid_bound(estimates, nodes)
