"""The command lines for OpenRLHF, read by its own parser and judged by its own validations and arithmetic.

The parser and the checks are those of the installed ``openrlhf/cli/train_ppo_ray.py``: the block under ``if __name__``
is executed as it stands, without the imports above it, and without its last statement, which would start training.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import math
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.grid import Cell, cells
from harness.openrlhf.arguments import LABEL_KEY, PROMPT_KEY, TrainingPaths, training_arguments
from harness.protocol import Protocol, leaves, load_protocol
from methods.errors import UserError

PATHS = TrainingPaths(
    *map(Path, ("/r/prompts.jsonl", "/m/base", "/r/checkpoints", "/r/final", "/r/reward.py", "/r/logs"))
)
PAPER = [(name, cell) for name in ("qwen3-1.7b", "qwen3-30b-a3b") for cell in cells(load_protocol(name))]
PAPER_FIRST = (load_protocol(PAPER[0][0]), PAPER[0][1])
ALL = PAPER + [(name, cell) for name in ("small", "smoke", "tiny") for cell in cells(load_protocol(name), seeds=[0])]


def installed(part: str) -> Path:
    """A file of the installed OpenRLHF, found without importing it."""
    spec = importlib.util.find_spec("openrlhf")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("openrlhf is not installed")
    return Path(spec.submodule_search_locations[0], part)


def load(part: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(part).stem, installed(part))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """What OpenRLHF makes of a command line. Also: it has nothing to warn of."""
    path = installed("cli/train_ppo_ray.py")
    block = next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If))
    *statements, last = block.body
    assert ast.unparse(last) == "train(args)"

    def import_one(name: str, *rest: Any) -> Any:
        return load("utils/config.py") if name == "openrlhf.utils.config" else builtins.__import__(name, *rest)

    import argparse

    scope: dict[str, Any] = {
        "__builtins__": vars(builtins) | {"__import__": import_one},
        "argparse": argparse,
        "datetime": datetime,
    }
    program, sys.argv = sys.argv, ["train_ppo_ray", *arguments]
    try:
        exec(compile(ast.Module(statements, []), str(path), "exec"), scope)
    finally:
        sys.argv = program
    assert capsys.readouterr().out == ""
    return scope["args"]


@pytest.mark.parametrize(("name", "cell"), ALL, ids=lambda value: value.id if isinstance(value, Cell) else None)
def test_arithmetic_of_every_cell(name: str, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    """With the formulas of ``prepare_datasets``, ``DeepspeedStrategy`` and ``PPOTrainer.fit`` on the parsed values."""
    protocol = load_protocol(name)
    args = parse(training_arguments(protocol, cell, PATHS), capsys)
    updates, rows = protocol.update.updates, protocol.prompts
    responses = args.rollout.batch_size * args.rollout.n_samples_per_prompt

    # N updates per rollout batch, U in all, and the loader ends exactly with a whole rollout batch
    assert responses == cell.reuse * args.train.batch_size
    max_steps = rows * args.rollout.n_samples_per_prompt // args.train.batch_size * args.train.num_episodes
    assert max_steps * args.train.max_epochs == updates
    assert rows % args.rollout.batch_size == 0
    rollouts = rows // args.rollout.batch_size
    assert rollouts * cell.reuse == updates
    assert args.data.max_samples >= rows

    # the last update is saved, and every save point of the protocol is one
    saves = [step * cell.reuse for step in range(1, rollouts + 1) if step % args.ckpt.save_steps == 0]
    assert saves[-1] == updates
    assert set(range(protocol.checkpoints.every_updates, updates + 1, protocol.checkpoints.every_updates)) <= set(saves)
    assert args.ckpt.best_metric_key == "none"
    assert args.ckpt.max_num >= 2

    # no remainder anywhere: DeepSpeed's accumulation and the split over trainers are whole
    world = args.actor.num_nodes * args.actor.num_gpus_per_node
    accumulation, rest = divmod(args.train.batch_size, args.train.micro_batch_size * world)
    assert (rest, accumulation >= 1) == (0, True)
    assert responses % (args.rollout.micro_batch_size * world) == 0

    # room for the longest prompt and response
    assert args.data.max_len == protocol.data.max_prompt_tokens + args.rollout.max_new_tokens
    assert args.algo.kl.init_coef == 0
    assert args.actor.entropy_coef is None
    assert args.critic.model_name_or_path is None
    assert args.train.colocate_actor_ref is False
    assert not args.algo.dynamic_filtering_enable
    assert not args.train.async_enable
    assert not args.train.dynamic_batch_enable
    assert not args.train.full_determinism_enable
    assert args.train.seed == cell.seeds.training


@pytest.mark.parametrize(("name", "cell"), PAPER, ids=lambda value: value.id if isinstance(value, Cell) else None)
def test_published_numbers_in_openrlhfs_words(name: str, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    args = parse(training_arguments(load_protocol(name), cell, PATHS), capsys)
    assert args.rollout.batch_size == {8: 256, 16: 512, 32: 1024}[cell.reuse]
    assert args.ckpt.save_steps == {8: 32, 16: 16, 32: 8}[cell.reuse]
    assert args.train.batch_size == 256
    assert args.rollout.n_samples_per_prompt == 8
    assert args.train.max_epochs == 1
    assert (args.rollout.temperature, args.rollout.top_p) == (1.0, 1.0)
    assert args.algo.advantage.estimator == "group_norm"
    assert not args.algo.advantage.no_std_norm
    assert args.actor.optim == "adam"
    assert (args.actor.adam.lr, args.actor.adam.weight_decay, args.actor.max_norm) == (1e-6, 0.1, 1.0)
    assert args.actor.lr_scheduler == "constant_with_warmup"
    assert math.ceil(1024 * args.actor.lr_warmup_ratio) == 52
    assert args.data.apply_chat_template
    assert args.data.input_template is None
    small = name == "qwen3-1.7b"
    assert args.rollout.max_new_tokens == (15360 if small else 8192)
    assert args.data.max_len == (16384 if small else 9216)
    assert args.reward.overlong_buffer_len == (None if small else 4096)
    assert args.reward.overlong_penalty_factor == 1
    assert args.ds.packing_samples
    assert args.train.colocate_all


def test_paths_and_keys(capsys: pytest.CaptureFixture[str]) -> None:
    args = parse(training_arguments(load_protocol("tiny"), ALL[-1][1], PATHS), capsys)
    assert args.data.prompt_dataset == "/r/prompts.jsonl"
    assert (args.data.input_key, args.data.label_key) == (PROMPT_KEY, LABEL_KEY)
    assert args.actor.model_name_or_path == "/m/base"
    assert (args.ckpt.path, args.ckpt.output_dir) == ("/r/checkpoints", "/r/final")
    assert args.reward.remote_url == ["/r/reward.py"]
    assert args.logger.tensorboard_dir is None


def test_runtime_options(capsys: pytest.CaptureFixture[str]) -> None:
    def args(**changes: object) -> Any:
        protocol = load_protocol("tiny").with_overrides({f"runtime.{key}": value for key, value in changes.items()})
        return parse(training_arguments(protocol, ALL[-1][1], PATHS), capsys)

    assert args().ckpt.load_enable
    assert not args().ckpt.disable_ds
    assert not args(resumable=False).ckpt.load_enable
    assert args(resumable=False).ckpt.disable_ds
    assert args().algo.advantage.is_correction_level == "token"
    low, high = args().algo.advantage.is_correction_threshold
    assert (low, high) == (0, 1e9)
    assert args(rollout_log_probs=False).algo.advantage.is_correction_level == "off"
    assert args(tensorboard=True).logger.tensorboard_dir == "/r/logs"
    assert args(keep_intermediate_weights=True).ckpt.save_hf
    assert args(save_every_updates=32).ckpt.save_steps == 1
    assert args(adam_offload=True).ds.adam_offload


NOT_FOR_OPENRLHF = {
    # chosen elsewhere: the worker's loss, the prompt file, the reward function, evaluation and summaries
    "methods.", "models", "seeds.", "reuse.", "id", "version", "data.train", "data.prompt_template", "reward.grader",
    "reward.right", "reward.wrong", "evaluation.", "scoring.", "collapse.", "checkpoints.evaluate",
}  # fmt: skip
ONE_VALUE_ONLY = {
    # the model admits a single value, which the tests above assert in the parsed arguments
    "advantage.estimator", "update.epochs", "update.mini_batches", "update.precision", "optimiser.name",
    "optimiser.schedule", "regularisation.kl",
}  # fmt: skip
OTHER = {
    "data.chat_template": False,
    "data.max_prompt_tokens": 512,
    "rollout.temperature": 0.5,
    "rollout.top_p": 0.5,
    "rollout.top_k": 5,
    "rollout.responses_per_prompt": 16,
    "rollout.max_response_tokens": 4096,
    "reward.overlong.start": 2048,
    "reward.overlong.end": 4096,
    "reward.overlong.penalty": -0.5,
    "update.prompts_per_update": 64,
    "update.updates": 2048,
    "optimiser.learning_rate": 1e-5,
    "optimiser.betas": (0.9, 0.99),
    "optimiser.epsilon": 1e-6,
    "optimiser.weight_decay": 0.2,
    "optimiser.warmup_ratio": 0.1,
    "optimiser.gradient_clip": 0.5,
    "regularisation.entropy": 0.01,
    "checkpoints.every_updates": 128,
}


def test_no_field_of_a_protocol_is_ignored() -> None:
    """Each field either changes the command line, is refused, or is listed as somebody else's."""
    protocol, cell = load_protocol("qwen3-30b-a3b"), PAPER[-1][1]
    base = training_arguments(protocol, cell, PATHS)
    for field, _ in leaves(protocol.meaning()):
        if any(field == name or (name.endswith(".") and field.startswith(name)) for name in NOT_FOR_OPENRLHF):
            continue
        if field in ONE_VALUE_ONLY:
            continue
        changes: dict[str, Any] = {field: OTHER[field]}
        if field in ("reward.overlong.end", "rollout.max_response_tokens"):  # bound to each other
            changes = {"rollout.max_response_tokens": 4096, "reward.overlong": {"start": 1, "end": 4096, "penalty": -1}}
        if field == "rollout.top_k":
            with pytest.raises(UserError, match="top_k 5"):
                training_arguments(protocol.with_overrides(changes), cell, PATHS)
            continue
        assert training_arguments(protocol.with_overrides(changes), cell, PATHS) != base, field


