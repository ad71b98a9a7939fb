"""What a grid takes before it is run: memory, time, GPU-hours, wall time on a cluster, disk.

These are estimates from a small model with few constants, each of them here or in the ``planning`` section of the
protocol, and each printed with the result. Measured times replace the model where the protocol states them. Sizes of
memory are in GiB, and a GPU that is sold as "80 GB" has about 80 of them.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from harness.grid import Cell
from harness.protocol import Architecture, Planning, Protocol, Runtime
from harness.queueing import Job, Need, Nodes, Queue
from methods.errors import UserError

GIB = 2**30
BYTES_BF16 = 2
BYTES_FLOAT32 = 4


@dataclass(frozen=True)
class Gpu:
    """Data sheet of a GPU: memory, dense bf16 peak, memory bandwidth."""

    memory_gib: float
    flops: float
    bandwidth: float


GPUS = {
    "A100": Gpu(79.0, 312e12, 2.04e12),
    "H100": Gpu(79.0, 989e12, 3.35e12),
    "H200": Gpu(139.0, 989e12, 4.8e12),
}
"""By name; memory as the driver reports it."""

# Assumed, not measured.
CONTEXT_GIB = 5.0
"""CUDA context, NCCL buffers and fragmentation of one trainer and one engine together."""
ASLEEP_GIB = 1.5
"""What an engine keeps on the GPU while it sleeps."""
PROCESS_GIB = 16.0
"""Host memory of a trainer or engine process with its share of a rollout batch."""
REDUCE_BUCKET = 500_000_000
"""Gradients in one of DeepSpeed's two reduction buckets, its default."""
ENGINE_SEQUENCES = 256
"""Responses that an engine decodes at once, at most."""
DECODE_FLOOR_SECONDS = 4e-3
"""Least time of a decoding step, however little there is to read."""
START_SECONDS = {"training": 300.0, "evaluation": 180.0}
ROLLOUT_SECONDS = 12.0
"""Around each rollout batch: sleep, wake, weight sync."""
DISK_BANDWIDTH = 2e9
"""Bytes a second, for checkpoints."""


