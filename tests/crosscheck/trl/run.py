"""Train cells of the tiny protocol with TRL's GRPOTrainer: an independent trainer for the same experiment.

    python -m tests.crosscheck.trl.run --method grpo --reuse 32 --seed 0

TRL's own loss, advantages, shuffling, optimiser and generation are used unchanged. What is shared with the project is
what must be the same: the base model, the prompts in their order, the grading of a response. ``docs/crosscheck.md``
says how the protocol's values map onto TRL's, what still differs, and what came out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from harness.grid import Cell
from harness.models import resolve_model
from harness.openrlhf.cpu import TRAINER_ENVIRONMENT
from harness.protocol import Protocol, load_protocol
from harness.records import write_atomically
from harness.tiny_model import directory_digest
from harness.training import write_prompts
from methods import LossInputs, get
from methods.diagnostics import response_rows, summarise
from methods.errors import UserError
from tasks.reward import rewards

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("trl", "torch", "transformers", "accelerate", "numpy")

LOSSES: dict[str, dict[str, Any]] = {
    # The token mean over the 64 responses of the update: "bnpo" is TRL's name for it.
    "grpo": {"loss_type": "bnpo", "importance_sampling_level": "token"},
    # The mean over responses of their token means, of the length-normalised ratio.
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    # TRL has no token mean over one update for it, only one by the rollout batch's average of tokens.
    "vespo": {"loss_type": "vespo"},
}
HYPERPARAMETERS = {
    "clip_low": "epsilon",
    "clip_high": "epsilon_high",
    "dual_clip": "delta",
    "k_pos": "vespo_k_pos",
    "lambda_pos": "vespo_lambda_pos",
    "k_neg": "vespo_k_neg",
    "lambda_neg": "vespo_lambda_neg",
}
SAME_GRADIENT = 1e-5
"""Two gradients that differ by less, as a share of the update's largest, are the same."""

PRECISIONS = ("master", "autocast", "fp32", "bf16")


class MasterAdamW(torch.optim.AdamW):
    """AdamW on float32 copies of bf16 parameters, as DeepSpeed's bf16 mode has it. ``torch.optim`` has none."""

    def __init__(self, groups: list[dict[str, Any]], **options: Any) -> None:
        self._working: list[torch.Tensor] = [p for group in groups for p in group["params"]]
        copies = {p: p.detach().float() for p in self._working}
        super().__init__([group | {"params": [copies[p] for p in group["params"]]} for group in groups], **options)
        self._masters = [copies[p] for p in self._working]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Move the copies, then round them into the parameters."""
        for working, master in zip(self._working, self._masters, strict=True):
            master.grad = None if working.grad is None else working.grad.float()
        super().step()
        for working, master in zip(self._working, self._masters, strict=True):
            working.copy_(master)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The gradients are those of the parameters."""
        for working in self._working:
            working.grad = None


