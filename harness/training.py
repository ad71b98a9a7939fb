"""Train one cell with OpenRLHF: prepare its prompts, run it in a child process, watch it, and judge how it ended."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import methods
from harness import data_only
from harness.fork_server import python_executable
from harness.grid import Cell
from harness.models import end_token
from harness.openrlhf.arguments import TrainingPaths, training_arguments
from harness.openrlhf.worker_spec import RewardSpec, WorkerSpec
from harness.protocol import Protocol, collapse_reason
from harness.records import canonical_json, write_atomically
from harness.run_directory import RunDirectory
from harness.seeds import derived_seed
from harness.tiny_model import directory_digest
from methods.errors import UserError
from tasks import chain

REWARD_FILE = Path(__file__).with_name("openrlhf") / "reward.py"
POLL_SECONDS = 0.5
GRACE_SECONDS = 15.0

Progress = Callable[[int, int, float | None], None]
"""Called with policy updates done, policy updates in all, and the score of the latest rollout batch."""


class TrainingError(RuntimeError):
    """Training ended without a final checkpoint; the message is its last error line and where the log lies."""


@dataclass(frozen=True)
class TrainingResult:
    """How training ended. ``collapse`` says why a run counts as collapsed; None when it reached its end."""

    updates: int
    collapse: str | None
    checkpoint_digest: str | None


def read_result(run: RunDirectory) -> TrainingResult:
    """How the training that is complete in this folder ended.

    Raises:
        UserError: what says so is damaged.
    """
    try:
        return TrainingResult(**json.loads(run.trained.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{run.trained}: it does not say how training ended ({error}): delete it, and the cell continues from its "
            "last checkpoint"
        ) from error


def resume_point(run: RunDirectory, cell: Cell) -> int:
    """Policy updates in the last complete DeepSpeed checkpoint, from which training would continue; 0 for none."""
    name = _complete_checkpoint(run)
    return int(name.removeprefix("global_step")) * cell.reuse if name else 0


def _complete_checkpoint(run: RunDirectory) -> str | None:
    """The name of the last checkpoint that all ranks have written; see `harness.openrlhf.actors`."""
    latest = run.checkpoints / "_actor" / "latest"
    name = latest.read_text().strip() if latest.exists() else ""
    return name if re.fullmatch(r"global_step\d+", name) else None


def check_same_loss(protocol: Protocol, cell: Cell, run: RunDirectory) -> None:
    """Whether a training that would be continued was begun with the loss that is here now.

    Raises:
        UserError: it was not, so that a part of its updates would be those of another method.
    """
    if run.trained.exists() or not resume_point(run, cell):
        return
    begun, here = _reported(run).get("source_sha256"), worker_spec(protocol, cell, run).source_sha256
    if begun != here:
        raise UserError(
            f"{run.worker}: field source_sha256: the training was begun with another source of method {cell.method} "
            f"({str(begun)[:12]}) than there is now ({here[:12]}): bring that source back, or remove {run.root} to "
            "train the cell anew"
        )


def _reported(run: RunDirectory) -> dict[str, Any]:
    """What the worker of the last attempt said of itself; empty when it said nothing."""
    try:
        found: dict[str, Any] = json.loads(run.worker.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise UserError(f"{run.worker}: it is damaged ({error}): remove {run.root} to train the cell anew") from error
    return found


def drop_incomplete_checkpoints(run: RunDirectory) -> None:
    """Remove every DeepSpeed checkpoint but the last complete one.

    One that was cut short has the newest date: OpenRLHF, which keeps the two newest, would remove the complete one when
    it writes the next. Where it finds a folder without a complete one, it ends with an error.
    """
    folder = run.checkpoints / "_actor"
    complete = _complete_checkpoint(run)
    if complete is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for one in folder.glob("global_step*"):
        if one.name != complete:
            shutil.rmtree(one, ignore_errors=True)


def training_problems(name: str) -> list[dict[str, str]]:
    """The problems of a training set, each with ``id``, ``problem`` and ``answer``."""
    if name == chain.TRAIN_TASK:
        return chain.training_problems()
    from tasks.datasets import training_problems as fetched

    return fetched(name)


def write_prompts(protocol: Protocol, cell: Cell, model: Path, path: Path) -> None:
    """Write exactly as many prompts as the run's updates need: seeded shuffles of the set, one after another.

    The order depends on the run seed alone, so that every method and every reuse ratio sees the same prompts.

    Raises:
        UserError: no problem is short enough.
    """
    problems = training_problems(protocol.data.train)
    texts = [protocol.data.render(problem["problem"]) for problem in problems]
    kept = _short_enough(texts, protocol, model)
    if not kept:
        raise UserError(
            f"protocol {protocol.id}: field data.max_prompt_tokens = {protocol.data.max_prompt_tokens}: no prompt of "
            f"{protocol.data.train} is that short: raise it"
        )
    rng = random.Random(derived_seed(cell.seed, "prompts"))
    eos = end_token(model)
    lines: list[str] = []
    while len(lines) < protocol.prompts:
        for index in rng.sample(kept, len(kept))[: protocol.prompts - len(lines)]:
            label = json.dumps({"gold": problems[index]["answer"], "row": len(lines), "eos": eos})
            lines.append(json.dumps({"input": texts[index], "label": label, "datasource": problems[index]["id"]}))
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    counts = {"set": protocol.data.train, "available": len(problems), "kept": len(kept), "rows": len(lines)}
    write_atomically(path.with_suffix(".json"), canonical_json(counts))


def _short_enough(texts: list[str], protocol: Protocol, model: Path) -> list[int]:
    """Indices of the prompts within the cap. A token is at least one byte, which spares short texts the tokenizer."""
    cap = protocol.data.max_prompt_tokens
    if not protocol.data.chat_template and all(len(text.encode()) <= cap for text in texts):
        return list(range(len(texts)))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    if protocol.data.chat_template:
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
            for text in texts
        ]
    lengths = [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    return [index for index, length in enumerate(lengths) if length <= cap]


def train_cell(
    protocol: Protocol,
    cell: Cell,
    run: RunDirectory,
    model: Path,
    ray_address: str,
    *,
    progress: Progress | None = None,
) -> TrainingResult:
    """Train the cell to its end, or return at once when that is done. Continues from the last complete checkpoint.

    Raises:
        TrainingError: OpenRLHF ended with an error, or without what it had to leave behind.
        UserError: it cannot be continued, because the loss has changed since, or no prompt is short enough.
        KeyboardInterrupt: passed on after the training process was ended.
    """
    if run.trained.exists():
        return read_result(run)
    check_same_loss(protocol, cell, run)
    run.training.mkdir(parents=True, exist_ok=True)
    write_prompts(protocol, cell, model, run.prompts)
    spec = worker_spec(protocol, cell, run)
    arguments = training_arguments(protocol, cell, _paths(run, model), protocol.runtime)
    shutil.rmtree(run.final, ignore_errors=True)
    drop_incomplete_checkpoints(run)
    collapse = _watch(_start(arguments, spec, run, ray_address), protocol, run, progress)
    result = _judge(protocol, run, spec, collapse)
    write_atomically(run.trained, canonical_json(asdict(result)))
    if not protocol.runtime.keep_intermediate_weights:
        shutil.rmtree(run.checkpoints, ignore_errors=True)
    return result


def build_method(protocol: Protocol, name: str) -> methods.Method:
    """A method as the protocol runs it: with the protocol's hyperparameters, and its own defaults for the rest.

    Raises:
        UserError: there is none of that name, or it does not take these hyperparameters.
    """
    try:
        return methods.create(name, protocol.methods.hyperparameters.get(name, {}))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"protocol {protocol.id}: field methods.hyperparameters.{name}: {error}") from error


def worker_spec(protocol: Protocol, cell: Cell, run: RunDirectory) -> WorkerSpec:
    """What the workers are told. The method is built here once, so that a wrong hyperparameter stops before Ray."""
    method = build_method(protocol, cell.method)
    grader = "published" if protocol.reward.grader == "chain" else protocol.reward.grader
    return WorkerSpec(
        method=cell.method,
        hyperparameters=dict(method.hyperparameters),
        source_sha256=methods.source_digest(cell.method),
        run_seed=cell.seeds.rollout,
        training_dir=str(run.training.resolve()),
        reward=RewardSpec(
            task=protocol.data.train, grader=grader, right=protocol.reward.right, wrong=protocol.reward.wrong
        ),
    )


def _paths(run: RunDirectory, model: Path) -> TrainingPaths:
    return TrainingPaths(
        prompts=run.prompts.resolve(),
        model=model.resolve(),
        checkpoints=run.checkpoints.resolve(),
        final=run.final.resolve(),
        reward=REWARD_FILE,
        logs=run.training.resolve(),
    )


def _start(arguments: list[str], spec: WorkerSpec, run: RunDirectory, ray_address: str) -> subprocess.Popen[bytes]:
    """OpenRLHF in a process group of its own, so that an interrupt reaches it through us only, and once."""
    environment = (
        os.environ
        | data_only.ENVIRONMENT
        | spec.to_environment()
        | {
            "RAY_ADDRESS": ray_address,
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }
    )
    with run.log.open("ab") as log:
        return subprocess.Popen(
            [python_executable(), "-m", "harness.openrlhf.entry", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _watch(
    process: subprocess.Popen[bytes], protocol: Protocol, run: RunDirectory, progress: Progress | None
) -> str | None:
    """Wait for the end; returns why the run has collapsed, if it has. The process is gone afterwards, always."""
    seen = -1
    try:
        while True:
            ended = process.poll() is not None
            lines = run.read_updates()
            if len(lines) != seen:
                seen = len(lines)
                collapse = collapse_reason(
                    protocol.collapse,
                    [line["loss"] for line in lines],
                    [line["score"] for line in lines],
                )
                if collapse:
                    return collapse
                if progress:
                    progress(seen, protocol.update.updates, lines[-1]["score"] if lines else None)
            if ended:
                if process.returncode != 0:
                    raise TrainingError(_last_error(run.log, process.returncode))
                return None
            time.sleep(POLL_SECONDS)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started, gently first."""
    for number, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


