"""Subclasses of OpenRLHF's actors: they carry the method, the seeds and the log of policy updates into Ray workers.

OpenRLHF has no plugin point: it builds the loss inside a Ray worker, where a patch made in the driver is silently
ignored. These classes are shipped by reference, so that a worker imports this module, and what it sets acts there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import openrlhf.trainer.ppo_trainer as ppo_trainer
import openrlhf.trainer.ray.launcher as launcher
import openrlhf.trainer.ray.ppo_actor as ppo_actor
import openrlhf.trainer.ray.vllm_engine as vllm_engine
import ray
import torch
import torch.distributed as dist
from vllm.sampling_params import RequestOutputKind

from harness.data_only import know_states_of_deepspeed
from harness.fork_server import fork_subprocesses
from harness.openrlhf import cpu, ports
from harness.openrlhf.loss import MethodLoss
from harness.openrlhf.step_log import StepLog
from harness.openrlhf.worker_spec import WorkerSpec
from harness.records import write_atomically
from harness.seeds import derived_seed
from methods.diagnostics import summarise

UPDATES_FILE = "updates.jsonl"
ROLLOUTS_FILE = "rollouts.jsonl"
WORKER_FILE = "worker.json"


def _user_class(actor_class: Any) -> Any:
    """The class that was decorated with ``ray.remote``."""
    return actor_class.__ray_metadata__.modified_class.__ray_actor_class__


_BasePolicyActor: Any = _user_class(ppo_actor.PolicyModelActor)
_BaseRolloutActor: Any = _user_class(vllm_engine.RolloutRayActor)
_BaseDriver: Any = _user_class(ppo_trainer.PPOTrainer)
_BaseTrainer: Any = ppo_actor.ActorPPOTrainer


class MethodTrainer(_BaseTrainer):  # type: ignore[misc]
    """OpenRLHF's policy trainer with the method's loss, and one line of JSON per policy update."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._spec = WorkerSpec.from_environment()
        self.actor_loss_fn = MethodLoss(self._spec)
        self._log: StepLog | None = None
        if _is_rank_0():
            path = Path(self._spec.training_dir) / UPDATES_FILE
            self._log = StepLog(path, "update", self._engine().global_steps)
            _report_worker(self._spec, self.actor_loss_fn)

    def _engine(self) -> Any:
        return self.actor.model

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        """Train on one rollout batch. The order of its responses depends on the run seed and the update only."""
        update = self._engine().global_steps
        torch.manual_seed(derived_seed(self._spec.run_seed, "mini-batches", update))
        self._first_update = update
        self._rollout_reward = _mean_over_ranks([float(item.info["reward"]) for item in self.replay_buffer.items])
        self._updates_per_rollout = (
            self.args.rollout.batch_size * self.args.rollout.n_samples_per_prompt // self.args.train.batch_size
        )
        self._started = time.monotonic()
        self._losses: list[float] = []
        self._micro: list[dict[str, float]] = []
        status: dict[str, float] = super().ppo_train(kl_ctl)
        return status

    def training_step(self, experience: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """One micro-batch; after the last of a mini-batch, write the update's line."""
        before = self._engine().global_steps
        status: dict[str, Any] = super().training_step(experience, *args, **kwargs)
        self._micro.append(
            {
                "loss": float(status["metrics"]["policy_loss"]),
                "reward": _total(experience.info["reward"]),
                "truncated": _total(experience.truncated),
                "disagreements": _total(experience.info["grader_disagreement"]),
                "errors": _total(experience.info["grader_error"]),
                "responses": float(len(experience.info["reward"])),
            }
        )
        if self._engine().global_steps > before:
            self._finish_update(status)
        return status

    def _finish_update(self, status: dict[str, Any]) -> None:
        rows = _gather_rows(self.actor_loss_fn.take_rows())
        sums = _sum_over_ranks({key: sum(part[key] for part in self._micro) for key in self._micro[0]})
        micro_batches = len(self._micro) * (dist.get_world_size() if dist.is_initialized() else 1)
        self._micro = []
        if self._log is None:
            return
        update = int(self._engine().global_steps)
        now = time.monotonic()
        responses = sums["responses"]
        self._log.write(
            {
                "update": update,
                "rollout": (update - 1) // self._updates_per_rollout + 1,
                "mini_batch": update - 1 - self._first_update,
                "loss": sums["loss"] / micro_batches,
                "reward": sums["reward"] / responses,
                "score": self._spec.reward.score(self._rollout_reward),
                "learning_rate": float(status["metrics"]["actor_lr"]),
                "gradient_norm": float(status["metrics"]["actor_grad_norm"]),
                "truncated": sums["truncated"] / responses,
                "grader_disagreements": int(sums["disagreements"]),
                "grader_errors": int(sums["errors"]),
                "seconds": now - self._started,
                **summarise(rows),
            }
        )
        self._started = now


def _digest_of_sequences(samples: list[Any]) -> str:
    """SHA-256 of the token ids of all prompts with their responses, in order."""
    total = hashlib.sha256()
    for sample in samples:
        total.update(json.dumps(sample.sequences.tolist()).encode())
    return total.hexdigest()


def _total(values: Any) -> float:
    """Sum of one number per response, as a tensor or a list."""
    return float(torch.as_tensor(values, dtype=torch.float64).sum())


def _is_rank_0() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks; every rank holds the same number of responses of a mini-batch."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return rows
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def _sum_over_ranks(sums: dict[str, float]) -> dict[str, float]:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return sums
    device = "cuda" if cpu.has_cuda() else "cpu"
    values = torch.tensor(list(sums.values()), dtype=torch.float64, device=device)
    dist.all_reduce(values)
    return dict(zip(sums, values.tolist(), strict=True))


def _mean_over_ranks(values: list[float]) -> float:
    total = _sum_over_ranks({"sum": sum(values), "count": float(len(values))})
    return total["sum"] / total["count"]


def _report_worker(spec: WorkerSpec, loss: MethodLoss) -> None:
    """Say which loss is in use here: the record takes its hash from this file, not from the driver."""
    report = {
        "method": spec.method,
        "hyperparameters": dict(loss.method.hyperparameters),
        "source_sha256": loss.source_sha256,
        "device": torch.cuda.get_device_name() if cpu.has_cuda() else "cpu",
        "pid": os.getpid(),
    }
    path = Path(spec.training_dir) / WORKER_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    temporary.replace(path)


class MethodPolicyActor(_BasePolicyActor):  # type: ignore[misc]
    """The policy's actor: a worker that imports it gets the trainer above.

    DeepSpeed's rank 0 writes ``latest``, which names the checkpoint to resume from, while other ranks may still write
    theirs, and not at once. Here it is renamed into place when all ranks have written everything.
    """

    def save_checkpoint(self, tag: str, *args: Any, **kwargs: Any) -> None:
        """Write the states; the checkpoint counts from the moment in which ``latest`` names it."""
        strategy = self.strategy
        strategy.save_ckpt = partial(type(strategy).save_ckpt, strategy, save_latest=False)
        try:
            super().save_checkpoint(tag, *args, **kwargs)  # ends with a barrier
        finally:
            del strategy.save_ckpt
        if _is_rank_0() and not self.disable_ds_ckpt:
            write_atomically(Path(strategy.args.ckpt.path, "_actor", "latest"), tag.encode())


class SeededRolloutActor(_BaseRolloutActor):  # type: ignore[misc]
    """The vLLM engine's actor: every request has a seed of its own, from run seed, prompt row and sample index.

    So methods see the same random numbers, in whatever order requests reach the engine.
    """

    async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]  # Ray awaits it
        kwargs["trust_remote_code"] = False
        if not cpu.has_cuda():
            kwargs |= cpu.ENGINE_OPTIONS
            fork_subprocesses()
        self._run_seed = WorkerSpec.from_environment().run_seed
        await super().__init__(*args, **kwargs)

    async def generate_responses(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        num_samples: int = 1,
        images: Any = None,
    ) -> list[dict[str, Any]]:
        """All samples of one prompt, in the order of their index."""
        row = json.loads(label)["row"]

        async def sample(index: int) -> dict[str, Any]:
            params = sampling_params.clone()
            params.seed = derived_seed(self._run_seed, "rollout", row, index)
            # OpenRLHF uses the finished token ids only: text and intermediate outputs would be made for nothing.
            params.detokenize = False
            params.output_kind = RequestOutputKind.FINAL_ONLY
            response: dict[str, Any] = await self.executor.execute(
                prompt=prompt,
                label=label,
                sampling_params=params,
                max_length=max_length,
                hf_tokenizer=hf_tokenizer,
                llm_engine=self,
                images=images,
            )
            response["extra_logs"] = {**response["extra_logs"], "row": row, "sample": index}
            return response

        return list(await asyncio.gather(*map(sample, range(num_samples))))


