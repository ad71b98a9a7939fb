"""Models and checkpoints are data: code that comes with them is never run.

OpenRLHF asks transformers to run whatever code a model brings along, and DeepSpeed reads its states as pickles, which
can run anything. `ENVIRONMENT` closes both doors in every process of a run; `without_code` says so before a run starts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from methods.errors import UserError

ENVIRONMENT = {"HF_MODULES_CACHE": os.devnull, "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}
"""Variables that are to be set when a process starts: their libraries read them while they are imported.

transformers copies a model's code to this place before it imports it, and nothing can be copied there. torch builds
tensors and plain values from a pickle, and of classes only those that `know_states_of_deepspeed` names.
"""


def without_code(name: str, folder: Path) -> Path:
    """The folder of a model, looked at.

    Args:
        name: of the model, to be named in errors.
        folder: with its ``config.json`` and those of its tokenizer and processors.

    Raises:
        UserError: the model wants code of its own to be run.
    """
    for path in sorted(folder.glob("*config.json")):
        try:
            document = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            continue  # who needs the file says what is wrong with it
        if isinstance(document, dict) and document.get("auto_map"):
            raise UserError(
                f"model {name}: {path}: field auto_map: the model brings code of its own, which is never run here: "
                "take a model that transformers knows by itself, and if it does know this one, delete the field"
            )
    return folder


def know_states_of_deepspeed() -> None:
    """Let this process read the few classes that DeepSpeed keeps beside tensors in its checkpoints."""
    import torch
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    torch.serialization.add_safe_globals([LossScaler, ZeroStageEnum, fragment_address])
