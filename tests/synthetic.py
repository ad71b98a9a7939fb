"""Synthetic results: complete, sealed records with their sample and curve files, for tests of what reads a store.

Nothing here is a measurement. The numbers look like ours: problems differ widely in difficulty, methods differ by a few
points and fall with N, seeds scatter, the two graders disagree on about one sample in a hundred.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness import records
from harness.curves import training_summary
from harness.evaluation import request_seed
from harness.grid import Cell
from harness.protocol import Protocol, available, load_protocol
from harness.scoring import COLUMNS
from methods.diagnostics import LOG_WEIGHT_EDGES
from methods.registry import available as installed_methods
from methods.registry import source_digest
from tasks import chain, datasets

TITLES = {"grpo": "GRPO", "gspo": "GSPO", "vespo": "VESPO", "respo": "ReSPO", "reinforce": "REINFORCE"}
LIFT = {"grpo": 0.0, "gspo": 0.05, "vespo": 0.45, "respo": 0.75, "reinforce": -0.6}
TINY_TASKS = {f"tiny_sum{digits}": (30, 4) for digits in (3, 4, 5, 6, 7, 8)}
SAMPLES_SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def synthetic_store(
    path: Path,
    *,
    protocol: str = "tiny",
    models: Sequence[str] = ("tiny-qwen3",),
    methods: Sequence[str] = ("grpo", "gspo", "vespo", "respo"),
    reuses: Sequence[int] = (8, 16, 32),
    seeds: Sequence[int] = (0, 1, 2),
    tasks: Mapping[str, tuple[int, int]] | None = None,
    rng_seed: int = 0,
    statuses: Mapping[tuple[str, int, int], str] | None = None,
    updates: int | None = None,
    base: bool = False,
) -> Path:
    """Write a store of records with all their files; the same arguments give the same bytes.

    With a protocol of the package and neither ``tasks`` nor ``updates``, the records are what the protocol asks for
    and `reuse-bench verify` accepts them.

    Args:
        tasks: name -> (problems, samples per problem); those of the protocol by default, or six small ones.
        statuses: (method, reuse, seed) -> "done", "collapsed" or "failed"; done where not named. A failed cell has
            half of its updates, a collapsed one three quarters, the last of them without a right answer; neither has a
            checkpoint to evaluate.
        updates: policy updates per run, a multiple of every reuse; those of the protocol by default, or 64.
        base: also write a record of each base model, untrained.

    Returns:
        ``path``, the store.
    """
    plan = _plan(protocol, tasks, updates)
    statuses = statuses or {}
    for model in models:
        if base:
            _write(path, plan, Cell(protocol, model, 0, "base", 0), rng_seed, "done")
        for reuse in reuses:
            for method in methods:
                for seed in seeds:
                    status = statuses.get((method, reuse, seed), "done")
                    _write(path, plan, Cell(protocol, model, reuse, method, seed), rng_seed, status)
    return path


@dataclass(frozen=True)
class _Plan:
    protocol: records.ProtocolRef
    tasks: dict[str, tuple[int, int]]
    sampling: tuple[float, float, int]
    updates: int
    early: tuple[int, int]
    late: tuple[int, int]
    responses: int
    stated: Protocol | None


def _plan(name: str, tasks: Mapping[str, tuple[int, int]] | None, updates: int | None) -> _Plan:
    if name in available():
        stated = load_protocol(name)
        asked = {task: (spec.problems, spec.samples) for task, spec in stated.evaluation.tasks.items()}
        windows = (stated.scoring.early, stated.scoring.late)
        own = updates is None
        updates = updates or stated.update.updates
        return _Plan(
            records.ProtocolRef(id=name, version=stated.version, digest=stated.digest),
            dict(tasks or asked),
            (stated.evaluation.temperature, stated.evaluation.top_p, stated.evaluation.max_tokens),
            updates,
            *(windows if own else ((1, updates // 4), (updates * 7 // 8, updates))),
            responses=stated.responses_per_update,
            stated=stated,
        )
    updates = updates or 64
    return _Plan(
        records.ProtocolRef(id=name, version=1, digest=sha(f"protocol {name}")),
        dict(tasks or TINY_TASKS),
        (1.0, 1.0, 64),
        updates,
        (1, updates // 4),
        (updates * 7 // 8, updates),
        responses=64,
        stated=None,
    )


def _write(store: Path, plan: _Plan, cell: Cell, rng_seed: int, status: str) -> None:
    rng = np.random.default_rng(list(sha(f"{rng_seed} {cell.id}").encode()))
    base = cell.method == "base"
    skill = -1.2 if base else LIFT.get(cell.method, 0.2) - 0.25 * np.log2(cell.reuse / 8) + rng.normal(0, 0.12)
    folder = store / cell.path
    training = None
    updates = 0
    if not base:
        updates = {"failed": plan.updates // 2, "collapsed": plan.updates * 3 // 4}.get(status, plan.updates)
        # The first rollout batch of a seed is the same under every method.
        shared = np.random.default_rng(list(sha(f"{rng_seed} {cell.model} {cell.reuse} {cell.seed}").encode()))
        lines = _updates(rng, cell.reuse, updates, plan.responses, skill, first_noise=float(shared.normal(0, 0.01)))
        if status == "collapsed":
            for line in lines[plan.updates // 2 :]:
                line |= {"score": 0.0, "reward": -1.0}
        text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
        records.write_atomically(folder / "updates.jsonl", text.encode())
        training = training_summary(
            lines,
            early=plan.early,
            late=plan.late,
            reuse=cell.reuse,
            curve=records.file_ref(folder / "updates.jsonl", folder),
            collapse=f"the score stayed at or below 0.01 from update {plan.updates // 2 + 1} to {updates}"
            if status == "collapsed"
            else None,
        )
    evaluation = {}
    if status == "done":
        for task, size in plan.tasks.items():
            evaluation[task] = _evaluate(rng, folder, task, size, plan.sampling, skill, rng_seed, cell.seeds.evaluation)
    ended = {"done": "completed"}.get(status, status)
    record = records.Record(
        kind="base" if base else "trained",
        status=status,  # type: ignore[arg-type]
        division="closed",
        deviations=[],
        protocol=plan.protocol,
        model=records.ModelRef(
            name=cell.model, source=_model_source(plan, cell.model), revision=None, digest=sha(cell.model)
        ),
        method=None
        if base
        else records.MethodRef(
            name=cell.method,
            title=TITLES.get(cell.method, cell.method),
            version="1",
            source_sha256=_source(cell.method),
            origin="built-in",
            hyperparameters=_hyperparameters(plan, cell.method),
        ),
        reuse=None if base else cell.reuse,
        seeds=cell.seeds,
        data=[
            records.DataRef(name="chain", role="train", source="made by the project", rows=4096, digest=sha("chain")),
            *(
                records.DataRef(
                    name=task, role="evaluation", source="synthetic", rows=size[0], digest=_data_digest(task, size[0])
                )
                for task, size in plan.tasks.items()
            ),
        ],
        training=training,
        checkpoint=records.Checkpoint(update=updates, digest=sha(f"{cell.id} weights"))
        if status == "done" and not base
        else None,
        evaluation=evaluation,
        attempts=[]
        if base
        else [
            records.Attempt(
                started="2026-11-01T08:00:00+00:00",
                ended="2026-11-01T08:04:00+00:00",
                first_update=1,
                last_update=updates,
                outcome=ended,  # type: ignore[arg-type]
                reason=None if status == "done" else "synthetic",
            )
        ],
        failure="the training worker ended with exit code 1" if status == "failed" else None,
        provenance=records.Provenance(
            reuse_bench_version="0.1.0",
            commit=hashlib.sha1(b"synthetic").hexdigest(),
            dirty=False,
            diff_sha256=None,
            lock_sha256=sha("lock"),
            packages={"math-verify": "0.9.0", "openrlhf": "0.11.2", "torch": "2.13.0", "vllm": "0.29.0"},
            python="3.11.9",
            platform="Linux-6.1-x86_64",
            hardware={"cpu": "synthetic", "cores": 2, "memory_gib": 16.0, "gpus": []},
            environment={"OMP_NUM_THREADS": "1"},
            command=["reuse-bench", "run", "--protocol", cell.protocol_id],
            started="2026-11-01T08:00:00+00:00",
            ended="2026-11-01T08:05:00+00:00",
        ),
        cost=records.Cost(
            gpu_hours=0.0 if cell.protocol_id in ("tiny", "smoke") else 40.0,
            training_seconds=0.0 if base else 240.0,
            evaluation_seconds=60.0,
        ),
        notes={"synthetic": True},
    )
    records.write_record(record, store)


def _model_source(plan: _Plan, model: str) -> str:
    known = {spec.name: spec.source for spec in plan.stated.models} if plan.stated else {}
    return known.get(model, f"synthetic/{model}")


def _hyperparameters(plan: _Plan, method: str) -> dict[str, float | int | str | bool | None]:
    known = plan.stated.methods.hyperparameters if plan.stated else {}
    return dict(known.get(method, {"strength": 1.0}))


@cache
def _source(method: str) -> str:
    return source_digest(method) if method in installed_methods() else sha(f"method {method}")


@cache
def _difficulty(rng_seed: int, task: str, problems: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log-odds of each problem, the same for all cells: many are nearly always or nearly never solved."""
    rng = np.random.default_rng(list(sha(f"{rng_seed} {task}").encode()))
    return rng.normal(-0.3, 1.0, problems) + rng.choice([-1.5, 1.5], problems)


