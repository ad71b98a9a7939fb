"""Synthetic results: complete, sealed records with their sample and curve files, for tests of what reads a store.

Nothing here is a measurement. The numbers look like ours: problems differ widely in difficulty, methods differ by a few
points and fall with N, seeds scatter, the two graders disagree on about one sample in a hundred.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness import records
from harness.curves import early_score, final_score, late_score, mean_score

TITLES = {"grpo": "GRPO", "gspo": "GSPO", "vespo": "VESPO", "respo": "ReSPO", "reinforce": "REINFORCE"}
LIFT = {"grpo": 0.0, "gspo": 0.05, "vespo": 0.45, "respo": 0.75, "reinforce": -0.6}
TINY_TASKS = {f"tiny_sum{digits}": (30, 4) for digits in (3, 4, 5, 6, 7, 8)}
PAPER_TASKS = {
    "aime25": (30, 16),
    "aime24": (30, 16),
    "amc23": (40, 16),
    "olympiadbench": (674, 4),
    "minerva_math": (272, 4),
    "math500": (500, 4),
}
EDGES = (-8.0, -4.0, -2.0, -1.0, -0.5, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)

SAMPLES_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample", pa.int32()),
        ("seed", pa.int64()),
        ("prompt_sha256", pa.string()),
        ("gold", pa.string()),
        ("response", pa.string()),
        ("finish_reason", pa.string()),
        ("response_tokens", pa.int32()),
        ("extracted", pa.string()),
        ("published", pa.string()),
        ("audited", pa.string()),
        ("reason", pa.string()),
    ]
)


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
    updates: int = 64,
    base: bool = False,
) -> Path:
    """Write a store of records with all their files; the same arguments give the same bytes.

    Args:
        tasks: name -> (problems, samples per problem); the six tiny tasks by default.
        statuses: (method, reuse, seed) -> "done", "collapsed" or "failed"; done where not named. A failed cell has
            half of its updates and no evaluation.
        updates: policy updates per run, a multiple of every reuse.
        base: also write a record of the base model, untrained.

    Returns:
        ``path``, the store.
    """
    tasks = dict(TINY_TASKS if tasks is None else tasks)
    statuses = statuses or {}
    for model in models:
        if base:
            _write(path, protocol, model, None, None, 0, tasks, rng_seed, "done", updates)
        for reuse in reuses:
            for method in methods:
                for seed in seeds:
                    status = statuses.get((method, reuse, seed), "done")
                    _write(path, protocol, model, method, reuse, seed, tasks, rng_seed, status, updates)
    return path


def _write(
    store: Path,
    protocol: str,
    model: str,
    method: str | None,
    reuse: int | None,
    seed: int,
    tasks: Mapping[str, tuple[int, int]],
    rng_seed: int,
    status: str,
    updates: int,
) -> None:
    rng = np.random.default_rng(list(sha(f"{rng_seed} {protocol} {model} {method} {reuse} {seed}").encode()))
    skill = -1.2 if method is None else LIFT.get(method, 0.2) - 0.25 * np.log2((reuse or 8) / 8) + rng.normal(0, 0.12)
    if status == "collapsed":
        skill = -5.0
    relative = Path(protocol, model, f"n{reuse}" if reuse is not None else "n0", method or "base", f"seed{seed}")
    folder = store / relative
    lines = [] if reuse is None else _updates(rng, reuse, updates if status != "failed" else updates // 2, skill)
    training = None
    if reuse is not None:
        text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
        records.write_atomically(folder / "updates.jsonl", text.encode())
        training = records.TrainingSummary(
            updates=len(lines),
            rollouts=len(lines) // reuse,
            updates_per_rollout=reuse,
            response_tokens=int(sum(64 * line["mean_length"] for line in lines)),
            early_score=early_score(lines, updates),
            late_score=late_score(lines, updates),
            mean_score=mean_score(lines),
            final_score=final_score(lines),
            curve=records.file_ref(folder / "updates.jsonl", folder),
            collapse="score under 0.02 for 3 rollout batches" if status == "collapsed" else None,
        )
    evaluation = {}
    if status != "failed":
        for task, (problems, samples) in tasks.items():
            evaluation[task] = _evaluate(rng, folder, task, problems, samples, skill, rng_seed, seed)
    commit = hashlib.sha1(b"synthetic").hexdigest()
    record = records.Record(
        kind="base" if method is None else "trained",
        status=status,  # type: ignore[arg-type]
        division="closed",
        deviations=[],
        protocol=records.ProtocolRef(id=protocol, version=1, digest=sha(f"protocol {protocol}")),
        model=records.ModelRef(name=model, source=f"synthetic/{model}", revision=None, digest=sha(model)),
        method=None
        if method is None
        else records.MethodRef(
            name=method,
            title=TITLES.get(method, method),
            version="1",
            source_sha256=sha(f"method {method}"),
            origin="built-in",
            hyperparameters={"alpha_pos": 2.0, "beta_pos": 0.5},
        ),
        reuse=reuse,
        seeds=records.Seeds(run=seed, training=1000 + seed, rollout=2000 + seed, evaluation=3000 + seed),
        data=[
            records.DataRef(name="chain", role="train", source="made by the project", rows=4096, digest=sha("chain")),
            *(
                records.DataRef(name=task, role="evaluation", source="synthetic", rows=size[0], digest=sha(task))
                for task, size in tasks.items()
            ),
        ],
        training=training,
        checkpoint=None
        if status == "failed" or method is None
        else records.Checkpoint(update=updates, digest=sha(f"{relative} weights")),
        evaluation=evaluation,
        attempts=[
            records.Attempt(
                started="2026-11-01T08:00:00+00:00",
                ended="2026-11-01T08:04:00+00:00",
                first_update=1,
                last_update=len(lines),
                outcome="completed" if status == "done" else status,  # type: ignore[arg-type]
                reason=None if status == "done" else "synthetic",
            )
        ]
        if method
        else [],
        failure="the training worker ended with exit code 1" if status == "failed" else None,
        provenance=records.Provenance(
            reuse_bench_version="0.1.0",
            commit=commit,
            dirty=False,
            diff_sha256=None,
            lock_sha256=sha("lock"),
            packages={"math-verify": "0.9.0", "openrlhf": "0.11.2", "torch": "2.13.0", "vllm": "0.29.0"},
            python="3.11.9",
            platform="Linux-6.1-x86_64",
            hardware={"cpu": "synthetic", "cores": 2, "memory_gib": 16.0, "gpus": []},
            environment={"OMP_NUM_THREADS": "1"},
            command=["reuse-bench", "run", "--protocol", protocol],
            started="2026-11-01T08:00:00+00:00",
            ended="2026-11-01T08:05:00+00:00",
        ),
        cost=records.Cost(
            gpu_hours=0.0 if protocol in ("tiny", "smoke") else 40.0,
            training_seconds=240.0 if method else 0.0,
            evaluation_seconds=60.0,
        ),
        notes={"synthetic": True},
    )
    records.write_record(record, store)


@cache
def _difficulty(rng_seed: int, task: str, problems: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log-odds of each problem, the same for all cells: many are nearly always or nearly never solved."""
    rng = np.random.default_rng(list(sha(f"{rng_seed} {task}").encode()))
    return rng.normal(-0.3, 1.0, problems) + rng.choice([-1.5, 1.5], problems)