class OrderedDriver(_BaseDriver):  # type: ignore[misc]
    """The controller: prompts in the order of the file, responses in the order of their prompts.

    OpenRLHF shuffles the prompts and keeps responses in the order in which they were finished. The file is shuffled
    already, and a rollout batch must not depend on timing.
    """

    prompts_dataloader: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        shuffled = self.prompts_dataloader
        self.prompts_dataloader = self.strategy.setup_dataloader(
            shuffled.dataset, 1, True, False, shuffled.dataset.collate_fn
        )
        self.samples_generator.prompts_dataloader = self.prompts_dataloader
        self._log: StepLog | None = None

    def train_step(self, rollout_samples: list[Any], global_step: int) -> tuple[dict[str, Any], int]:
        """Train on one rollout batch, put in order; note its digest, which shows where two runs part."""
        rollout_samples.sort(key=lambda sample: (int(sample.info["row"]), int(sample.info["sample"])))
        if self._log is None:
            folder = Path(WorkerSpec.from_environment().training_dir)
            self._log = StepLog(folder / ROLLOUTS_FILE, "rollout", global_step)
        self._log.write(
            {
                "rollout": global_step + 1,
                "first_row": int(rollout_samples[0].info["row"]),
                "responses": len(rollout_samples),
                "sequences_sha256": _digest_of_sequences(rollout_samples),
            }
        )
        result: tuple[dict[str, Any], int] = super().train_step(rollout_samples, global_step)
        return result


ppo_actor.ActorPPOTrainer = MethodTrainer
ports.install(launcher, ppo_actor)
ports.meet_on_loopback()
know_states_of_deepspeed()
if not cpu.has_cuda():
    ppo_actor.stateless_init_process_group = cpu.GlooGroup
    cpu.configure_deepspeed()


def register() -> None:
    """In the driver: make ``openrlhf.cli.train_ppo_ray`` use the subclasses. Before it is imported."""
    environment = {} if cpu.has_cuda() else cpu.TRAINER_ENVIRONMENT
    ppo_actor.PolicyModelActor = ray.remote(num_gpus=1, runtime_env={"env_vars": environment})(MethodPolicyActor)
    vllm_engine.RolloutRayActor = ray.remote(SeededRolloutActor)
    ppo_trainer.PPOTrainer = ray.remote(OrderedDriver)