class TestRefused:
    def cell(self, reuse: int = 8) -> tuple[Protocol, Cell]:
        return load_protocol("qwen3-1.7b"), Cell("qwen3-1.7b", "qwen3-1.7b-base", reuse, "grpo", 0)

    @pytest.mark.parametrize(
        ("overrides", "match"),
        [
            ({"runtime.train_micro_batch": 3}, r"train_micro_batch 3: with 8 trainer GPUs .* 256 responses"),
            ({"runtime.train_micro_batch": 64}, r"train_micro_batch 64"),
            ({"runtime.rollout_micro_batch": 3}, r"rollout_micro_batch 3: with 8 trainer GPUs .* 2048 responses"),
            ({"runtime.save_every_updates": 96}, r"save_every_updates 96"),
            ({"runtime.save_every_updates": 4}, r"not divisible by the reuse ratio 8"),
        ],
    )
    def test_remainders(self, overrides: dict[str, Any], match: str) -> None:
        protocol, cell = self.cell()
        with pytest.raises(UserError, match=match):
            training_arguments(protocol.with_overrides(overrides), cell, PATHS)

    def test_reuse_ratio(self) -> None:
        protocol, cell = self.cell(3)
        with pytest.raises(UserError, match="reuse ratio 3"):
            training_arguments(protocol, cell, PATHS)