@cache
def _questions(task: str, problems: int) -> tuple[list[str], list[str], list[str], str]:
    ids = [f"{task}-{index}" for index in range(problems)]
    prompts = [sha(f"prompt {name}") for name in ids]
    golds = [str(int(prompt, 16) % 10) for prompt in prompts]
    return ids, prompts, golds, sha("".join(prompts))


def _evaluate(
    rng: np.random.Generator,
    folder: Path,
    task: str,
    problems: int,
    samples: int,
    skill: float,
    rng_seed: int,
    seed: int,
) -> records.TaskResult:
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
        "audited": np.where(right ^ (flipped & ~truncated), "right", "wrong").ravel(),
    }
    table = pa.table(
        {
            "problem_id": np.repeat(np.array(ids), samples),
            "sample": np.tile(np.arange(samples, dtype=np.int32), problems),
            "seed": (3000 + seed) * 1_000_000 + np.arange(problems * samples, dtype=np.int64),
            "prompt_sha256": np.repeat(np.array(prompts), samples),
            "gold": gold,
            "response": [f"so it is \\boxed{{{answer}}}" if answer else "and then" for answer in extracted],
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
        sampling=records.Sampling(temperature=1.0, top_p=1.0, max_tokens=64, samples_per_problem=samples),
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


def _updates(rng: np.random.Generator, reuse: int, count: int, skill: float) -> list[dict[str, Any]]:
    lines = []
    rollouts = count // reuse
    top = 1 / (1 + np.exp(-skill))
    for rollout in range(rollouts):
        batch = 64 * reuse
        score = float(np.clip(0.25 + (top - 0.25) * (1 - np.exp(-4 * rollout / max(rollouts, 1))), 0.01, 0.99))
        score = float(np.clip(score + rng.normal(0, 0.01), 0.0, 1.0))
        for mini_batch in range(reuse):
            drift = 0.05 * mini_batch
            positive = rng.normal(0.3 * drift, 0.01 + drift, max(1, int(64 * score)))
            negative = rng.normal(-drift, 0.01 + drift, max(1, 64 - positive.size))
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
                    "batch_responses": batch,
                }
            )
    return lines


def _log_weights(rng: np.random.Generator, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    bins = np.searchsorted(EDGES, values, side="right")
    counts = np.bincount(bins, minlength=len(EDGES) + 1)
    mass = np.bincount(bins, weights=np.exp(np.minimum(values, 0)), minlength=len(EDGES) + 1)
    quantiles = np.quantile(values, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    names = ("min", "q05", "q25", "q50", "q75", "q95", "max")
    return {
        "responses": int(values.size),
        "mean": round(float(values.mean()), 6),
        **{name: round(float(value), 6) for name, value in zip(names, quantiles, strict=True)},
        "counts": counts.tolist(),
        "mass": [round(float(value), 6) for value in mass],
        "mean_length": round(float(rng.normal(28, 2)), 4),
    }
