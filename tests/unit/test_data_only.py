"""Code that comes with a model or a checkpoint is not run by any library, and a model with code is refused at once."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from harness import ray_cluster
from harness.data_only import ENVIRONMENT, without_code
from harness.models import resolve_model
from harness.protocol import BaseModelSpec
from methods.errors import UserError
from tests.unit.test_bad_input import refused

pytestmark = [pytest.mark.slow, pytest.mark.stack]

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"model_type": "qwen3", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose code leaves a mark as soon as it is imported."""
    return a_model(tmp_path / "model")


def a_model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["code.Slow", None]}}))
    (folder / "model.safetensors").touch()
    (folder / "code.py").write_text(f"open({str(folder / 'mark')!r}, 'w')\n")
    return folder


def python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    program = f"folder = {str(folder)!r}\nfrom harness.openrlhf import cpu; cpu.install()\n{code}"
    home = {"HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | home | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


LOADERS = """
import os
from openrlhf.models import Actor
from openrlhf.utils import get_tokenizer
from transformers import AutoConfig
from vllm.transformers_utils.config import get_config
loaders = {
    "configuration": lambda one: AutoConfig.from_pretrained(one, trust_remote_code=True),
    "tokenizer of OpenRLHF": lambda one: get_tokenizer(one, None, "left", None),
    "model of OpenRLHF": lambda one: Actor(one, attn_implementation="eager"),
    "engine": lambda one: get_config(one, trust_remote_code=True),
}
for name, load in loaders.items():
    try:
        load(f"{folder}/{name}")
        print("mark: loaded", name)
    except Exception:
        pass
    print("mark", os.path.exists(f"{folder}/{name}/mark"), name)
"""
NAMES = ("configuration", "tokenizer of OpenRLHF", "model of OpenRLHF", "engine")


@pytest.mark.parametrize("closed", [False, True])
def test_no_library_runs_the_code_of_a_model(closed: bool, tmp_path: Path) -> None:
    """Without our variables each of them does."""
    pytest.importorskip("openrlhf", reason="the training stack is not installed")
    for name in NAMES:
        a_model(tmp_path / name)
    done = python(LOADERS, tmp_path, **(ENVIRONMENT if closed else {}))
    said = [line for line in done.stdout.splitlines() if line.startswith("mark")]
    assert said == [f"mark {not closed} {name}" for name in NAMES], done.stderr


@pytest.mark.parametrize("command", ["train", "run", "evaluate"])
def test_a_model_with_code_is_refused_by_name_before_a_run(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "ray_cluster", None)  # nothing is started
    places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    cell = ["--protocol", "smoke", "--method", "grpo", "--reuse", "2", "--set", f"models.0.source={folder}", *places]
    outside = ["--model", str(folder), "--protocol", "smoke", "--out", str(tmp_path / "out")]
    sentence = refused(command, *(outside if command == "evaluate" else cell))
    assert f"{folder / 'config.json'}: field auto_map: the model brings code of its own, which is never run" in sentence
    assert not (folder / "mark").exists()


def test_the_code_of_a_tokenizer_counts_and_a_model_without_code_passes(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "auto_map": {}}))
    with pytest.raises(UserError, match=r"model mine: .*tokenizer_config\.json: field auto_map"):
        without_code("mine", folder)
    (folder / "tokenizer_config.json").write_text("[")  # damaged: others say so
    assert without_code("mine", folder) == folder


def test_a_model_of_pickled_weights_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    with pytest.raises(UserError, match=r"has no config\.json with \*\.safetensors beside it"):
        resolve_model(BaseModelSpec(name="mine", source=str(tmp_path), revision=None, stated="test"))


class Attack:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return open, (str(self.mark), "w")


STATES = """
import deepspeed, torch
cpu.configure_deepspeed()
from harness.data_only import know_states_of_deepspeed
know_states_of_deepspeed()
for stage in (1, 2, 3):
    for offload in ({}, {"offload_optimizer": {"device": "cpu"}}):
        model = torch.nn.Linear(8, 8)
        optimiser = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5 ** step)
        config = {
            "train_batch_size": 2,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": stage, **offload},
            "zero_force_ds_cpu_optimizer": False,
        }
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimiser, lr_scheduler=schedule, config=config)
        engine.backward(engine(torch.ones(2, 8, dtype=torch.bfloat16)).sum())
        engine.step()
        tag = f"{stage}{len(offload)}"
        engine.save_checkpoint(folder, tag=tag, client_state={"global_step": stage})
        print("read", stage, engine.load_checkpoint(folder, tag)[1]["global_step"])
"""


def test_states_of_deepspeed_are_read(tmp_path: Path) -> None:
    """Of all stages: the paper's large model takes the third."""
    pytest.importorskip("deepspeed", reason="the training stack is not installed")
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = python(STATES, tmp_path, DS_ACCELERATOR="cpu", **alone, **ENVIRONMENT)
    read = [line for line in done.stdout.splitlines() if line.startswith("read")]
    assert read == [f"read {stage} {stage}" for stage in (1, 1, 2, 2, 3, 3)], done.stderr


def test_a_pickle_in_the_place_of_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    path, mark = tmp_path / "states.pt", tmp_path / "mark"
    path.write_bytes(pickle.dumps(Attack(mark)))
    code = f"import torch; torch.load({str(path)!r}, weights_only=False)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert mark.exists()  # this is what would happen
    mark.unlink()
    done = python(code, tmp_path, **ENVIRONMENT)
    assert done.returncode == 1
    assert "Weights only load failed" in done.stderr
    assert not mark.exists()
