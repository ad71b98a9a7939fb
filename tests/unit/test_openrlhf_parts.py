"""Parts of the training process that need no Ray: the loss as OpenRLHF calls it, logs, reward, the CPU's answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.openrlhf.loss import LossMismatchError, MethodLoss
from harness.openrlhf.step_log import StepLog
from harness.openrlhf.worker_spec import RewardSpec, WorkerSpec
from methods import LossInputs, get
from methods.diagnostics import summarise
from methods.registry import source_digest

ROOT = Path(__file__).resolve().parents[2]


def spec(method: str = "respo", folder: str = "", digest: str | None = None) -> WorkerSpec:
    return WorkerSpec(
        method=method,
        hyperparameters={},
        source_sha256=digest or source_digest(method),
        run_seed=3,
        training_dir=folder,
        reward=RewardSpec(task="chain", grader="published", right=1.0, wrong=-1.0),
    )


def batch(rows: int = 4, tokens: int = 5) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(rows, tokens, generator=generator)
    return {
        "log_probs": (old + 0.1 * torch.randn(rows, tokens, generator=generator)).requires_grad_(),
        "old_log_probs": old,
        "advantages": torch.tensor([[1.0], [-1.0], [0.5], [-0.5]]).expand(rows, tokens),
        "action_mask": torch.ones(rows, tokens),
        "rollout_log_probs": old + 0.01,
    }


def test_another_loss_in_the_worker_stops_the_run() -> None:
    with pytest.raises(LossMismatchError, match=r"method respo: the worker holds source .* install the same version"):
        MethodLoss(spec(digest="0" * 64))


def test_the_loss_is_the_methods_with_openrlhfs_normalisers() -> None:
    inputs = batch()
    normalisers = {"dp_size": 2, "batch_num_tokens": torch.tensor(40.0), "global_batch_size": torch.tensor(8.0)}
    loss, *_ = MethodLoss(spec())(**inputs, **normalisers)
    assert loss == get("respo")()(LossInputs(**inputs, **normalisers)).loss
    loss.backward()
    assert inputs["log_probs"].grad is not None


def test_rows_of_micro_batches_add_up_and_are_taken_once() -> None:
    whole, halves, inputs = MethodLoss(spec()), MethodLoss(spec()), batch()
    whole(**inputs)
    for part in (slice(0, 2), slice(2, 4)):
        halves(**{name: value[part] for name, value in inputs.items()})
    both = halves.take_rows()
    assert summarise(both) == summarise(whole.take_rows())
    assert len(both) == 4
    halves(**inputs)
    assert len(halves.take_rows()) == 4


def test_the_spec_reaches_a_worker_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in spec().to_environment().items():
        monkeypatch.setenv(name, value)
    assert WorkerSpec.from_environment() == spec()


def test_a_resumed_log_forgets_what_the_checkpoint_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "updates.jsonl"
    log = StepLog(path, "update", 0)
    for update in (1, 2, 3):
        log.write({"update": update, "loss": float("nan") if update == 2 else 0.5, "nested": {"x": [float("inf")]}})
    with path.open("a") as stream:
        stream.write('{"update": 4, "lo')  # the process died here
    resumed = StepLog(path, "update", 2)
    resumed.write({"update": 3, "loss": 1.0})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["update"], line["loss"]) for line in lines] == [(1, 0.5), (2, None), (3, 1.0)]
    assert lines[0]["nested"] == {"x": [None]}


def test_the_reward_asks_for_the_end_token(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.openrlhf import reward

    for name, value in spec().to_environment().items():
        monkeypatch.setenv(name, value)
    reward._worker_spec.cache_clear()
    label = json.dumps({"gold": "5", "row": 0, "eos": "<eos>"})
    queries = ["14=14=5<eos>", "14=14=5", "14=14=6<eos>", "14=<eos>"]
    found = reward.reward_func(queries, ["14="] * 4, [label] * 4)
    assert found["rewards"].tolist() == [1.0, -1.0, -1.0, -1.0]
    assert found["scores"].tolist() == found["rewards"].tolist()
    reward._worker_spec.cache_clear()


def test_the_score_is_0_when_all_is_wrong_and_1_when_all_is_right() -> None:
    published = spec().reward
    assert [published.score(mean) for mean in (-1.0, -0.25, 0.0, 1.0)] == [0.0, 0.375, 0.5, 1.0]
    assert published.score(-2.0) == -0.5  # all wrong, and all as long as they may be
    other = published.model_copy(update={"right": 10.0, "wrong": 0.0})
    assert [other.score(mean) for mean in (0.0, 2.5, 10.0)] == [0.0, 0.25, 1.0]


def test_the_reward_says_when_the_graders_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.openrlhf import reward

    label = json.dumps({"gold": "3e8", "row": 0, "eos": "<eos>"})
    queries = [rf"How fast? It is $\boxed{{{answer}}}$.<eos>" for answer in (r"3\times 10^8", "5")]
    for grader, right in (("audited", 1.0), ("published", -1.0)):  # Math-Verify does not read 3e8
        asked = spec().reward.model_copy(update={"task": "minerva_math", "grader": grader})
        for name, value in spec().model_copy(update={"reward": asked}).to_environment().items():
            monkeypatch.setenv(name, value)
        reward._worker_spec.cache_clear()
        found = [reward.reward_func([query], ["How fast?"], [label]) for query in queries]  # as OpenRLHF calls it
        assert [one["rewards"].tolist() for one in found] == [[right], [-1.0]]
        assert [one["extra_logs"]["grader_disagreement"].tolist() for one in found] == [[1.0], [0.0]]
        assert [one["extra_logs"]["grader_error"].tolist() for one in found] == [[0.0], [0.0]]
    reward._worker_spec.cache_clear()


def test_the_reward_of_the_control_does_not_look_at_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.openrlhf import reward

    chance = spec().model_copy(update={"reward": spec().reward.model_copy(update={"grader": "chance"})})
    for name, value in chance.to_environment().items():
        monkeypatch.setenv(name, value)
    reward._worker_spec.cache_clear()
    labels = [json.dumps({"gold": gold, "row": row, "eos": "<eos>"}) for row in range(50) for gold in ("5", "6")]
    found = reward.reward_func(["14=14=5<eos>"] * 100, ["14="] * 100, labels)["rewards"].tolist()
    assert found[::2] == found[1::2]
    assert set(found) == {1.0, -1.0}
    reward._worker_spec.cache_clear()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA, where nothing is installed")
def test_a_machine_without_cuda_gets_its_answers_in_a_process_of_its_own() -> None:
    program = (
        "from harness.openrlhf import cpu; cpu.install(); cpu.install()\n"
        "import os, torch, flash_attn.bert_padding as padding\n"
        "device = torch.cuda.current_device()\n"
        "print(torch.zeros(1).to(device).device, torch.device(f'cuda:{device}'), os.environ['DS_ACCELERATOR'])\n"
        "torch.cuda.empty_cache(); torch.cuda.synchronize(); torch.cuda.set_device(0)\n"
        "try: padding.unpad_input()\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines() == [
        "cpu cuda:0 cpu",
        "flash-attn is not installed: packed samples (--ds.packing_samples) need a GPU",
    ]


@pytest.mark.slow  # imports torch in a process of its own
def test_with_cuda_nothing_is_installed() -> None:
    program = (
        "import torch; torch.cuda.is_available = lambda: True\n"
        "import os, sys; before = dict(os.environ), torch.cuda.current_device\n"
        "from harness.openrlhf import cpu; cpu.install()\n"
        "assert (dict(os.environ), torch.cuda.current_device) == before\n"
        "assert 'flash_attn' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
