"""The tiny protocol's base model: a Qwen3 of 76,000 parameters, built and pre-trained from a seed on the CPU.

It is made, not downloaded, so that the whole stack can be tried without a network. Pre-training ends with wrong
results in some steps: that noise is what leaves reinforcement learning something to improve.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from harness.provenance import install_stack
from methods.errors import UserError
from tasks import chain
from tasks.datasets import cache_dir

MANIFEST = "manifest.json"
SYMBOLS = ("<pad>", "<eos>", *"0123456789", "=", ",", "<a>", "<b>")
"""16 symbols; the last two are never written and only round the vocabulary up."""


@dataclass(frozen=True)
class TinyRecipe:
    """How the base model is made. Any change here is another base model: raise ``version``."""

    version: int = 1
    seed: int = 0
    steps: int = 900
    batch_size: int = 96
    peak_learning_rate: float = 6e-3
    warmup_steps: int = 50
    clean_share: float = 0.65
    wrong_pair: float = 0.12
    wrong_triple: float = 0.40
    layers: int = 2
    hidden: int = 64
    mlp: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    max_positions: int = 128
    tied_embeddings: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 of the recipe."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def directory_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a model folder's files, without its own manifest."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            total.update(path.relative_to(folder).as_posix().encode() + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def tiny_model(recipe: TinyRecipe | None = None, progress: Callable[[int, int], None] | None = None) -> Path:
    """The folder of the tiny base model (safetensors and tokenizer), made on first use.

    The folder counts as complete because its manifest is written last. ``progress`` is called with the steps done and
    the steps in all.

    Raises:
        UserError: the cached model is not the one its manifest describes, or transformers is not installed.
    """
    recipe = recipe or TinyRecipe()
    folder = cache_dir() / "models" / f"tiny-qwen3-v{recipe.version}-{recipe.digest[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Cells that start at the same time wait here for the one that makes the model.
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _checked(folder) or _made(recipe, folder, progress)


def _checked(folder: Path) -> Path | None:
    """The folder if it is complete, after a look at its digest; None if it is not."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        return None
    try:
        stated = str(json.loads(manifest.read_bytes())["digest"])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{manifest}: it does not give the base model's digest: delete the folder {folder}, and it is made again"
        ) from error
    if stated != directory_digest(folder):
        raise UserError(
            f"{folder}: digest {stated[:12]} does not match the files; the cached base model was changed: "
            "delete the folder, and it is made again"
        )
    return folder


def _made(recipe: TinyRecipe, folder: Path, progress: Callable[[int, int], None] | None) -> Path:
    building = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    try:
        with redirect_stdout(sys.stderr):  # libraries greet there, between the lines of whoever prints JSON
            _build(recipe, building, progress)
        document = {"recipe": asdict(recipe), "digest": directory_digest(building)}
        (building / MANIFEST).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def save_tokenizer(folder: Path) -> None:
    """One symbol a token; no beginning-of-sequence token, no chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)


def _build(recipe: TinyRecipe, folder: Path, progress: Callable[[int, int], None] | None) -> None:
    try:
        import torch
        from transformers import Qwen3Config, Qwen3ForCausalLM
    except ImportError as error:
        raise UserError(f"the tiny base model needs the package {error.name}: {install_stack()}") from error

    # What the machine does elsewhere must not change the model: own generators, one thread everywhere.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            config = Qwen3Config(
                vocab_size=len(SYMBOLS),
                hidden_size=recipe.hidden,
                intermediate_size=recipe.mlp,
                num_hidden_layers=recipe.layers,
                num_attention_heads=recipe.heads,
                num_key_value_heads=recipe.kv_heads,
                head_dim=recipe.head_dim,
                max_position_embeddings=recipe.max_positions,
                tie_word_embeddings=recipe.tied_embeddings,
                pad_token_id=0,
                eos_token_id=1,
                bos_token_id=None,
            )
            model = Qwen3ForCausalLM(config)
            _pretrain(model, recipe, progress)
    finally:
        torch.set_num_threads(threads)
    model = model.to(torch.bfloat16)
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    save_tokenizer(folder)


def _pretrain(model: object, recipe: TinyRecipe, progress: Callable[[int, int], None] | None) -> None:
    import torch
    from torch.nn.functional import cross_entropy

    assert isinstance(model, torch.nn.Module)
    index = {symbol: number for number, symbol in enumerate(SYMBOLS)}
    rng = random.Random(f"reuse-bench pretraining {recipe.seed}")
    clean = chain.pretraining_texts(rng)
    noisy = chain.pretraining_texts(rng, wrong_pair=recipe.wrong_pair, wrong_triple=recipe.wrong_triple)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.peak_learning_rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _warmup_cosine(step, recipe))
    model.train()
    for step in range(recipe.steps):
        source = clean if step < recipe.clean_share * recipe.steps else noisy
        rows = [[*(index[s] for s in text), index["<eos>"]] for text in islice(source, recipe.batch_size)]
        width = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        logits = model(input_ids=tokens[:, :-1]).logits  # padding is on the right: nothing attends to it
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if progress:
            progress(step + 1, recipe.steps)


def _warmup_cosine(step: int, recipe: TinyRecipe) -> float:
    import math

    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    done = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * done))
