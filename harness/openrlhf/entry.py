"""``python -m harness.openrlhf.entry ...``: OpenRLHF's own PPO command with our actors, in a Ray that is running.

The arguments are those of ``openrlhf.cli.train_ppo_ray``. Ray's address comes from ``RAY_ADDRESS``, the cell from the
variable of `harness.openrlhf.worker_spec`.
"""

from __future__ import annotations

import os
import runpy

from harness import data_only, lifetime
from harness.fork_server import worker_runtime_env
from harness.openrlhf import cpu
from harness.openrlhf.worker_spec import VARIABLE

WORKER_ENVIRONMENT = {
    **data_only.ENVIRONMENT,
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
}


def prepare_worker() -> None:
    """What Ray calls in every worker of the training, before anything else."""
    lifetime.join_step()
    cpu.install()


def main() -> None:
    """Connect to Ray and run the training to its end. Ray ends all of its actors when this process ends."""
    lifetime.end_with_parent()
    lifetime.join_step()
    cpu.install()
    import ray

    handed_on = {name: os.environ[name] for name in (VARIABLE, lifetime.VARIABLE) if name in os.environ}
    environment = WORKER_ENVIRONMENT | handed_on
    if not cpu.has_cuda():
        environment |= cpu.environment()
    os.environ.update(environment)
    ray.init(
        address=os.environ["RAY_ADDRESS"],
        runtime_env={
            "env_vars": environment,
            "worker_process_setup_hook": "harness.openrlhf.entry.prepare_worker",
            **worker_runtime_env(),
        },
        log_to_driver=True,
    )
    from harness.openrlhf import actors, placement

    actors.register()
    placement.install()
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
