"""A map over forked processes: in order, and not stopped by threads that the parent's torch has used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leaderboard.pages.parallel import parallel_map

ROOT = Path(__file__).resolve().parents[2]


def test_results_come_in_order() -> None:
    assert list(parallel_map(lambda index: index * index, range(200), 2)) == [i * i for i in range(200)]
    assert list(parallel_map(lambda index: index * index, range(3), 2)) == [0, 1, 4]


@pytest.mark.slow  # imports torch in a process of its own
def test_torch_works_in_a_fork_of_a_process_whose_torch_used_threads() -> None:
    program = (
        "import torch\n"
        "torch.set_num_threads(2)\n"
        "torch.randn(4_000_000).exp().sum()\n"
        "from leaderboard.pages.parallel import parallel_map\n"
        "print(list(parallel_map(lambda i: i + int(torch.zeros(4_000_000).exp().sum()), range(4), 2, least=2)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.stdout.strip() == str([4_000_000 + index for index in range(4)]), done.stderr
