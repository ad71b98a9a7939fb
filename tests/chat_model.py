"""Models with random weights and a chat template, made in seconds: a small one, whose tokens are bytes, for tests.

``python -m tests.chat_model FOLDER TEXTS.jsonl`` makes one of the size of SmolLM2-135M, with tokens learned from the
problems of a file, to measure what a cell of protocol `small` costs where no hub can be reached.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""With a system prompt of its own, as the templates of instruct models have it."""


SPECIAL = ["<pad>", "<|im_end|>", "<|im_start|>"]
SMALL: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
}
SMOLLM2_135M: dict[str, Any] = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}


def save_tokenizer(folder: Path, texts: Iterable[str] = (), vocabulary: int = 0) -> None:
    """One byte a token, or what byte-pair encoding learns from the texts; ``<|im_end|>`` ends a response."""
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    symbols = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if vocabulary:
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        additional_special_tokens=SPECIAL[2:],
        chat_template=TEMPLATE,
    ).save_pretrained(folder)


def save_llama(folder: Path, shape: dict[str, Any] = SMALL) -> None:
    """A Llama shaped as the model of protocol ``small`` is: tied embeddings, three query heads a key-value head."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        **shape,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    save_tokenizer(folder)


def main(folder: Path, texts: Path) -> None:
    """The model of the true size of protocol ``small``, with tokens learned from the problems in ``texts``."""
    save_llama(folder, SMOLLM2_135M)
    problems = (json.loads(line)["problem"] for line in texts.read_text().split("\n") if line)
    save_tokenizer(folder, problems, SMOLLM2_135M["vocab_size"])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
