"""Policy-optimisation losses: pure functions of log-probabilities, advantages and a mask.

>>> from methods import LossInputs, available, get
>>> method = get("respo")()
"""

from methods.contract import Batch, Card, Hyperparameter, LossInputs, LossOutputs, Method
from methods.registry import available, get, lookup, register, source_digest

__all__ = [
    "Batch",
    "Card",
    "Hyperparameter",
    "LossInputs",
    "LossOutputs",
    "Method",
    "available",
    "get",
    "lookup",
    "register",
    "source_digest",
]
