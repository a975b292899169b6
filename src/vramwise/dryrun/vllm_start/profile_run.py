"""What vLLM's own Python allocates at its start: loading and `profile_run` on fake tensors, no card, no weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from vramwise.dryrun.vllm_start.absent import install as install_absent
from vramwise.dryrun.vllm_start.card import Card, install_cuda, install_device_guard, install_process_groups
from vramwise.dryrun.vllm_start.memory import CardMemory, Peak
from vramwise.dryrun.vllm_start.stand_ins import (
    choose_cuda,
    keep_custom_operations,
    results_of_kernels,
    shorten_loading,
    without_communication,
)
from vramwise.dryrun.vllm_start.tensors import FakeCuda
from vramwise.units import MIB

LEAST_LISTED_BYTES = MIB
PHASES = {"_dummy_run": "forward", "_dummy_sampler_run": "sampler"}


def start(config: Any, card: Card, ranks: int) -> type:
    """Process groups as a worker makes them, and the class of the model runner that the version takes."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment

    install_process_groups(ranks)
    with set_current_vllm_config(config):
        init_distributed_environment(ranks, 0, "tcp://localhost:1", 0, "gloo")
        ensure_model_parallel_initialized(ranks, 1)
        try:
            from vllm.v1.worker.workspace import init_workspace_manager
        except ImportError:
            pass
        else:
            init_workspace_manager(torch.device("cuda", 0), 1)
    if hasattr(config, "kernel_config") and hasattr(config.compilation_config, "ir_enable_torch_wrap"):
        from vllm import ir

        config.kernel_config.ir_op_priority.set_default()
        ir.set_default_torch_wrap(config.compilation_config.ir_enable_torch_wrap)
    second = getattr(config, "use_v2_model_runner", False)
    place = "vllm.v1.worker.gpu.model_runner" if second else "vllm.v1.worker.gpu_model_runner"
    runner_class: type = import_module(place).GPUModelRunner
    return runner_class


@contextmanager
def phases(runner: object, memory: CardMemory) -> Iterator[dict[str, Peak]]:
    """Peaks of the profile run's phases, each above what was allocated before the profile run."""
    whole = memory.watch()
    found = {"profile run": whole}
    for method, phase in PHASES.items():
        setattr(runner, method, _watched(getattr(runner, method), phase, whole.start_bytes, memory, found))
    yield found
    memory.unwatch(whole)


def _watched(
    original: Callable[..., object], phase: str, start_bytes: int, memory: CardMemory, found: dict[str, Peak]
) -> Callable[..., object]:
    def method(*args: object, **kwargs: object) -> Any:
        peak = found[phase] = memory.watch()
        peak.start_bytes = start_bytes
        try:
            return original(*args, **kwargs)
        finally:
            memory.unwatch(peak)

    return method


def beside_parameters(memory: CardMemory) -> list[dict[str, Any]]:
    """What is alive after loading that no method of a layer made as its weight, by the function that made it."""
    found: Counter[tuple[str, str]] = Counter()
    for block, count in memory.live().items():
        if not block.function.endswith(".create_weights"):
            found[block.function, block.dtype] += count * block.block_bytes
    return [{"function": function, "dtype": dtype, "bytes": size} for (function, dtype), size in found.most_common()]


def described(peak: Peak) -> dict[str, Any]:
    """A peak with its blocks of 1 MiB and more, largest first; smaller ones as one sum."""
    large = [(count * block.block_bytes, count, block) for block, count in peak.live.items()]
    listed = sorted(
        (entry for entry in large if entry[2].block_bytes >= LEAST_LISTED_BYTES), key=lambda entry: -entry[0]
    )
    return {
        "bytes": peak.bytes,
        "live": [
            {"module": re.sub(r"\.\d+\.", ".*.", block.module), "function": block.function,
             "operation": block.operation, "shape": list(block.shape), "dtype": block.dtype,
             "count": count, "bytes": total}
            for total, count, block in listed
        ],
        "smaller_bytes": sum(total for total, _, block in large if block.block_bytes < LEAST_LISTED_BYTES),
    }  # fmt: skip


After = Callable[[Any, Any, int], dict[str, Any]]
"""What is told of configuration, runner, and the bytes that vLLM charges for weights and the largest moment."""


def charges_all_it_took() -> bool:
    """Whether what the process holds besides weights is charged, as from 0.27 on, or only weights and the peak's rise
    (utils/mem_utils.py `memory_profiling`)."""
    try:
        from vllm.utils.mem_utils import MemoryProfilingResult
    except ImportError:
        return False
    return hasattr(MemoryProfilingResult, "transient_peak_headroom")


def profile_run(card: Card, ranks: int, configured: Callable[[], Any], after: After | None = None) -> dict[str, Any]:
    """One start of one rank of `ranks`: bytes of runner, weights, what stays, and the peaks with what lives in them.

    `configured` makes vLLM's configuration once the card answers; `after` adds to the answer.
    """
    memory = CardMemory()
    results: dict[str, Callable[..., Any]] = {}
    operations: dict[str, Callable[..., Any]] = {}
    unanswered: Counter[str] = Counter()
    install_device_guard()
    install_cuda(card, memory, ranks)
    install_absent(results, unanswered)
    import vllm

    choose_cuda()  # before anything asks which platform it is
    from vllm.config import set_current_vllm_config

    keep_custom_operations(operations)
    results_of_kernels(results)
    without_communication(ranks)
    shorten_loading()
    config = configured()
    runner_class = start(config, card, ranks)
    mode = FakeCuda(memory, operations, card.capability)
    results["_C::get_cuda_view_from_cpu_tensor"] = mode.view_of_host
    with mode, torch.no_grad(), set_current_vllm_config(config):
        runner = runner_class(config, torch.device("cuda", 0))
        before = memory.watch()
        runner.load_model()
        weights = memory.allocated - before.start_bytes
        beside = beside_parameters(memory)
        memory.unwatch(before)
        memory.module_names = {id(module): name for name, module in runner.model.named_modules()}
        memory.reset_peak()
        with phases(runner, memory) as found:
            runner.profile_run()
        kept = memory.allocated - found["profile run"].start_bytes
        charged = weights + max(peak.bytes for peak in found.values())
        charged += before.start_bytes if charges_all_it_took() else 0
        more = after(config, runner, charged) if after is not None else {}
    scheduler = config.scheduler_config
    return {
        "version": vllm.__version__, "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs, "runner": runner_class.__module__,
        "runner_bytes": before.start_bytes, "weights_bytes": weights, "beside_parameters": beside,
        "kept_bytes": kept, "peaks": {name: described(peak) for name, peak in found.items()},
        "unanswered": dict(unanswered), **more,
    }  # fmt: skip
