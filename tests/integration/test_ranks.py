"""Diagnostics of a mini-batch that two trainer processes share are those of one process that holds it all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.openrlhf.ports import quiet_port
from methods import LossInputs, get
from methods.diagnostics import response_rows, summarise

pytestmark = [pytest.mark.slow, pytest.mark.stack]

ROOT = Path(__file__).resolve().parents[2]

RANK = """
import json, os, sys
from harness.openrlhf import cpu
cpu.install()
import torch.distributed as dist
dist.init_process_group("gloo")
from harness.openrlhf import actors
from methods import get
from methods.diagnostics import response_rows, summarise
sys.path.insert(0, os.getcwd())
from tests.integration.test_ranks import batch
half = slice(0, 3) if dist.get_rank() == 0 else slice(3, 6)
inputs = batch(half)
rows = actors._gather_rows(response_rows(inputs, get("respo")()(inputs)))
sums = actors._sum_over_ranks({"reward": float(dist.get_rank() + 1), "responses": 3.0})
if dist.get_rank() == 0:
    print("RESULT", json.dumps({"summary": summarise(rows), "sums": sums}))
"""


def batch(part: slice) -> LossInputs:
    generator = torch.Generator().manual_seed(1)
    old = -torch.rand(6, 9, generator=generator)
    log_probs = old + 0.3 * torch.randn(6, 9, generator=generator)
    advantages = torch.linspace(-1.5, 1.5, 6)[:, None].expand(6, 9)
    mask = (torch.arange(9) < torch.tensor([9, 4, 7, 1, 9, 5])[:, None]).float()
    return LossInputs(log_probs[part], old[part], advantages[part], mask[part], old[part] + 0.01)


def test_rows_are_gathered_over_ranks() -> None:
    pytest.importorskip("openrlhf", reason="the training stack is not installed")
    port = str(quiet_port())
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK],
            env=shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    try:
        output = [process.communicate(timeout=600)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    (line,) = [line for line in output[0].splitlines() if line.startswith("RESULT ")]
    result = json.loads(line.removeprefix("RESULT "))
    whole = batch(slice(0, 6))
    expected = summarise(response_rows(whole, get("respo")()(whole)))
    assert result["summary"] == json.loads(json.dumps(expected))
    assert result["sums"] == {"reward": 3.0, "responses": 6.0}
