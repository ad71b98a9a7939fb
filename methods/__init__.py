"""Policy-optimisation losses: pure functions of log-probabilities, advantages and a mask.

>>> from methods import LossInputs, available, get
>>> method = get("respo")()

Names are imported on first use, so that what needs no loss does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods.contract import Batch, Card, Hyperparameter, LossInputs, LossOutputs, Method
    from methods.registry import available, create, get, lookup, register, source_digest

_HOMES = {
    "methods.contract": ("Batch", "Card", "Hyperparameter", "LossInputs", "LossOutputs", "Method"),
    "methods.registry": ("available", "create", "get", "lookup", "register", "source_digest"),
}

__all__ = [
    "Batch",
    "Card",
    "Hyperparameter",
    "LossInputs",
    "LossOutputs",
    "Method",
    "available",
    "create",
    "get",
    "lookup",
    "register",
    "source_digest",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'methods' has no attribute {name!r}")
