"""Evaluation of a checkpoint: lm-eval on vLLM, in processes of its own, every sample kept.

`evaluate_checkpoint` starts one child process a replica (`harness.lm_eval_vllm`), so that no engine state outlives it.
A child writes each finished response to a journal at once. After an interruption the same call continues: a task
whose file is complete is skipped, and a response that is in a journal is not drawn again. Since each request carries
its own seed, made from run seed, task, problem and sample index, neither order nor number of replicas enters a result.

Left behind in the folder ``out``: ``<task>.parquet`` with one row a sample (`COLUMNS`), ``lm_eval.json`` with the
scores as lm-eval computed them, ``time.json`` and ``log.txt``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import data_only
from harness.fork_server import python_executable
from harness.models import resolve_model
from harness.protocol import BaseModelSpec, Protocol
from harness.provenance import install_stack
from harness.records import DataRef, Sampling, TaskResult, canonical_json, file_ref, write_atomically
from harness.scoring import (
    PROMPT_COLUMN,
    pass_at_1,
    read_identity,
    read_samples,
    task_result,
    write_samples,
)
from harness.tiny_model import directory_digest
from methods.errors import UserError
from tasks import datasets, overlap

Progress = Callable[[int, int, str], None]
"""Called with responses done, responses in all, and what is going on."""

TIME_FILE = "time.json"
CHILD = ("-P", "-m", "harness.lm_eval_vllm")
POLL_SECONDS = 0.25
GRACE_SECONDS = 15


class EvaluationError(RuntimeError):
    """The engine or lm-eval failed; the message names the log."""


@dataclass(frozen=True)
class TaskPlan:
    """How one task is asked.

    ``prompt`` is the user's text with ``{problem}`` in the problem's place; ``problems`` how many there must be, where
    that is stated.
    """

    task: str
    samples: int
    temperature: float
    top_p: float
    max_tokens: int
    prompt: str = "{problem}"
    chat_template: bool = False
    problems: int | None = None

    @property
    def sampling(self) -> Sampling:
        """How responses are drawn, as a record says it."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            samples_per_problem=self.samples,
        )


@dataclass(frozen=True)
class EngineOptions:
    """What changes speed and memory of the engine and, up to rounding, nothing else.

    ``replicas`` engines share the problems; each takes ``tensor_parallel`` of the visible GPUs.
    """

    dtype: str = "auto"
    tensor_parallel: int = 1
    replicas: int = 1
    memory_share: float = 0.9
    max_model_len: int | None = None
    eager: bool = False

    @property
    def gpus(self) -> int:
        """GPUs that are taken, where there are any."""
        return self.replicas * self.tensor_parallel


def request_seed(seed: int, task: str, problem_id: str, sample: int) -> int:
    """The seed of one request: the first 63 bits of a SHA-256, so that no two requests share a random stream."""
    text = f"{seed}\0{task}\0{problem_id}\0{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def plans_from_protocol(protocol: Protocol, tasks: Sequence[str] | None = None) -> list[TaskPlan]:
    """The plans of a protocol's tasks, or of those named.

    Raises:
        UserError: a named task is not the protocol's.
    """
    stated = protocol.evaluation
    for task in tasks or ():
        if task not in stated.tasks:
            known = ", ".join(stated.tasks)
            raise UserError(f"--tasks: {task!r} is no task of protocol {protocol.id}: known are {known}")
    return [
        TaskPlan(
            task=task,
            samples=stated.tasks[task].samples,
            temperature=stated.temperature,
            top_p=stated.top_p,
            max_tokens=stated.max_tokens,
            prompt=protocol.data.prompt_template,
            chat_template=stated.chat_template,
            problems=stated.tasks[task].problems,
        )
        for task in (dict.fromkeys(tasks) if tasks else stated.tasks)
    ]


