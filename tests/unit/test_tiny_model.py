"""The base model of the tiny protocol: made from a seed, the same twice, and refused when it was changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.tiny_model import SYMBOLS, TinyRecipe, directory_digest, tiny_model
from methods.errors import UserError

QUICK = TinyRecipe(steps=3, batch_size=8)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("transformers")
    monkeypatch.setenv("REUSE_BENCH_CACHE", str(tmp_path / "first"))
    return tiny_model(QUICK)


@pytest.mark.slow
def test_the_same_recipe_gives_the_same_bytes(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    monkeypatch.setenv("REUSE_BENCH_CACHE", str(tmp_path / "second"))
    again = tiny_model(QUICK, lambda done, total: steps.append((done, total)))
    assert again != made
    assert directory_digest(again) == directory_digest(made)
    assert steps == [(1, 3), (2, 3), (3, 3)]
    other = tiny_model(TinyRecipe(steps=3, batch_size=8, seed=1))
    assert directory_digest(other) != directory_digest(made)


@pytest.mark.slow
def test_it_is_kept_and_a_changed_copy_is_refused(made: Path) -> None:
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["digest"] == directory_digest(made)
    before = (made / "model.safetensors").stat().st_mtime_ns
    assert tiny_model(QUICK) == made
    assert (made / "model.safetensors").stat().st_mtime_ns == before
    with (made / "config.json").open("a") as stream:
        stream.write(" ")
    with pytest.raises(UserError, match="the cached base model was changed: delete the folder"):
        tiny_model(QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff"])
def test_a_damaged_manifest_is_named(made: Path, content: bytes) -> None:
    (made / "manifest.json").write_bytes(content)
    with pytest.raises(UserError, match=r"manifest\.json: .*delete the folder"):
        tiny_model(QUICK)


@pytest.mark.slow
@pytest.mark.stack
def test_making_it_leaves_standard_output_to_the_command(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed", reason="the training stack is not installed")
    program = "from harness.tiny_model import TinyRecipe, tiny_model; tiny_model(TinyRecipe(steps=1, batch_size=8))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"REUSE_BENCH_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_one_symbol_is_one_token(made: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(made)
    text = "9141=14=5,951"
    ids = tokenizer(text)["input_ids"]
    assert [SYMBOLS[index] for index in ids] == list(text)
    assert tokenizer.decode([*ids, tokenizer.eos_token_id]) == f"{text}<eos>"
    config = AutoConfig.from_pretrained(made)
    assert (config.model_type, config.vocab_size, config.num_hidden_layers) == ("qwen3", len(SYMBOLS), 2)
