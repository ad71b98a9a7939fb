"""The tiny model's tokenizer in a folder of the caller's; skips where transformers is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest


def save(folder: Path) -> None:
    pytest.importorskip("transformers")
    from harness.tiny_model import save_tokenizer

    save_tokenizer(folder)