def _last_error(log: Path, returncode: int) -> str:
    lines = log.read_text(errors="replace").splitlines()[-400:]
    errors = [line.strip() for line in lines if re.search(r"\b\w*(Error|Exception)\b.*:", line)]
    cause = errors[-1] if errors else (lines[-1].strip() if lines else "no output")
    cause = re.sub(r"\x1b\[[0-9;]*m", "", cause)
    return f"training ended with exit code {returncode}: {cause} (log: {log})"


def _judge(protocol: Protocol, run: RunDirectory, spec: WorkerSpec, collapse: str | None) -> TrainingResult:
    """Check that what was asked for was done: the loss, the number of updates, the checkpoint."""
    updates = len(run.read_updates())
    if collapse:
        return TrainingResult(updates, collapse, None)
    if _reported(run).get("source_sha256") != spec.source_sha256:
        raise TrainingError(f"the worker did not report the loss {spec.method} that it was given (log: {run.log})")
    if updates != protocol.update.updates:
        raise TrainingError(
            f"training ended after {updates} policy updates in place of {protocol.update.updates} (log: {run.log})"
        )
    if not list(run.final.glob("*.safetensors")):
        raise TrainingError(f"training left no final checkpoint in {run.final} (log: {run.log})")
    return TrainingResult(updates, None, directory_digest(run.final))
