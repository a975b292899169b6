"""What of SGLang's start cannot run without a card, and what stands in for it."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import absent
import torch

PACKAGES = frozenset({
    "sgl_kernel", "sglang_kernel", "deep_gemm", "deep_ep", "decord", "torchao", "torch_memory_saver", "pynvml",
    "interegular", "outlines", "aiter", "timm", "datasets", "IPython", "blobfile", "py_spy", "vllm", "modelscope",
    "torchvision", "torchaudio", "torchcodec", "mooncake", "nixl", "kernels", "flash_attn", "humming", "nvshmem",
    "easydict", "zstandard", "xxhash", "av",
})  # fmt: skip
COMMUNICATORS = {
    "custom_all_reduce": "CustomAllreduce", "pynccl": "PyNcclCommunicator", "pymscclpp": "PyMscclppCommunicator",
    "quick_all_reduce": "QuickAllReduce", "symm_mem": "SymmMemCommunicator",
    "torch_symm_mem": "TorchSymmMemCommunicator",
}  # fmt: skip
CARD_MIB = 81_559


def _gated(values: torch.Tensor, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
    return out if out is not None else values.new_empty((*values.shape[:-1], values.shape[-1] // 2))


def _chosen(scores: torch.Tensor, bias: Any, groups: Any, of_groups: Any, count: int, *a: Any, **k: Any) -> Any:
    shape = (scores.shape[0], count)
    return scores.new_empty(shape, dtype=torch.float32), scores.new_empty(shape, dtype=torch.int32)


def _nothing(*args: Any, **kwargs: Any) -> None: ...


def kernels() -> dict[str, Callable[..., Any]]:
    """Functions of `sgl_kernel` by what they return: a tensor of their own, or nothing where they write into one."""

    def like(values: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.empty_like(values)

    in_place = (
        "fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "topk_softmax", "moe_align_block_size", "moe_sum_reduce",
        "apply_rope_with_cos_sin_cache_inplace",
    )  # fmt: skip
    return {
        **dict.fromkeys(in_place, _nothing),
        **dict.fromkeys(("rmsnorm", "gemma_rmsnorm"), like),
        **dict.fromkeys(("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"), _gated),
        "moe_fused_gate": _chosen,
    }


def install(unanswered: Counter[str], operations: dict[str, Callable[..., Any]]) -> None:
    """Missing packages can be imported; bodies of SGLang's own operations go to `operations`."""
    absent.PACKAGES = absent.PACKAGES | PACKAGES
    absent.NAMESPACES = absent.NAMESPACES | {"sgl_kernel"}
    absent._CONTENTS["sgl_kernel"] = kernels
    absent._CONTENTS["xgrammar"] = lambda: {"StructuralTag": dict}
    absent.install({}, unanswered)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    processor: Any = torch._C._cpu
    processor._is_amx_tile_supported = lambda: False
    transformers: Any = importlib.import_module("transformers")
    keep = transformers.AutoConfig.register  # transformers has types since that SGLang registers itself
    transformers.AutoConfig.register = staticmethod(
        lambda key, config, exist_ok=False: keep(key, config, exist_ok=True)
    )
    known = importlib.metadata.version
    stands_in = PACKAGES | {"sgl-kernel", "sglang-kernel", "flashinfer_python", "flashinfer-python", "triton"}
    anything: Any = importlib.metadata
    anything.version = lambda name: "9.9.9" if name in stands_in else known(name)
    utils: Any = importlib.import_module("sglang.srt.utils")
    common: Any = sys.modules.get("sglang.srt.utils.common", utils)
    original = common.direct_register_custom_op

    def register(op_name: str, op_func: Any, *args: Any, **kwargs: Any) -> Any:
        operations[f"sglang::{op_name}"] = op_func
        return original(op_name, op_func, *args, **kwargs)

    for module in (utils, common):
        module.direct_register_custom_op = register
        module.get_nvgpu_memory_capacity = lambda: CARD_MIB


class Disabled:
    """A communicator that is absent: SGLang then adds up in place, as NCCL does with what is large."""

    disabled = True

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, key: str) -> Any:
        return lambda *args, **kwargs: False


def process_groups(ranks: int) -> None:
    """SGLang's groups around a world of which one rank runs."""
    state: Any = importlib.import_module("sglang.srt.distributed.parallel_state")
    state.in_the_same_node_as = lambda group, source_rank=0: [True] * ranks
    for module, name in COMMUNICATORS.items():
        try:
            found = importlib.import_module(f"sglang.srt.distributed.device_communicators.{module}")
        except ImportError:
            continue
        setattr(found, name, Disabled)
    queue: Any = importlib.import_module("sglang.srt.distributed.device_communicators.shm_broadcast")
    queue.MessageQueue.create_from_process_group = staticmethod(_nothing)
    state.set_custom_all_reduce(False)
    state.init_distributed_environment(
        backend="gloo", world_size=ranks, rank=0, local_rank=0, distributed_init_method="tcp://localhost:1"
    )
    state.initialize_model_parallel(tensor_model_parallel_size=ranks)


class Attention:
    """An attention backend, pools of tokens: makes the output and nothing else."""

    def forward(self, q: torch.Tensor, k: Any, v: Any, layer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return q.new_empty((q.shape[0], layer.tp_q_head_num * layer.v_head_dim))

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return _nothing
