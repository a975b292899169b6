"""What of vLLM's start cannot run without a card, and what stands in for it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
_COMMUNICATORS = (
    ("custom_all_reduce", "CustomAllreduce"),
    ("symm_mem", "SymmMemCommunicator"),
    ("quick_all_reduce", "QuickAllReduce"),
    ("flashinfer_all_reduce", "FlashInferAllReduce"),
)
CustomOperations = dict[str, Callable[..., Any]]


def set_environment() -> None:
    """One process, no network, the native sampler."""
    os.environ.update(ENVIRONMENT)


def results_of_kernels(results: dict[str, Callable[..., Any]]) -> None:
    """What compiled functions return for which vLLM registers no fake of its own: FlashAttention's output and the fp32
    log-sum-exp of each head and row (vllm-flash-attn hopper/flash_api.cpp mha_fwd, csrc/flash_attn/flash_api.cpp
    mha_varlen_fwd), and what a card is able to do."""

    def attention(query: torch.Tensor, value: torch.Tensor, out: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        made = out if out is not None else query.new_empty((*query.shape[:-1], value.shape[-1]))
        return made, query.new_empty((query.numel() // query.shape[-1],), dtype=torch.float32)

    results["_vllm_fa2_C::varlen_fwd"] = lambda q, k, v, out=None, *a, **kw: attention(q, v, out)
    results["_vllm_fa3_C::fwd"] = lambda q, k, v, kn=None, vn=None, qv=None, out=None, *a, **kw: (
        *attention(q, v, out), None, None,
    )  # fmt: skip
    results["_C::cutlass_scaled_mm_supports_fp8"] = lambda capability: capability >= 89
    results["_C::cutlass_scaled_mm_supports_block_fp8"] = lambda capability: capability >= 90


def keep_custom_operations(operations: CustomOperations) -> None:
    """Notes the Python body of every operation that vLLM registers from now on."""
    torch_utils: Any = importlib.import_module("vllm.utils.torch_utils")
    original = torch_utils.direct_register_custom_op

    def direct_register_custom_op(op_name: str, op_func: Any, *args: Any, **kwargs: Any) -> Any:
        library = kwargs.get("target_lib")
        operations[f"{library.ns if library is not None else 'vllm'}::{op_name}"] = op_func
        return original(op_name, op_func, *args, **kwargs)

    torch_utils.direct_register_custom_op = direct_register_custom_op


def choose_cuda() -> None:
    """vLLM's platform is CUDA, which it would not detect."""
    platforms: Any = importlib.import_module("vllm.platforms")
    cuda: Any = importlib.import_module("vllm.platforms.cuda")
    platforms._current_platform = cuda.CudaPlatform()


def shorten_loading() -> None:
    """No subprocess inspects a model class; weights are made and never filled; parameters may hold fake tensors."""
    anything: Any = torch.nn.Module
    anything._apply = _apply
    runner: Any = importlib.import_module("vllm.v1.worker.gpu_model_runner")
    runner.is_pin_memory_available = lambda: False
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda function: function()
    parameter: Any = importlib.import_module("vllm.model_executor.parameter")
    parameter.BasevLLMParameter.__new__ = _fake_parameter
    loader: Any = importlib.import_module("vllm.model_executor.model_loader.dummy_loader")
    weight_utils: Any = importlib.import_module("vllm.model_executor.model_loader.weight_utils")
    for module in (loader, weight_utils):
        module.initialize_dummy_weights = module.initialize_single_dummy_weight = lambda *a, **k: None
    try:
        triton_kernels: Any = importlib.import_module("vllm.third_party.triton_kernels.specialize")
    except ImportError:
        return
    from vramwise.dryrun.vllm_start.absent import Kernel

    triton_kernels.specialize = lambda function, *a, **k: Kernel(lambda: None)


def without_communication(ranks: int) -> None:
    """NCCL allocates what it would and moves nothing; faster all-reduces are absent (their outputs are as large)."""
    where = "vllm.distributed.device_communicators"
    nccl: Any = importlib.import_module(f"{where}.pynccl")
    nccl.PyNcclCommunicator = type("NoNccl", (_NoNccl,), {"world_size": ranks})
    for module, name in _COMMUNICATORS:
        try:
            found: object = importlib.import_module(f"{where}.{module}")
        except ImportError:
            continue
        setattr(found, name, _Disabled)
    state: Any = importlib.import_module("vllm.distributed.parallel_state")
    state.in_the_same_node_as = lambda group, source_rank=0: [True] * ranks
    state._node_count = lambda group: 1
    broadcast: Any = importlib.import_module(f"{where}.shm_broadcast")
    broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *a, **k: None)


class _NoNccl:
    """vLLM's NCCL communicator: an all-reduce out of place makes a tensor of its input's size."""

    rank, disabled, available = 0, False, True

    def __init__(self, group: object = None, device: object = None, *args: object, **kwargs: object) -> None:
        self.group, self.device = group, device

    def all_reduce(
        self, tensor: torch.Tensor, out_tensor: torch.Tensor | None = None, *a: object, **k: object
    ) -> object:
        return torch.empty_like(tensor) if out_tensor is None else out_tensor

    def __getattr__(self, key: str) -> Any:
        return lambda *args, **kwargs: None


class _Disabled:
    disabled = True

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def __getattr__(self, key: str) -> Any:
        return lambda *args, **kwargs: False


def _apply(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
    """`Module._apply` without the swap of tensors that fakes refuse."""
    for child in module.children() if recurse else ():
        _apply(child, fn)
    for name, old in module._parameters.items():
        if old is not None and (data := fn(old.data)) is not old.data:
            made = torch.nn.Parameter(data, requires_grad=False)
            made.__dict__.update(old.__dict__)
            module._parameters[name] = made
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


_fake_classes: dict[type, type] = {}


def _fake_parameter(cls: type, data: Any = None, **kwargs: object) -> Any:
    """vLLM's own parameter classes around a fake tensor: an object of both."""
    from torch._subclasses.fake_tensor import FakeTensor

    made: Any = torch.nn.Parameter(data, requires_grad=False)
    if isinstance(made, FakeTensor):
        if cls not in _fake_classes:
            _fake_classes[cls] = type(cls.__name__, (cls, FakeTensor), {})
        made.__class__ = _fake_classes[cls]
    return made
