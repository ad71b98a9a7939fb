"""The numbers that the paper printed, with their source: reference rows, never results of this project."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

FOLDER = Path(__file__).parent / "published"
HELDOUT_FILE = "heldout_pass1_percent.csv"
TRAINING_FILE = "training_score.csv"
MACRO = "macro_average"
TASKS = ("aime25", "aime24", "amc23", "olympiadbench", "minerva_math", "math500")
NO_INTERVAL = "no interval published"


@cache
def sources() -> dict[str, Any]:
    """What each file holds and where it comes from: ``published/sources.yaml``."""
    document = yaml.safe_load((FOLDER / "sources.yaml").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def model_key(name: str) -> str:
    """One spelling for a model: ``Qwen/Qwen3-1.7B-Base`` and ``Qwen3-1.7B`` are the same row of the paper."""
    return name.rsplit("/", 1)[-1].lower().removesuffix("-base")


def heldout() -> pd.DataFrame:
    """Held-out pass@1 as printed, one row a model, N, method and benchmark.

    Columns: model, reuse, method (our name), title, task (the six and ``macro_average``), score in [0, 1],
    ``percent`` (as printed), source, kind ("published").
    """
    wide = pd.read_csv(FOLDER / HELDOUT_FILE)
    long = wide.melt(
        id_vars=["model", "rollout_reuse", "method"], value_vars=[*TASKS, MACRO], var_name="task", value_name="percent"
    )
    long["score"] = long["percent"] / 100
    return _labelled(long, HELDOUT_FILE)


def training() -> pd.DataFrame:
    """Training scores as printed: columns model, reuse, method, title, early, late (in [0, 1]), source, kind."""
    wide = pd.read_csv(FOLDER / TRAINING_FILE).rename(
        columns={"early_max_first_256_updates": "early", "late_mean_updates_896_1024": "late"}
    )
    return _labelled(wide, TRAINING_FILE)


def _labelled(table: pd.DataFrame, file: str) -> pd.DataFrame:
    table = table.rename(columns={"rollout_reuse": "reuse", "method": "title"})
    table["method"] = table["title"].str.lower()
    table["source"] = sources()[file]["source"]
    table["kind"] = "published"
    first = ["model", "reuse", "method", "title"]
    return table[[*first, *(column for column in table.columns if column not in first)]]