@pytest.mark.slow
@pytest.mark.stack
class TestWithTheRealLibraries:
    def test_learning_rate_of_every_update(self, capsys: pytest.CaptureFixture[str]) -> None:
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        args = parse(training_arguments(*PAPER_FIRST, PATHS), capsys)
        parameter = torch.nn.Parameter(torch.zeros(1))
        optimiser = torch.optim.AdamW([parameter], lr=args.actor.adam.lr)
        schedule = transformers.get_scheduler(
            args.actor.lr_scheduler,
            optimiser,
            num_warmup_steps=math.ceil(1024 * args.actor.lr_warmup_ratio),
            num_training_steps=1024,
            scheduler_specific_kwargs={},
        )
        rates = []
        for _ in range(1024):
            rates.append(schedule.get_last_lr()[0])
            optimiser.step()
            schedule.step()
        assert rates[:52] == pytest.approx([1e-6 * step / 52 for step in range(52)])
        assert rates[52:] == [1e-6] * (1024 - 52)

    def test_overlong_penalty_is_openrlhfs(self, capsys: pytest.CaptureFixture[str]) -> None:
        torch = pytest.importorskip("torch")
        source = installed("trainer/ppo_utils/length_penalty.py").read_text()
        scope: dict[str, Any] = {}
        exec(source.replace("from openrlhf.utils.logging_utils import init_logger", "init_logger = str"), scope)
        cell = next(cell for name, cell in PAPER if name == "qwen3-30b-a3b")
        args = parse(training_arguments(load_protocol("qwen3-30b-a3b"), cell, PATHS), capsys)
        lengths = [1, 4095, 4096, 4097, 5000, 6144, 8191, 8192]
        experience = SimpleNamespace(response_length=torch.tensor(lengths), rewards=torch.ones(len(lengths)))
        scope["apply_overlong_penalty"](
            [experience],
            args.rollout.max_new_tokens,
            args.reward.overlong_buffer_len,
            args.reward.overlong_penalty_factor,
        )
        penalty = load_protocol("qwen3-30b-a3b").reward.overlong
        assert penalty is not None
        assert (experience.rewards - 1).tolist() == pytest.approx([penalty(length) for length in lengths], abs=1e-6)

    def test_sizes_of_the_base_models(self) -> None:
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        for name, stated in (("qwen3-1.7b", "1.7"), ("qwen3-30b-a3b", "30.5")):
            (planning,) = load_protocol(name).planning.values()
            sizes = planning.architecture
            common = {
                "num_hidden_layers": sizes.layers,
                "hidden_size": sizes.hidden,
                "num_attention_heads": sizes.heads,
                "num_key_value_heads": sizes.kv_heads,
                "head_dim": sizes.head_dim,
                "vocab_size": sizes.vocabulary,
                "tie_word_embeddings": sizes.tied_embeddings,
            }
            with torch.device("meta"):
                if sizes.experts:
                    config = transformers.Qwen3MoeConfig(
                        **common,
                        num_experts=sizes.experts,
                        num_experts_per_tok=sizes.experts_per_token,
                        moe_intermediate_size=sizes.intermediate,
                        decoder_sparse_step=1,
                    )
                    model = transformers.Qwen3MoeForCausalLM(config)
                else:
                    model = transformers.Qwen3ForCausalLM(
                        transformers.Qwen3Config(**common, intermediate_size=sizes.intermediate)
                    )
            assert sum(parameter.numel() for parameter in model.parameters()) == sizes.parameters
            assert f"{sizes.parameters / 1e9:.1f}" == stated  # as the models' cards say
            assert f"{sizes.active_parameters / 1e9:.1f}" in ("1.7", "3.0")


def test_the_parser_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    """It refuses what OpenRLHF would refuse, so that passing means something."""
    base = training_arguments(*PAPER_FIRST, PATHS)
    with pytest.raises(SystemExit):
        parse([*base, "--no.such.option", "1"], capsys)
    with pytest.raises(SystemExit):
        parse([*base, "--actor.policy_loss_type", "respo"], capsys)
    with pytest.raises(AssertionError, match="number of sample batches"):
        parse([*base, "--rollout.micro_batch_size", "2048"], capsys)
    with pytest.raises(AssertionError, match="n_samples_per_prompt"):
        parse([*base, "--rollout.n_samples_per_prompt", "1"], capsys)
