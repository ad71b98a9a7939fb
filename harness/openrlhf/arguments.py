"""A cell as a command line of OpenRLHF 0.11.2 (``openrlhf.cli.train_ppo_ray``): the whole mapping, in one place.

How its words translate:

- ``rollout.batch_size`` counts prompts: M * N. ``train.batch_size`` counts responses: M * G. One epoch over a rollout
  batch then makes N policy updates.
- A run is one episode over its prompt file, which has exactly M * U rows; OpenRLHF computes the learning-rate schedule
  from the same number: rows * G // (M * G) = U steps.
- ``ckpt.save_steps`` counts rollout batches. ``ckpt.best_metric_key none`` keeps it from choosing a best checkpoint.
- Its ``constant`` schedule has no warm-up; ``constant_with_warmup`` warms up for ceil(ratio * U) steps.
- Engine log-probabilities are recorded only with importance-sampling correction on. Its thresholds are set so wide
  that nothing is ever masked, and the losses of `methods` do not use the correction.
- The loss itself is not chosen here: the trainer's workers get it from `harness.openrlhf`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.grid import Cell
from harness.protocol import Protocol, Runtime
from methods.errors import UserError

PROMPT_KEY = "input"
"""Field of a row of the prompt file: the user's text, or the whole prompt where no chat template is applied."""

LABEL_KEY = "label"
"""Field of a row of the prompt file: what the reward judges by."""


@dataclass(frozen=True)
class TrainingPaths:
    """Where a training run reads and writes.

    Attributes:
        prompts: JSON lines, exactly `Protocol.prompts` rows, in the order in which they were drawn.
        model: folder of the base model.
        checkpoints: folder for optimiser states and, when kept, the weights at save points.
        final: folder for the final weights (safetensors) and the tokenizer.
        reward: Python file with ``reward_func(queries, prompts, labels)``.
        logs: folder for TensorBoard events, used when the runtime asks for them.
    """

    prompts: Path
    model: Path
    checkpoints: Path
    final: Path
    reward: Path
    logs: Path


def training_arguments(
    protocol: Protocol, cell: Cell, paths: TrainingPaths, runtime: Runtime | None = None
) -> list[str]:
    """The command line that trains ``cell``; running it again resumes when the runtime is resumable.

    Args:
        protocol: what to run.
        cell: which cell of it.
        paths: where to read and write.
        runtime: other machines than those that the protocol names.

    Raises:
        UserError: batch sizes that do not divide each other (a remainder would leak into the next rollout batch or be
            dropped), or a value that OpenRLHF cannot carry out.
    """
    runtime = runtime or protocol.runtime
    _check(protocol, cell, runtime)
    return list(_arguments(protocol, cell, paths, runtime))


def save_every(protocol: Protocol, runtime: Runtime) -> int:
    """Updates between save points."""
    return runtime.save_every_updates or protocol.checkpoints.every_updates


def _check(protocol: Protocol, cell: Cell, runtime: Runtime) -> None:
    every, updates = save_every(protocol, runtime), protocol.update.updates
    for name, size in (("update.updates", updates), ("save points, every", every)):
        if size % cell.reuse:
            raise UserError(
                f"protocol {protocol.id}: {name} {size}: not divisible by the reuse ratio {cell.reuse}: "
                "choose a ratio that divides it"
            )
    if protocol.checkpoints.every_updates % every:
        raise UserError(
            f"protocol {protocol.id}: runtime.save_every_updates {every}: it must divide checkpoints.every_updates "
            f"({protocol.checkpoints.every_updates})"
        )
    mini_batch = protocol.responses_per_update
    if mini_batch % (runtime.train_micro_batch * runtime.trainers):
        raise UserError(
            f"protocol {protocol.id}: runtime.train_micro_batch {runtime.train_micro_batch}: with {runtime.trainers} "
            f"trainer GPUs it must divide the {mini_batch} responses of an update evenly"
        )
    rollout = mini_batch * cell.reuse
    if rollout % (runtime.rollout_micro_batch * runtime.trainers):
        raise UserError(
            f"protocol {protocol.id}: runtime.rollout_micro_batch {runtime.rollout_micro_batch}: with "
            f"{runtime.trainers} trainer GPUs it must divide the {rollout} responses of a rollout batch evenly"
        )
    if protocol.rollout.top_k is not None:
        raise UserError(
            f"protocol {protocol.id}: rollout.top_k {protocol.rollout.top_k}: OpenRLHF 0.11.2 has no such option: "
            "leave it null"
        )


