"""Everything OpenRLHF 0.11.2 needs to run unmodified on a machine without CUDA. With CUDA, nothing here acts.

Four things stand in its way on a CPU, and each has one answer here:

* it asks ``torch.cuda`` for the current device, and imports flash-attn: `install` answers for both;
* weights reach vLLM by NCCL: `GlooGroup` has the same ``broadcast`` over gloo;
* vLLM's CPU layers keep only re-packed weights, so that a new weight has to be loaded through the engine's own
  ``reload_weights``, and a tied output head keeps a stale packed copy, silently: `CpuWorkerExtension` handles both;
* DeepSpeed would compile C++ operators on first use, for minutes: `configure_deepspeed` takes the torch ones.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from harness.openrlhf.ports import quiet_port

THREADS_VARIABLE = "REUSE_BENCH_CPU_THREADS"
"""How many threads each process of a run may compute with; 1 where nothing is said.

A tiny model gains nothing from more, and trainers and engines that share cores lose most of their time waiting for
each other's threads.
"""

ENGINE_OPTIONS = {
    "worker_extension_cls": "harness.openrlhf.cpu.CpuWorkerExtension",
    # A request with a seed of its own, whose prompt is cut into chunks, ends vLLM's CPU engine with an error.
    "enable_chunked_prefill": False,
    # Counters of a server, a few for each token, which nobody reads here.
    "disable_log_stats": True,
}
"""What vLLM's engine is told on a CPU."""

TRAINER_ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
"""What the trainer's processes need besides, from their start: log-probabilities that do not depend on the batch.

With AMX, the last bf16 bit of a response's log-probabilities depends on how its batch is padded, so that log W would
not be exactly 0 before the first update of a rollout batch. vLLM's own CPU kernels need AMX where the processor has it,
so this must not be set for them.
"""


def threads() -> int:
    """Threads of this process, by `THREADS_VARIABLE`."""
    return max(1, int(os.environ.get(THREADS_VARIABLE, "1")))


def environment() -> dict[str, str]:
    """What every process of a run needs in its environment on a CPU, best from its start."""
    port = quiet_port()
    return {
        **({"VLLM_PORT": str(port)} if port else {}),  # where vLLM starts to look for a free one
        "DS_ACCELERATOR": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the default is half the memory
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "TORCH_COMPILE_DISABLE": "1",
        "OMP_NUM_THREADS": str(threads()),
        THREADS_VARIABLE: str(threads()),
    }


def has_cuda() -> bool:
    """Whether this process can use a CUDA device."""
    import torch

    return torch.cuda.is_available()


class _CpuDevice(str):
    """What ``torch.cuda.current_device()`` returns: ``.to(device)`` is the CPU, ``f"cuda:{device}"`` still parses."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return "0"


_CPU = _CpuDevice("cpu")


def install() -> None:
    """Make this process fit for OpenRLHF without CUDA. Ray calls it in every worker, before anything else."""
    import torch

    if torch.cuda.is_available():
        return
    os.environ.update(environment())
    torch.set_num_threads(threads())
    cuda: Any = torch.cuda
    cuda.current_device = lambda: _CPU
    cuda.current_stream = lambda device=None: None
    for name in ("set_device", "synchronize", "empty_cache"):
        setattr(cuda, name, lambda *_, **__: None)
    if "flash_attn" not in sys.modules:
        sys.modules.update(_flash_attn_names())


def _flash_attn_names() -> dict[str, types.ModuleType]:
    """The names that openrlhf.models.ring_attn_utils imports; they run only with packed samples."""

    def missing(*_: object, **__: object) -> None:
        raise RuntimeError("flash-attn is not installed: packed samples (--ds.packing_samples) need a GPU")

    names = {
        "flash_attn": (),
        "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
        "flash_attn.utils": (),
        "flash_attn.utils.distributed": ("all_gather",),
    }
    modules = {}
    for module_name, functions in names.items():
        is_package = not functions
        module = types.ModuleType(module_name)
        module.__spec__ = ModuleSpec(module_name, None, is_package=is_package)
        if is_package:
            module.__path__ = []
        for function in functions:
            setattr(module, function, missing)
        modules[module_name] = module
    return modules


def configure_deepspeed() -> None:
    """Torch's AdamW and collectives in place of DeepSpeed's compiled ones, in this process."""
    import deepspeed.ops
    import openrlhf.utils.deepspeed.deepspeed as strategy_module

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    strategy: Any = strategy_module.DeepspeedStrategy
    if getattr(strategy.get_ds_train_config, "torch_adam", False):
        return
    original: Callable[..., dict[str, Any]] = strategy.get_ds_train_config

    def with_torch_adam(self: Any, optim_dict: dict[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
        if optim_dict and optim_dict["type"] == "AdamW":
            optim_dict["params"]["torch_adam"] = True
        return original(self, optim_dict, **kwargs)

    with_torch_adam.torch_adam = True  # type: ignore[attr-defined]
    strategy.get_ds_train_config = with_torch_adam


class GlooGroup:
    """Two or more processes that share weights: the ``broadcast`` of OpenRLHF's NCCL communicator, on gloo."""

    def __init__(
        self, master_address: str, master_port: int, rank: int, world_size: int, device: object = None
    ) -> None:
        from vllm.distributed.utils import stateless_init_torch_distributed_process_group

        self._group = stateless_init_torch_distributed_process_group(
            master_address, master_port, rank, world_size, backend="gloo"
        )

    def broadcast(self, tensor: Any, src: int, stream: object = None) -> None:
        """Send ``tensor`` from rank ``src``, or receive into it; waits until it is there."""
        self._group.broadcast(tensor, src).wait()


class CpuWorkerExtension:
    """vLLM worker extension (``worker_extension_cls``) that receives weights over gloo.

    OpenRLHF sends one tensor a call and marks the last one with ``empty_cache``. They are kept until then and loaded
    at once through ``reload_weights``, which restores, loads and re-packs.
    """

    model_runner: Any
    model_config: Any

    def init_process_group(
        self,
        master_address: str,
        master_port: int,
        rank_offset: int,
        world_size: int,
        group_name: str,
        backend: str = "gloo",
        use_ray: bool = False,
    ) -> None:
        """Join the group of the trainer's rank 0 and all engines."""
        import torch

        rank = torch.distributed.get_rank() + rank_offset
        self._group = GlooGroup(master_address, master_port, rank, world_size)
        self._received: list[tuple[str, Any]] = []

    def update_weight(self, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        """Receive one weight; with ``empty_cache``, the last, load them all."""
        import torch

        if dtype != self.model_config.dtype:
            raise TypeError(f"weight {name} comes as {dtype}, the engine holds {self.model_config.dtype}")
        weight = torch.empty(shape, dtype=dtype)
        self._group.broadcast(weight, src=0)
        self._received.append((name, weight))
        if empty_cache:
            self.model_runner.reload_weights(weights_iterator=iter(self._received))
            self._received = []
            self._repack_output_head()

    def _repack_output_head(self) -> None:
        """A tied output head gets no weight of its own, so that the reload leaves its packed copy stale."""
        head = getattr(self.model_runner.get_model(), "lm_head", None)
        if head is not None:
            head.quant_method.process_weights_after_loading(head)