@cache
def _questions(task: str, problems: int) -> tuple[list[str], list[str], list[str], str]:
    """Ids, prompt digests, golds, and the digest over all prompts."""
    if task in chain.TINY_TASKS and problems <= chain.HELD_OUT_PROBLEMS:
        known = chain.held_out_problems(task)[:problems]
        ids, golds = [one["id"] for one in known], [one["answer"] for one in known]
        prompts = [sha(one["problem"]) for one in known]
    else:
        ids = [f"{task}-{index}" for index in range(problems)]
        prompts = [sha(f"prompt {name}") for name in ids]
        golds = [str(int(prompt, 16) % 10) for prompt in prompts]
    pairs = [[name, prompt] for name, prompt in zip(ids, prompts, strict=True)]
    return ids, prompts, golds, hashlib.sha256(records.canonical_json(pairs)).hexdigest()


@cache
def _request_seeds(seed: int, task: str, problems: int, samples: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    ids = _questions(task, problems)[0]
    return np.array([request_seed(seed, task, name, sample) for name in ids for sample in range(samples)])


def _evaluate(
    rng: np.random.Generator,
    folder: Path,
    task: str,
    size: tuple[int, int],
    sampling: tuple[float, float, int],
    skill: float,
    rng_seed: int,
    seed: int,
) -> records.TaskResult:
    problems, samples = size
    ids, prompts, golds, digest = _questions(task, problems)
    chance = 1 / (1 + np.exp(-(_difficulty(rng_seed, task, problems) + skill + rng.normal(0, 0.3, problems))))
    right = rng.random((problems, samples)) < chance[:, None]
    flipped = rng.random(right.shape) < 0.01
    errors = rng.random(right.shape) < 0.001
    truncated = (rng.random(right.shape) < 0.03) & ~right
    tokens = np.maximum(4, rng.normal(28 + 4 * ~right, 6)).astype(np.int32)
    gold = np.repeat(np.array(golds), samples)
    answers = np.where(right.ravel(), gold, np.array([str((int(g) + 3) % 10) for g in gold]))
    extracted = [None if cut else str(answer) for cut, answer in zip(truncated.ravel(), answers, strict=True)]
    verdicts = {
        "published": np.where(errors, "error", np.where(right, "right", "wrong")).ravel(),
        "audited": np.where(flipped & ~truncated, "error", np.where(right, "right", "wrong")).ravel(),
    }
    table = pa.table(
        {
            "problem_id": np.repeat(np.array(ids), samples),
            "sample": np.tile(np.arange(samples, dtype=np.int32), problems),
            "seed": _request_seeds(seed, task, problems, samples),
            "prompt_sha256": np.repeat(np.array(prompts), samples),
            "gold": gold,
            "response": [_response(task, answer) for answer in extracted],
            "finish_reason": np.where(truncated, "length", "stop").ravel(),
            "response_tokens": tokens.ravel(),
            "extracted": extracted,
            "published": verdicts["published"],
            "audited": verdicts["audited"],
            "reason": [None if answer else "no box" for answer in extracted],
        },
        schema=SAMPLES_SCHEMA,
    )
    path = folder / "samples" / f"{task}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    per_problem = {
        name: (verdict.reshape(problems, samples) == "right").sum(axis=1) for name, verdict in verdicts.items()
    }
    return records.TaskResult(
        task=task,
        problems=problems,
        sampling=records.Sampling(
            temperature=sampling[0], top_p=sampling[1], max_tokens=sampling[2], samples_per_problem=samples
        ),
        prompts_digest=digest,
        scores={
            name: records.TaskScore(
                pass_at_1=float(np.mean(per_problem[name] / samples)),
                right=int((verdict == "right").sum()),
                wrong=int((verdict == "wrong").sum()),
                errors=int((verdict == "error").sum()),
            )
            for name, verdict in verdicts.items()
        },
        problem_ids=ids,
        right_per_problem={name: counts.tolist() for name, counts in per_problem.items()},
        truncated=int(truncated.sum()),
        mean_response_tokens=float(tokens.mean()),
        samples=records.file_ref(path, folder),
    )


