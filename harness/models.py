"""Where a base model's weights are: made here, in a folder, or fetched from the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from harness.data_only import without_code
from harness.protocol import BaseModelSpec
from harness.provenance import install_stack
from harness.tiny_model import tiny_model
from methods.errors import UserError

BUILTIN_TINY = "builtin:tiny"
_HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.jinja", "tokenizer.model"]
"""No pickled weights and no code are ever fetched."""


def resolve_model(spec: BaseModelSpec, progress: Callable[[int, int], None] | None = None) -> Path:
    """The local folder of the model; made or fetched when it is not there yet.

    Raises:
        UserError: it is neither built in, nor a folder with a model, nor to be had from the hub; or it brings code.
    """
    if spec.source == BUILTIN_TINY:
        return tiny_model(progress=progress)
    folder = Path(spec.source)
    if folder.is_dir():
        if not (folder / "config.json").exists() or not list(folder.glob("*.safetensors")):
            raise UserError(
                f"model {spec.name}: {folder} has no config.json with *.safetensors beside it: give a folder "
                "that `save_pretrained` wrote"
            )
        return without_code(spec.name, folder)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UserError(
            f"model {spec.name}: {spec.source} is no folder, and fetching it needs the package huggingface-hub: "
            f"{install_stack()}"
        ) from error
    try:
        folder = Path(snapshot_download(spec.source, revision=spec.revision, allow_patterns=_HUB_FILES))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"model {spec.name}: {spec.source} is neither a folder nor to be had from the hub ({reason}): check the "
            "name and the network, or bring it from elsewhere: the hub's cache (HF_HOME), or its folder, named with "
            "`--set models.0.source=FOLDER` (open division)"
        ) from error
    return without_code(spec.name, folder)


def end_token(model: Path) -> str:
    """The text of the tokenizer's end-of-sequence token."""
    path = model / "tokenizer_config.json"
    token = json.loads(path.read_text()).get("eos_token") if path.exists() else None
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise UserError(f"{path}: field eos_token: no end-of-sequence token is named: give a model with a tokenizer")
    return text