# Memory ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """GiB per GPU in each phase of a training step, and of the host.

    Attributes:
        update: forward and backward pass of the largest micro-batch, engine asleep.
        log_probs: forward pass for the old log-probabilities, engine asleep.
        generation: engine awake beside what the trainer leaves on the GPU.
        host: per node, beside the operating system.
        available: of the GPU.
    """

    update: float
    log_probs: float
    generation: float
    host: float
    available: float

    @property
    def peak(self) -> float:
        """The largest phase."""
        return max(self.update, self.log_probs, self.generation)

    @property
    def fits(self) -> bool:
        """Whether every phase fits."""
        return self.peak <= self.available


def memory(protocol: Protocol, model: str, runtime: Runtime, gpu: Gpu) -> Memory:
    """Memory of a training cell, in the worst case: every response in a micro-batch as long as it may be.

    Mixed-precision AdamW keeps, a parameter: 2 bytes of weights, 2 and 4 of gradients (bf16 and float32), 4 of float32
    weights and 8 of moments (Rajbhandari et al. 2020, section 3.1, and DeepSpeed's own estimate). ZeRO-2 spreads all
    but the weights over the trainers, ZeRO-3 the weights too.
    """
    sizes = _planning(protocol, model).architecture
    states = trainer_states(sizes, runtime)
    trainer_awake = states.weights + states.gradients + states.moments + states.working
    trainer_asleep = states.weights if runtime.trainer_sleeps else trainer_awake - states.working
    logits = sizes.vocabulary * (BYTES_BF16 + BYTES_FLOAT32) / GIB  # a token's, and their float32 copy
    train_tokens = runtime.train_micro_batch * protocol.max_tokens
    rollout_tokens = runtime.rollout_micro_batch * protocol.max_tokens
    layer = sizes.layer_activations * BYTES_BF16 / GIB
    kept_layers = 1 if runtime.gradient_checkpointing else sizes.layers
    layer_inputs = sizes.hidden * sizes.layers * BYTES_BF16 / GIB
    # Backward, logits and copy have gradients of the same sizes.
    update = trainer_awake + train_tokens * (2 * logits + kept_layers * layer + layer_inputs)
    log_probs = trainer_asleep + states.working + rollout_tokens * (logits + layer)
    beside_engine = trainer_asleep if runtime.colocate else 0.0
    generation = runtime.engine_memory_share * gpu.memory_gib + beside_engine + CONTEXT_GIB
    asleep = CONTEXT_GIB + (ASLEEP_GIB if runtime.colocate else 0.0)
    per_node = runtime.trainers // runtime.nodes
    offloaded = (states.moments + states.gradients) if runtime.trainer_sleeps else 0.0
    if runtime.adam_offload:
        offloaded = sizes.parameters * 3 * BYTES_FLOAT32 / runtime.trainers / GIB
    host = per_node * (offloaded + PROCESS_GIB)
    if runtime.colocate:
        host += _weights_gib(sizes) * runtime.engines / runtime.nodes  # weights of sleeping engines
    return Memory(update + asleep, log_probs + asleep, generation, host, gpu.memory_gib)


@dataclass(frozen=True)
class States:
    """GiB of a trainer on its GPU: bf16 weights, gradients, optimiser (float32 weights and moments), buffers."""

    weights: float
    gradients: float
    moments: float
    working: float


def trainer_states(sizes: Architecture, runtime: Runtime) -> States:
    """What DeepSpeed keeps on each trainer's GPU."""
    parameters, trainers, stage = sizes.parameters, runtime.trainers, runtime.zero_stage
    if stage == 3:
        # The block in use and the one that is fetched ahead.
        working = 2 * BYTES_BF16 * max(sizes.largest_block, sizes.vocabulary * sizes.hidden)
    else:
        working = 2 * BYTES_BF16 * REDUCE_BUCKET
    return States(
        weights=_weights_gib(sizes) / (trainers if stage == 3 else 1),
        gradients=(BYTES_BF16 + BYTES_FLOAT32) * parameters / (trainers if stage >= 2 else 1) / GIB,
        moments=0.0 if runtime.adam_offload else 3 * BYTES_FLOAT32 * parameters / (trainers if stage else 1) / GIB,
        working=working / GIB,
    )


def _weights_gib(sizes: Architecture) -> float:
    return BYTES_BF16 * sizes.parameters / GIB


# Time -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellEstimate:
    """What one cell takes. ``parts`` splits the training seconds, where they come from the model."""

    cell: Cell
    need: Need
    training_seconds: float
    parts: Mapping[str, float]
    evaluation_need: Need
    evaluation_seconds: float
    disk_peak: float
    disk_kept: float
    memory: Memory | None
    real_gpus: bool

    @property
    def held_seconds(self) -> float:
        """GPU-seconds of training and evaluation; of pretend GPUs too."""
        return self.need.total * self.training_seconds + self.evaluation_need.total * self.evaluation_seconds

    @property
    def gpu_hours(self) -> float:
        """Of real GPUs: 0 for a cell that runs on the CPU."""
        return self.held_seconds / 3600 if self.real_gpus else 0.0

    @property
    def largest_need(self) -> int:
        """GPUs that one node must have."""
        return max(self.need.gpus, self.evaluation_need.gpus)

    @property
    def seconds(self) -> float:
        """From start to end when nothing has to be waited for."""
        return self.training_seconds + self.evaluation_seconds


def estimate(protocol: Protocol, cell: Cell, runtime: Runtime | None = None) -> CellEstimate:
    """Time, GPUs and disk of one cell.

    Raises:
        UserError: the protocol says nothing on the model's size or speed.
    """
    runtime = runtime or protocol.runtime
    planning = _planning(protocol, cell.model)
    sizes = planning.architecture
    gpu = _gpu(protocol, planning)
    weights = BYTES_BF16 * sizes.parameters
    states = (BYTES_BF16 + 3 * BYTES_FLOAT32) * sizes.parameters if runtime.resumable else 0
    kept_points = protocol.update.updates // protocol.checkpoints.every_updates
    kept = weights * (1 + (kept_points if runtime.keep_intermediate_weights else 0))
    parts: dict[str, float] = {}
    if gpu is None:
        assert planning.training_seconds is not None
        assert planning.evaluation_seconds is not None
        training, evaluation = planning.training_seconds, planning.evaluation_seconds
    else:
        parts = _training_parts(protocol, cell, runtime, planning, gpu, states)
        training = sum(parts.values())
        evaluation = _evaluation_seconds(protocol, runtime, planning, gpu)
    return CellEstimate(
        cell=cell,
        need=Need(runtime.gpus // runtime.nodes, runtime.nodes),
        training_seconds=training,
        parts=parts,
        evaluation_need=Need(runtime.evaluation_gpus),
        evaluation_seconds=evaluation,
        disk_peak=kept + 2 * states,
        disk_kept=kept,
        memory=memory(protocol, cell.model, runtime, gpu) if gpu else None,
        real_gpus=gpu is not None,
    )


def _planning(protocol: Protocol, model: str) -> Planning:
    if model not in protocol.planning:
        raise UserError(
            f"protocol {protocol.id}: field planning.{model} is missing: add the model's sizes and speeds to estimate "
            "what it takes"
        )
    return protocol.planning[model]


def _gpu(protocol: Protocol, planning: Planning) -> Gpu | None:
    if planning.gpu is None:
        return None
    if planning.gpu not in GPUS:
        raise UserError(
            f"protocol {protocol.id}: field planning gpu = {planning.gpu!r} is unknown: known are {', '.join(GPUS)}"
        )
    return GPUS[planning.gpu]


def _training_parts(
    protocol: Protocol, cell: Cell, runtime: Runtime, planning: Planning, gpu: Gpu, states: float
) -> dict[str, float]:
    assert planning.training_response_tokens
    assert planning.prompt_tokens
    assert planning.training_efficiency
    assert planning.prefill_efficiency
    sizes, length = planning.architecture, planning.training_response_tokens
    context = planning.prompt_tokens + length
    tokens = protocol.prompts * protocol.rollout.responses_per_prompt * context
    forward = _flops_per_token(sizes, context) * tokens / (runtime.trainers * gpu.flops)
    passes = 4 if runtime.gradient_checkpointing else 3
    rollouts = protocol.rollouts(cell.reuse)
    responses = protocol.responses_per_update * cell.reuse / runtime.engines
    generation = rollouts * generation_seconds(
        planning, gpu, runtime, responses, length, protocol.rollout.max_response_tokens, runtime.engine_memory_share
    )
    saves = protocol.update.updates // (runtime.save_every_updates or protocol.checkpoints.every_updates)
    return {
        "start": START_SECONDS["training"],
        "generation": generation,
        "log-probabilities": forward / planning.prefill_efficiency,
        "updates": forward * passes / planning.training_efficiency,
        "around rollouts": rollouts * ROLLOUT_SECONDS,
        "saving": saves * states / DISK_BANDWIDTH,
    }


def _evaluation_seconds(protocol: Protocol, runtime: Runtime, planning: Planning, gpu: Gpu) -> float:
    assert planning.evaluation_response_tokens
    engines = max(1, runtime.evaluation_gpus // runtime.tensor_parallel)
    responses = sum(task.problems * task.samples for task in protocol.evaluation.tasks.values()) / engines
    return START_SECONDS["evaluation"] + generation_seconds(
        planning,
        gpu,
        runtime,
        responses,
        planning.evaluation_response_tokens,
        protocol.evaluation.max_tokens,
        runtime.evaluation_memory_share,
    )


def generation_seconds(
    planning: Planning, gpu: Gpu, runtime: Runtime, responses: float, length: float, cap: int, memory_share: float
) -> float:
    """Seconds of one engine for that many responses: reading prompts, decoding in full batches, and the long tail.

    A decoding step reads the weights that its tokens touch and the keys and values of all of them; it is bound by
    memory bandwidth. The longest response is taken to start in the middle of the batch and to end alone.
    """
    assert planning.prompt_tokens
    assert planning.prefill_efficiency
    assert planning.decode_efficiency
    sizes, width = planning.architecture, runtime.tensor_parallel
    context = planning.prompt_tokens + length
    kv_bytes = BYTES_BF16 * sizes.kv_values_per_token
    room = (memory_share * gpu.memory_gib - CONTEXT_GIB) * width * GIB - BYTES_BF16 * sizes.parameters
    if room <= kv_bytes * (planning.prompt_tokens + cap):
        raise UserError(
            f"engine memory: {memory_share:g} of {width} x {gpu.memory_gib:g} GiB leaves no room for one response of "
            f"{cap} tokens beside the weights: raise runtime.tensor_parallel or runtime.engine_memory_share"
        )
    batch = min(ENGINE_SEQUENCES, responses, max(1.0, room / (kv_bytes * context)))
    bandwidth = gpu.bandwidth * width * planning.decode_efficiency

    def step(sequences: float) -> float:
        read = BYTES_BF16 * sizes.touched_parameters(sequences) + sequences * kv_bytes * (context - length / 2)
        return max(DECODE_FLOOR_SECONDS, read / bandwidth)

    prefill = responses * planning.prompt_tokens * _flops_per_token(sizes, planning.prompt_tokens)
    prefill /= gpu.flops * width * planning.prefill_efficiency
    return prefill + responses * length / batch * step(batch) + cap * step(1) / 2


def _flops_per_token(sizes: Architecture, context: float) -> float:
    """Of a forward pass: 2 a parameter, and attention over half the context on average."""
    return 2 * sizes.active_parameters + 4 * sizes.layers * sizes.heads * sizes.head_dim * context / 2


# Wall time ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A job as the simulation ran it."""

    job: Job
    nodes: tuple[str, ...]
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """A simulated run of the scheduler. ``loop_seconds`` is the real time that its decisions took."""

    placed: Sequence[Placed]
    makespan: float
    loop_seconds: float


MOST_NODES = 10_000
MOST_GPUS = 1_000_000


def cluster_nodes(text: str) -> dict[str, int]:
    """GPUs by node of a cluster written as ``NxG``: N nodes of G GPUs.

    Raises:
        UserError: the text is nothing of the kind.
    """
    nodes, found, gpus = text.lower().partition("x")
    if not found or not nodes.isdecimal() or not gpus.isdecimal() or not int(nodes) or not int(gpus):
        raise UserError(f"--cluster {text!r} is no cluster: write 4x8 for 4 nodes of 8 GPUs")
    if int(nodes) > MOST_NODES:
        raise UserError(f"--cluster {text!r}: {nodes} nodes are more than are planned for: give at most {MOST_NODES}")
    if int(gpus) > MOST_GPUS:
        raise UserError(f"--cluster {text!r}: no node has {gpus} GPUs: give at most {MOST_GPUS}")
    return {f"node{index}": int(gpus) for index in range(int(nodes))}


def simulate(estimates: Sequence[CellEstimate], nodes: Mapping[str, int]) -> Schedule:
    """Run the scheduling policy on estimated times: each cell trains, then waits again to be evaluated.

    Raises:
        UserError: a cell does not fit the cluster.
    """
    places = Nodes(nodes)
    queue = Queue()
    evaluations: dict[str, Job] = {}
    for one in estimates:
        places.check(one.need, f"cell {one.cell.id}")
        places.check(one.evaluation_need, f"the evaluation of cell {one.cell.id}")
        queue.add(Job(one.cell.id, "training", one.need, one.training_seconds))
        evaluations[one.cell.id] = Job(one.cell.id, "evaluation", one.evaluation_need, one.evaluation_seconds)
    running: list[tuple[float, int, Job, tuple[str, ...]]] = []
    placed: list[Placed] = []
    order = count()
    now = spent = 0.0
    while True:
        before = time.perf_counter()
        for job, where in queue.start(places):
            heapq.heappush(running, (now + job.seconds, next(order), job, where))
            placed.append(Placed(job, where, now, now + job.seconds))
        spent += time.perf_counter() - before
        if not running:
            break
        now = running[0][0]
        before = time.perf_counter()
        while running and running[0][0] == now:
            _, _, job, where = heapq.heappop(running)
            places.give_back(job.need, where)
            if job.stage == "training":
                queue.add(evaluations[job.id])
        spent += time.perf_counter() - before
    return Schedule(placed, now, spent)


def fluid_bound(estimates: Sequence[CellEstimate], nodes: Mapping[str, int]) -> float:
    """No schedule is shorter: all GPUs busy all the time, or the longest cell."""
    total = sum(one.held_seconds for one in estimates)
    return max(total / sum(nodes.values()), max((one.seconds for one in estimates), default=0.0))


def disk_peak(estimates: Sequence[CellEstimate], schedule: Schedule) -> float:
    """Largest number of bytes on disk: states of cells in training, and the weights of all that have ended."""
    by_id = {one.cell.id: one for one in estimates}
    changes: list[tuple[float, float]] = []
    for one in schedule.placed:
        if one.job.stage == "training":
            size = by_id[one.job.id]
            changes += [(one.start, size.disk_peak), (one.end, size.disk_kept - size.disk_peak)]
    held = peak = 0.0
    for _, change in sorted(changes, key=lambda item: (item[0], item[1])):
        held += change
        peak = max(peak, held)
    return math.ceil(peak)


def report(
    protocols: Sequence[Protocol],
    estimates: Sequence[CellEstimate],
    nodes: Mapping[str, int],
    schedule: Schedule,
    price: float | None = None,
) -> dict[str, Any]:
    """Everything that `reuse-bench plan` says, as JSON values. ``price`` is that of a GPU-hour."""
    placed = {(one.job.id, one.job.stage): one for one in schedule.placed}
    gpu_hours = sum(one.gpu_hours for one in estimates)
    gpus = {name: planning.gpu for protocol in protocols for name, planning in protocol.planning.items()}
    return {
        "cells": [
            {
                "id": one.cell.id,
                "gpus": one.need.total,
                "nodes": one.need.nodes,
                "training_seconds": one.training_seconds,
                "training_parts_seconds": dict(one.parts),
                "evaluation_gpus": one.evaluation_need.total,
                "evaluation_seconds": one.evaluation_seconds,
                "gpu_hours": one.gpu_hours,
                "starts_after_seconds": placed[one.cell.id, "training"].start,
                "ends_after_seconds": placed[one.cell.id, "evaluation"].end,
                "disk_kept_bytes": one.disk_kept,
            }
            for one in estimates
        ],
        "gpu_hours": gpu_hours,
        "cluster_gpus": sum(nodes.values()),
        "makespan_seconds": schedule.makespan,
        "fluid_bound_seconds": fluid_bound(estimates, nodes),
        "scheduling_loop_seconds": schedule.loop_seconds,
        "disk_peak_bytes": disk_peak(estimates, schedule),
        "disk_kept_bytes": sum(one.disk_kept for one in estimates),
        "cost": None if price is None else price * gpu_hours,
        "memory": {
            one.cell.model: asdict(one.memory)
            | {"peak": one.memory.peak, "fits": one.memory.fits, "gpu": gpus[one.cell.model]}
            for one in estimates
            if one.memory
        },
        "assumptions": [
            f"{name}: {assumption}"
            for protocol in protocols
            for name, planning in protocol.planning.items()
            for assumption in _assumptions(planning)
        ],
    }


def _assumptions(planning: Planning) -> list[str]:
    if planning.gpu is None:
        return [planning.notes]
    return [
        f"{planning.training_response_tokens:g} tokens a response in training and "
        f"{planning.evaluation_response_tokens:g} in evaluation",
        f"{planning.training_efficiency:.0%} of {planning.gpu}'s peak in updates, {planning.prefill_efficiency:.0%} in "
        f"forward passes, {planning.decode_efficiency:.0%} of its bandwidth in decoding",
        planning.notes,
    ]