def _response(task: str, answer: str | None) -> str:
    """What both graders judge as the verdicts say; a chain of rewrites for the tiny tasks."""
    if answer is None:
        return "and then"
    return f"12=3,3={answer}" if task in chain.TINY_TASKS else f"so it is \\boxed{{{answer}}}"


def _data_digest(task: str, problems: int) -> str:
    """That of the real set where the problems are as many."""
    if task in chain.TINY_TASKS and problems == chain.HELD_OUT_PROBLEMS:
        return datasets.evaluation_problems(task).digest
    entry = datasets.manifest().get(task)
    return entry.digest if entry and entry.digest and entry.rows == problems else sha(task)


def _updates(
    rng: np.random.Generator, reuse: int, count: int, responses: int, skill: float, *, first_noise: float
) -> list[dict[str, Any]]:
    lines = []
    rollouts = count // reuse
    top = 1 / (1 + np.exp(-skill))
    for rollout in range(rollouts):
        score = float(np.clip(0.25 + (top - 0.25) * (1 - np.exp(-4 * rollout / max(rollouts, 1))), 0.01, 0.99))
        noise = first_noise if rollout == 0 else rng.normal(0, 0.01)
        score = float(np.clip(score + noise, 0.0, 1.0))
        for mini_batch in range(reuse):
            drift = 0.05 * mini_batch
            positive = rng.normal(0.3 * drift, 0.01 + drift, max(1, int(responses * score)))
            negative = rng.normal(-drift, 0.01 + drift, max(1, responses - positive.size))
            lines.append(
                {
                    "update": rollout * reuse + mini_batch + 1,
                    "rollout": rollout + 1,
                    "mini_batch": mini_batch,
                    "loss": round(float(rng.normal(0, 0.02)), 6),
                    "reward": round(2 * score - 1 + float(rng.normal(0, 0.05)), 6),
                    "score": score,
                    "learning_rate": 3e-4,
                    "gradient_norm": round(float(rng.gamma(4, 0.1)), 6),
                    "seconds": 0.4,
                    "mean_length": round(float(rng.normal(28, 1)), 4),
                    "truncated": round(float(rng.random() * 0.02), 4),
                    "engine_gap": round(float(rng.random() * 0.01), 6),
                    "log_weight": {
                        "positive": _log_weights(rng, positive),
                        "negative": _log_weights(rng, negative),
                    },
                    "ess": round(float(1 / (1 + drift)), 6),
                    "clip_fraction": round(min(1.0, drift), 6),
                    "responses": responses,
                    "zero_advantage": 0,
                }
            )
    return lines


def _log_weights(rng: np.random.Generator, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    bins = np.searchsorted(LOG_WEIGHT_EDGES, values, side="right")
    counts = np.bincount(bins, minlength=len(LOG_WEIGHT_EDGES) + 1)
    mass = np.bincount(bins, weights=np.exp(np.minimum(values, 0)), minlength=len(LOG_WEIGHT_EDGES) + 1)
    # As `numpy.quantile`, which takes longer than everything else here.
    levels = np.array([0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    quantiles = np.interp(levels * (values.size - 1), np.arange(values.size), np.sort(values))
    names = ("min", "q05", "q25", "q50", "q75", "q95", "max")
    return {
        "responses": int(values.size),
        "mean": round(float(values.mean()), 6),
        **{name: round(float(value), 6) for name, value in zip(names, quantiles, strict=True)},
        "counts": counts.tolist(),
        "mass": [round(float(value), 6) for value in mass],
        "mean_length": round(float(rng.normal(28, 2)), 4),
    }