def engine_from_protocol(protocol: Protocol) -> EngineOptions:
    """The engine as the protocol's runtime section says."""
    runtime = protocol.runtime
    return EngineOptions(
        tensor_parallel=runtime.tensor_parallel,
        replicas=max(1, runtime.evaluation_gpus // runtime.tensor_parallel),
        memory_share=runtime.evaluation_memory_share,
        eager=runtime.engine_eager,
    )


def problems_of(tasks: Sequence[TaskPlan], data: Path | None = None) -> dict[str, datasets.ProblemSet]:
    """The problems of each task.

    Raises:
        UserError: a task is unknown, its data are missing or wrong, or there are not as many as the plan says.
    """
    problems = {plan.task: datasets.evaluation_problems(plan.task, data) for plan in tasks}
    for plan in tasks:
        if plan.problems not in (None, len(problems[plan.task].problems)):
            raise UserError(
                f"task {plan.task}: {len(problems[plan.task].problems)} problems instead of the protocol's "
                f"{plan.problems}: import the copy that the protocol means, or change evaluation.tasks"
            )
    return problems


def name_of(model: Path | str) -> str:
    """A name for the store, made from a folder or a hub name."""
    return re.sub(r"[^a-z0-9._-]+", "-", Path(model).name.lower()).strip("-._") or "model"


def find_model(model: Path | str, revision: str | None = None) -> Path:
    """The folder of a checkpoint: the given one, or that of a hub name or ``builtin:tiny``, made or fetched.

    Raises:
        UserError: there is no such model.
    """
    spec = BaseModelSpec(name=name_of(model), source=str(model), revision=revision, stated="command line")
    return resolve_model(spec)


def missing_stack(part: str) -> UserError:
    """What to say when a part of the training stack is not installed."""
    return UserError(f"{part} is not installed, and evaluation needs it: {install_stack()}")


def evaluate_checkpoint(
    model: Path | str,
    tasks: Sequence[TaskPlan],
    out: Path,
    *,
    seed: int,
    limit: int | None = None,
    engine: EngineOptions | None = None,
    progress: Progress | None = None,
    data: Path | None = None,
) -> dict[str, Path]:
    """Evaluate a checkpoint and return the sample file of each task.

    Args:
        model: a folder with a Hugging Face checkpoint, or a hub name.
        tasks: what to ask; all share one prompt format.
        out: where the files go; what is complete there is kept.
        seed: the run's evaluation seed.
        limit: only so many problems of each task.
        engine: engine options.
        progress: called while responses come in.
        data: the data folder (see `tasks.datasets.data_dir`).

    Raises:
        UserError: model, data or a file in ``out`` is not what it should be.
        EvaluationError: the engine failed.
        KeyboardInterrupt: interrupted; the same call continues.
    """
    if not tasks or len({plan.task for plan in tasks}) != len(tasks):
        raise ValueError("tasks must name at least one task, and each once")
    if len({plan.chat_template for plan in tasks}) > 1:
        raise ValueError("chat_template must be the same for all tasks of one call")
    if limit is not None and limit < 1:
        raise UserError(f"--limit: {limit} must be at least 1")
    options = engine or EngineOptions()
    problems = problems_of(tasks, data)
    folder = find_model(model)
    checkpoint = directory_digest(folder)
    files = {plan.task: out / f"{plan.task}.parquet" for plan in tasks}
    identities = {
        plan.task: {
            "checkpoint": checkpoint,
            "data": problems[plan.task].digest,
            "limit": limit,
            "plan": asdict(plan),
            "seed": seed,
        }
        for plan in tasks
    }
    pending = [plan for plan in tasks if not _is_complete(files[plan.task], identities[plan.task])]
    if not pending:
        return files
    counts = {plan.task: min(limit or sys.maxsize, len(problems[plan.task].problems)) for plan in pending}
    work = out / ".work"
    shards = _shards(counts, options.replicas)
    jobs = [
        {
            "model": str(folder),
            "plans": [asdict(plan) for plan in pending if plan.task in shard],
            "indices": shard,
            "seed": seed,
            "engine": asdict(options),
            "data": str(datasets.data_dir(data)),
            "identity": hashlib.sha256(f"{checkpoint} {options.dtype}".encode()).hexdigest(),
            "journal": str(work / f"journal-{number}.jsonl"),
            "out": str(work / f"replica-{number}"),
        }
        for number, shard in enumerate(shards)
    ]
    total = sum(counts[plan.task] * plan.samples for plan in pending)
    started = time.monotonic()
    try:
        _run_children(jobs, work, out / "log.txt", options, total, progress)
    finally:
        seconds = seconds_taken(out) + time.monotonic() - started
        write_atomically(out / TIME_FILE, canonical_json({"seconds": seconds}))
    _gather(jobs, pending, problems, counts, files, identities, out / "lm_eval.json")
    shutil.rmtree(work)
    return files


def seconds_taken(out: Path) -> float:
    """Seconds of evaluation so far in that folder, over all attempts."""
    path = out / TIME_FILE
    return float(json.loads(path.read_text())["seconds"]) if path.exists() else 0.0


def responses_done(out: Path) -> int:
    """Responses of a running evaluation that are safe on disk; for showing progress."""
    return sum(_JournalCounter(path).count() for path in (out / ".work").glob("journal-*.jsonl"))


def _is_complete(path: Path, identity: Mapping[str, Any]) -> bool:
    if not path.exists():
        return False
    found = read_identity(path)
    if found == identity:
        return True
    differs = next((key for key in identity if found.get(key) != identity[key]), "identity")
    raise UserError(
        f"{path}: field {differs}: {found.get(differs)!r} is not {identity[differs]!r} of this evaluation: delete the "
        "file to evaluate again, or choose another folder"
    )


def _shards(counts: Mapping[str, int], replicas: int) -> list[dict[str, list[int]]]:
    """Problem indices by task for each replica, dealt in turn; no replica without work."""
    dealt = [
        {task: list(range(number, count, replicas)) for task, count in counts.items() if number < count}
        for number in range(replicas)
    ]
    return [shard for shard in dealt if shard]


def _run_children(
    jobs: Sequence[Mapping[str, Any]],
    work: Path,
    log: Path,
    options: EngineOptions,
    total: int,
    progress: Progress | None,
) -> None:
    work.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        shutil.rmtree(job["out"], ignore_errors=True)
        Path(job["out"]).mkdir()
        write_atomically(Path(job["out"]) / "job.json", canonical_json(job))
    tell = progress or (lambda done, total, what: None)
    with log.open("ab") as stream, _children(jobs, stream, options) as children:
        counters = [_JournalCounter(Path(job["journal"])) for job in jobs]
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            time.sleep(POLL_SECONDS)
            codes = [child.poll() for child in children]
            done = sum(counter.count() for counter in counters)
            tell(done, total, "none finished yet" if not done else "grading" if done >= total else "generating")
    for job, code in zip(jobs, codes, strict=True):
        if code:
            _raise_failure(Path(job["out"]), log, code)


def _raise_failure(folder: Path, log: Path, code: int) -> None:
    try:
        failure = json.loads((folder / "failure.json").read_text())
    except FileNotFoundError:
        failure = {"kind": "crash", "message": f"the evaluation process ended with code {code}"}
    if failure["kind"] == "user":
        raise UserError(failure["message"])
    raise EvaluationError(f"{failure['message']}; the log is {log}; the same command continues")


class _JournalCounter:
    """Counts the lines of a growing file, reading only what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.lines = 0

    def count(self) -> int:
        if self.path.exists():
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                new = stream.read()
            self.offset += len(new)
            self.lines += new.count(b"\n")
        return max(0, self.lines - 1)  # the first line is the header


@contextmanager
def _children(
    jobs: Sequence[Mapping[str, Any]], log: Any, options: EngineOptions
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process group a job; all of them have ended when the block ends, however it ends."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for number, job in enumerate(jobs):
            children.append(
                subprocess.Popen(
                    [python_executable(), *CHILD, str(Path(job["out"]) / "job.json")],
                    env=_environment(number, len(jobs), options),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        yield children
    finally:
        for child in children:
            _end_group(child)


def _environment(number: int, replicas: int, options: EngineOptions) -> dict[str, str]:
    environment = os.environ | data_only.ENVIRONMENT
    root = str(Path(__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    environment["TOKENIZERS_PARALLELISM"] = "false"
    environment["VLLM_HOST_IP"] = "127.0.0.1"  # the processes of an engine are all on this machine
    if replicas > 1:
        width = options.tensor_parallel
        visible = environment.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(replicas * width)))).split(",")
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible[number * width : (number + 1) * width])
    return environment


def _end_group(child: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sent)
        except ProcessLookupError:
            break
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _gather(
    jobs: Sequence[Mapping[str, Any]],
    plans: Sequence[TaskPlan],
    problems: Mapping[str, datasets.ProblemSet],
    counts: Mapping[str, int],
    files: Mapping[str, Path],
    identities: Mapping[str, Mapping[str, Any]],
    scores_file: Path,
) -> None:
    """Join the replicas' samples, check them against the plan and against lm-eval's own scores, and name them."""
    import pandas as pd

    reports = [json.loads((Path(job["out"]) / "scores.json").read_text()) for job in jobs]
    scores = json.loads(scores_file.read_text()) if scores_file.exists() else {}
    for plan in plans:
        parts = [
            (read_samples(Path(job["out"]) / f"{plan.task}.parquet"), report[plan.task])
            for job, report in zip(jobs, reports, strict=True)
            if plan.task in job["indices"]
        ]
        ids = [one.id for one in problems[plan.task].problems[: counts[plan.task]]]
        samples = pd.concat([part for part, _ in parts], ignore_index=True)
        order = samples["problem_id"].map({one: index for index, one in enumerate(ids)})
        samples = samples.assign(order=order).sort_values(["order", "sample"], kind="stable").drop(columns="order")
        expected = [(one, sample) for one in ids for sample in range(plan.samples)]
        if list(zip(samples["problem_id"], samples["sample"], strict=True)) != expected:
            raise EvaluationError(f"task {plan.task}: {len(samples)} samples instead of {len(expected)}")
        scores[plan.task] = {}
        for grader in ("published", "audited"):
            theirs = sum(report[grader] * report["problems"] for _, report in parts) / len(ids)
            ours = pass_at_1(samples, grader)
            if abs(theirs - ours) > 1e-9:
                raise EvaluationError(f"task {plan.task}: lm-eval's {grader} score {theirs} is not ours, {ours}")
            scores[plan.task][grader] = theirs
        write_samples(samples.reset_index(drop=True), files[plan.task], identities[plan.task])
    write_atomically(scores_file, canonical_json(scores))


def record_copy(source: Path, target: Path) -> None:
    """Copy a sample file for a record: without the prompts, which hold problem texts that are not ours to publish."""
    samples = read_samples(source).drop(columns=PROMPT_COLUMN, errors="ignore")
    write_samples(samples, target, read_identity(source))


def record_results(files: Mapping[str, Path], plans: Sequence[TaskPlan], folder: Path) -> dict[str, TaskResult]:
    """Copy sample files into a record's folder and compute what the record says about each task.

    Args:
        files: what `evaluate_checkpoint` returned.
        plans: its plans.
        folder: the record's folder (`harness.records.record_folder`); samples go to ``samples/<task>.parquet`` there.
    """
    results = {}
    for plan in plans:
        target = folder / "samples" / f"{plan.task}.parquet"
        record_copy(files[plan.task], target)
        results[plan.task] = task_result(read_samples(target), plan.task, plan.sampling, file_ref(target, folder))
    return results


def data_refs(plans: Sequence[TaskPlan], data: Path | None = None) -> list[DataRef]:
    """What a record says about the held-out sets."""
    refs = []
    for plan in plans:
        found = datasets.evaluation_problems(plan.task, data)
        refs.append(
            DataRef(
                name=plan.task,
                role="evaluation",
                source=found.source,
                rows=len(found.problems),
                digest=found.digest,
            )
        )
    return refs


def data_deviations(plans: Sequence[TaskPlan], data: Path | None = None) -> list[str]:
    """Held-out sets whose content is not the manifest's but was accepted by hand, one line each."""
    return [
        f"data {plan.task}: its content is not the manifest's"
        for plan in plans
        if datasets.evaluation_problems(plan.task, data).deviates
    ]


def overlap_note(
    train: Sequence[Mapping[str, str]], plans: Sequence[TaskPlan], data: Path | None = None
) -> dict[str, Any]:
    """What a record says about problems that both the training set and a held-out set hold (`tasks.overlap`).

    Args:
        train: the training problems, each with ``id``, ``problem`` and ``answer``.
        plans: the held-out tasks.
        data: the data folder.
    """
    problems = [datasets.Problem(one["id"], one["problem"], one["answer"]) for one in train]
    pairs = {
        plan.task: overlap.overlap(problems, datasets.evaluation_problems(plan.task, data).problems) for plan in plans
    }
    return {
        "ngram": overlap.NGRAM,
        "threshold": overlap.THRESHOLD,
        "pairs": {task: [asdict(pair) for pair in found] for task, found in pairs.items() if found},
    }
