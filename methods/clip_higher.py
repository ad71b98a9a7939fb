"""Clip-higher: GRPO's clip with a wider upper side, from DAPO."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from methods.contract import Card
from methods.grpo import GRPO


class ClipHigher(GRPO):
    """GRPO with the asymmetric clip of DAPO (Yu et al. 2025, section 3.1)."""

    name: ClassVar[str] = "clip_higher"
    card: ClassVar[Card] = replace(
        GRPO.card,
        title="DAPO clip-higher",
        idea="GRPO with more room upwards, so that unlikely tokens of good responses can grow.",
        paper="Yu et al., DAPO: An Open-Source LLM Reinforcement Learning System at Scale, 2025",
        url="https://arxiv.org/abs/2503.14476",
        hyperparameters=tuple(
            replace(parameter, default=0.28) if parameter.name == "clip_high" else parameter
            for parameter in GRPO.card.hyperparameters
        ),
        conventions=(
            *GRPO.card.conventions,
            "Only the clip of DAPO: its dynamic sampling and overlong penalty belong to the protocol.",
        ),
    )