class ObservedTrainer(GRPOTrainer):
    """TRL's trainer, looked at: nothing that it computes is changed.

    Each update's loss is also computed by the project's method, from the same log-probabilities, and its gradient with
    respect to them is compared with that of TRL.
    """

    def __init__(self, *args: Any, method: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.method = method
        self.lines: list[dict[str, Any]] = []
        self.loss_gap = 0.0
        self.gradient_gap = 0.0
        self.edge_tokens = 0
        self.start_drift = 0.0
        self._log_probs: torch.Tensor | None = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._log_probs = found[0]
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        log_probs, mask = self._log_probs, inputs["completion_mask"]
        assert log_probs is not None
        (theirs,) = torch.autograd.grad(loss, log_probs, retain_graph=True)
        ours = log_probs.detach().clone().requires_grad_()
        old = inputs.get("old_per_token_logps")
        batch = LossInputs(
            ours, ours.detach() if old is None else old, inputs["advantages"].unsqueeze(1).expand_as(ours), mask
        )
        outputs = self.method(batch)
        outputs.loss.backward()
        assert ours.grad is not None
        # TRL's VESPO divides by an average number of tokens; the factor is the same for all tokens of the update.
        factor = 1.0
        if self.loss_type == "vespo":
            factor = float(mask.sum()) * self.args.steps_per_generation / float(inputs["num_items_in_batch"])
        gap = (theirs - factor * ours.grad).abs() / theirs.abs().max().clamp(min=1e-12)
        edge = self._at_clip_edge(batch)
        self.gradient_gap = max(self.gradient_gap, gap.masked_fill(edge, 0.0).max().item())
        self.edge_tokens += int(((gap > SAME_GRADIENT) & edge).sum())
        if self.loss_type != "vespo":
            self.loss_gap = max(self.loss_gap, abs(loss.item() - outputs.loss.item()))
        rows = response_rows(batch, outputs)
        if self.state.global_step % self.args.steps_per_generation == 0:
            self.start_drift = max(self.start_drift, float(rows[:, 0].abs().max()))
        self.lines.append({"loss": loss.item(), **summarise(rows)})
        return loss

    def _at_clip_edge(self, batch: LossInputs) -> torch.Tensor:
        """Tokens within rounding of a clip bound, where TRL's minimum can be a tie that halves the gradient."""
        log_ratio = (batch.log_probs.detach() - batch.old_log_probs) * batch.action_mask
        if self.importance_sampling_level == "sequence":
            mean = log_ratio.sum(dim=1, keepdim=True) / batch.action_mask.sum(dim=1, keepdim=True)
            log_ratio = mean.expand_as(log_ratio)
        ratio = log_ratio.exp()
        return ((ratio - 1 + self.epsilon_low).abs() < 1e-6) | ((ratio - 1 - self.epsilon_high).abs() < 1e-6)


class Score:
    """The protocol's reward, and what it said about each rollout batch."""

    __name__ = "score"

    def __init__(self, protocol: Protocol, tokenizer: Any) -> None:
        self.reward = protocol.reward
        self.task = protocol.data.train
        self.tokenizer = tokenizer
        self.rollouts: list[dict[str, Any]] = []
        self.rows = 0

    def __call__(self, *, completion_ids: list[list[int]], row: list[int], gold: list[str], **_: Any) -> list[float]:
        samples = len(row) // len(set(row))
        if row != [self.rows + index // samples for index in range(len(row))]:
            raise RuntimeError(f"TRL did not take the prompts in the order of the file after row {self.rows}")
        self.rows += len(row) // samples
        end = self.tokenizer.eos_token
        texts = [self.tokenizer.decode(ids) for ids in completion_ids]
        finished = [text.endswith(end) for text in texts]
        batch = rewards(
            [text.removesuffix(end) for text in texts],
            gold,
            task=self.task,
            grader="published",
            right=self.reward.right,
            wrong=self.reward.wrong,
            finished=finished,
            workers=1,
        )
        self.rollouts.append(
            {
                "score": batch.right / len(row),
                "responses": len(row),
                "mean_length": sum(map(len, completion_ids)) / len(row),
                "truncated": 1 - sum(finished) / len(row),
            }
        )
        return batch.rewards


def configuration(protocol: Protocol, cell: Cell, precision: str, folder: Path) -> GRPOConfig:
    """The protocol in TRL's words."""
    rollout, update, optimiser = protocol.rollout, protocol.update, protocol.optimiser
    hyperparameters = protocol.methods.hyperparameters[cell.method]
    return GRPOConfig(
        output_dir=str(folder),
        # One device step is one policy update; N of them share a rollout batch and pass over it once.
        per_device_train_batch_size=protocol.responses_per_update,
        gradient_accumulation_steps=1,
        steps_per_generation=cell.reuse,
        num_iterations=update.epochs,
        num_generations=rollout.responses_per_prompt,
        max_steps=update.updates,
        shuffle_dataset=False,
        max_completion_length=rollout.max_response_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k or 0,
        **LOSSES[cell.method],
        **{HYPERPARAMETERS[name]: value for name, value in hyperparameters.items()},
        scale_rewards="group",
        mask_truncated_completions=False,
        beta=protocol.regularisation.kl,
        optim="adamw_torch",
        learning_rate=optimiser.learning_rate,
        adam_beta1=optimiser.betas[0],
        adam_beta2=optimiser.betas[1],
        adam_epsilon=optimiser.epsilon,
        weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.gradient_clip,
        lr_scheduler_type="constant",
        bf16=precision == "autocast",
        model_init_kwargs={
            "dtype": "bfloat16" if precision in ("master", "bf16") else "float32",
            "attn_implementation": protocol.runtime.attention,
        },
        gradient_checkpointing=False,
        use_cpu=True,
        seed=cell.seeds.training,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def train(protocol: Protocol, cell: Cell, precision: str) -> dict[str, Any]:
    """Train the cell; returns the document that is kept of it."""
    torch.set_num_threads(1)
    os.environ |= TRAINER_ENVIRONMENT
    model = resolve_model(protocol.model(cell.model))
    method = get(cell.method)(**protocol.methods.hyperparameters[cell.method])
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(protocol, cell, precision, Path(folder))
        prompts = Path(folder) / "prompts.jsonl"
        write_prompts(protocol, cell, model, prompts)
        data = [json.loads(line) for line in prompts.read_text().splitlines()]
        labels = [json.loads(line["label"]) for line in data]
        dataset = Dataset.from_list(
            [
                {"prompt": line["input"], "gold": label["gold"], "row": label["row"]}
                for line, label in zip(data, labels, strict=True)
            ]
        )
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
        score = Score(protocol, tokenizer)
        trainer = ObservedTrainer(
            str(model),
            reward_funcs=score,
            args=config,
            train_dataset=dataset,
            processing_class=tokenizer,
            method=method,
        )
        trainer.remove_callback(PrinterCallback)
        if precision == "master":
            trainer.optimizer = _master_optimizer(trainer)
        started = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - started
    logs = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    if not len(logs) == len(trainer.lines) == protocol.update.updates:
        raise RuntimeError(f"TRL made {len(trainer.lines)} policy updates in place of {protocol.update.updates}")
    if {entry["learning_rate"] for entry in logs} != {protocol.optimiser.learning_rate}:
        raise RuntimeError("TRL did not keep the learning rate of the protocol")
    for line, entry in zip(trainer.lines, logs, strict=True):
        line["gradient_norm"] = float(entry["grad_norm"])
    return {
        "cell": cell.id,
        "precision": precision,
        "protocol_digest": protocol.digest,
        "model_digest": directory_digest(model),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "seconds": round(seconds, 1),
        "checks": {
            "largest_loss_difference": None if cell.method == "vespo" else trainer.loss_gap,
            "largest_relative_gradient_difference": trainer.gradient_gap,
            "largest_log_weight_at_first_update": trainer.start_drift,
            "tokens_that_differ_at_a_clip_bound": trainer.edge_tokens,
        },
        "rollouts": {key: [round(line[key], 6) for line in score.rollouts] for key in score.rollouts[0]},
        "updates": _columns(trainer.lines),
    }


def _master_optimizer(trainer: GRPOTrainer) -> MasterAdamW:
    """TRL's own groups (no decay of norms), on float32 copies."""
    decayed = set(trainer.get_decay_parameter_names(trainer.model))
    named = list(trainer.model.named_parameters())
    config = trainer.args
    return MasterAdamW(
        [
            {"params": [p for name, p in named if name in decayed], "weight_decay": config.weight_decay},
            {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
    )


def _columns(lines: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """What is kept of each update, to four digits: the files lie in the repository."""
    columns: dict[str, list[float | None]] = {
        key: [line[key] for line in lines] for key in ("loss", "gradient_norm", "ess", "clip_fraction", "mean_length")
    }
    for sign in ("positive", "negative"):
        for quantile in ("q05", "q50", "q95"):
            columns[f"log_weight_{sign}_{quantile}"] = [line["log_weight"][sign][quantile] for line in lines]
    return {key: [None if v is None else float(f"{v:.4g}") for v in values] for key, values in columns.items()}


def main() -> int:
    """Train the cells that the command line names and write a file for each that has none; returns the exit code."""
    parser = argparse.ArgumentParser(description="Train cells of the tiny protocol with TRL's GRPOTrainer.")
    parser.add_argument("--method", nargs="+", choices=sorted(LOSSES), default=["grpo", "gspo"])
    parser.add_argument("--reuse", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["master"])
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    protocol = load_protocol("tiny")
    for precision in options.precision:
        for seed in options.seed:
            for reuse in options.reuse:
                for method in options.method:
                    path = options.output / precision / f"{method}-n{reuse}-seed{seed}.json"
                    if path.exists():
                        continue
                    document = train(protocol, Cell("tiny", protocol.models[0].name, reuse, method, seed), precision)
                    write_atomically(path, (json.dumps(document, sort_keys=True, allow_nan=False) + "\n").encode())
                    print(f"{path.name} {precision}: {document['seconds']} s, {document['checks']}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