def _arguments(protocol: Protocol, cell: Cell, paths: TrainingPaths, runtime: Runtime) -> Iterator[str]:
    def option(name: str, *values: object) -> Iterator[str]:
        yield f"--{name}"
        yield from map(str, values)

    def flag(name: str, on: bool) -> Iterator[str]:
        if on:
            yield f"--{name}"

    data, rollout, reward, optimiser = protocol.data, protocol.rollout, protocol.reward, protocol.optimiser

    # Model and prompts.
    yield from option("actor.model_name_or_path", paths.model)
    yield from option("data.prompt_dataset", paths.prompts)
    yield from option("data.input_key", PROMPT_KEY)
    yield from option("data.label_key", LABEL_KEY)
    yield from option("data.max_samples", protocol.prompts)
    yield from option("data.max_len", protocol.max_tokens)
    yield from flag("data.apply_chat_template", data.chat_template)

    # Rollouts and rewards.
    yield from option("rollout.batch_size", protocol.prompts_per_rollout(cell.reuse))
    yield from option("rollout.n_samples_per_prompt", rollout.responses_per_prompt)
    yield from option("rollout.max_new_tokens", rollout.max_response_tokens)
    yield from option("rollout.temperature", rollout.temperature)
    yield from option("rollout.top_p", rollout.top_p)
    yield from option("rollout.micro_batch_size", runtime.rollout_micro_batch)
    yield from option("reward.remote_url", paths.reward)
    if reward.overlong:
        yield from option("reward.overlong_buffer_len", reward.overlong.end - reward.overlong.start)
        yield from option("reward.overlong_penalty_factor", -reward.overlong.penalty)
    yield from option("algo.advantage.estimator", protocol.advantage.estimator)
    yield from option("algo.kl.init_coef", protocol.regularisation.kl)
    if runtime.rollout_log_probs:
        yield from option("algo.advantage.is_correction_level", "token")
        yield from option("algo.advantage.is_correction_mode", "clip")
        yield from option("algo.advantage.is_correction_threshold", 0, 1e9)

    # Updates.
    yield from option("train.num_episodes", 1)
    yield from option("train.max_epochs", protocol.update.epochs)
    yield from option("train.batch_size", protocol.responses_per_update)
    yield from option("train.micro_batch_size", runtime.train_micro_batch)
    yield from option("train.seed", cell.seeds.training)
    yield from option("actor.optim", "adam")
    yield from option("actor.adam.lr", optimiser.learning_rate)
    yield from option("actor.adam.betas", *optimiser.betas)
    yield from option("actor.adam.eps", optimiser.epsilon)
    yield from option("actor.adam.weight_decay", optimiser.weight_decay)
    yield from option("actor.lr_scheduler", "constant_with_warmup")
    yield from option("actor.lr_warmup_ratio", optimiser.warmup_ratio)
    yield from option("actor.max_norm", optimiser.gradient_clip)
    if protocol.regularisation.entropy:
        yield from option("actor.entropy_coef", protocol.regularisation.entropy)

    # Checkpoints. Two sets of states are kept: one stays complete while the next is written.
    yield from option("ckpt.path", paths.checkpoints)
    yield from option("ckpt.output_dir", paths.final)
    yield from option("ckpt.save_steps", save_every(protocol, runtime) // cell.reuse)
    yield from option("ckpt.best_metric_key", "none")
    yield from option("ckpt.max_num", 2)
    yield from flag("ckpt.save_hf", runtime.keep_intermediate_weights)
    yield from flag("ckpt.disable_ds", not runtime.resumable)
    yield from flag("ckpt.load_enable", runtime.resumable)

    # Machines.
    yield from option("actor.num_nodes", runtime.nodes)
    yield from option("actor.num_gpus_per_node", runtime.trainer_gpus)
    yield from option("vllm.num_engines", runtime.engines)
    yield from option("vllm.tensor_parallel_size", runtime.tensor_parallel)
    yield from option("vllm.gpu_memory_utilization", runtime.engine_memory_share)
    yield from option("vllm.sync_backend", runtime.sync_backend)
    yield from flag("vllm.enforce_eager", runtime.engine_eager)
    yield from flag("vllm.enable_prefix_caching", runtime.prefix_caching)
    yield from flag("train.colocate_all", runtime.colocate)
    yield from flag("vllm.enable_sleep", runtime.colocate)
    yield from flag("ds.enable_sleep", runtime.trainer_sleeps)
    yield from option("ds.zero_stage", runtime.zero_stage)
    yield from option("ds.param_dtype", protocol.update.precision)
    yield from option("ds.attn_implementation", runtime.attention)
    yield from flag("ds.adam_offload", runtime.adam_offload)
    yield from flag("ds.packing_samples", runtime.packing)
    yield from flag("actor.gradient_checkpointing_enable", runtime.gradient_checkpointing)
    if runtime.tensorboard:
        yield from option("logger.tensorboard_dir", paths.logs)
