"""What the Ray workers of a training run must know, carried to them in one environment variable."""

from __future__ import annotations

import os
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

VARIABLE = "REUSE_BENCH_WORKER"


class RewardSpec(BaseModel):
    """How a response is rewarded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    grader: Literal["published", "audited", "chance"]
    right: float
    wrong: float

    def score(self, mean_reward: float) -> float:
        """The training score of a rollout batch: 0 when all is wrong, 1 when all is right.

        With the paper's rewards of +1 and -1 it is (mean reward + 1) / 2. A penalty for length is part of the reward,
        and can take it below 0.
        """
        return (mean_reward - self.wrong) / (self.right - self.wrong)


class WorkerSpec(BaseModel):
    """One cell, as its workers see it. ``source_sha256`` is what the driver believes the loss to be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    hyperparameters: dict[str, Any]
    source_sha256: str
    run_seed: int
    training_dir: str
    reward: RewardSpec

    def to_environment(self) -> dict[str, str]:
        """The variable that carries this to the workers."""
        return {VARIABLE: self.model_dump_json()}

    @classmethod
    def from_environment(cls) -> WorkerSpec:
        """Read it back in a worker."""
        return cls.model_validate_json(os.environ[VARIABLE])
