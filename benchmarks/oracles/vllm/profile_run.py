"""vLLM's own start without a card: what its weights and its profile run allocate, and where.

    python profile_run.py --vllm FOLDER --model meta-llama/Llama-3.1-8B [--tp 2] [--max-num-batched-tokens 8192] ...

FOLDER holds the package `vllm` (an unpacked wheel). Prints one JSON object; README.md beside this file says what it
holds and what is not seen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from absent import install as install_absent
from card import CARDS, Card, install_cuda, install_device_guard, install_process_groups
from memory import CardMemory, Peak
from start_up import (
    choose_cuda,
    keep_custom_operations,
    results_of_kernels,
    set_environment,
    shorten_loading,
    without_communication,
)
from tensors import FakeCuda

from vramwise.sources import resolve

LEAST_LISTED_BYTES = 1 << 20
FORMATS = {
    "fp8": {"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "awq": {"bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
}
"""What vLLM reads of a format's settings and the catalog's configs may leave out, as Qwen's files have it."""
PHASES = {"_dummy_run": "forward", "_dummy_sampler_run": "sampler"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="folder that holds the package vllm")
    parser.add_argument("--model", required=True, help="a model of vramwise's catalog, or a config.json")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--capability", default="9.0", help="of an H100 (9.0) or an A100 (8.0)")
    parser.add_argument("--engine", type=json.loads, default={}, help="further EngineArgs, as JSON")
    return parser.parse_args()


def engine_config(args: argparse.Namespace) -> Any:
    """vLLM's configuration: eager, weights without values, the API server's defaults for the rest."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    given = {key: getattr(args, key) for key in ("max_num_batched_tokens", "max_num_seqs")}
    settings = {
        "enforce_eager": True, "skip_tokenizer_init": True, "load_format": "dummy",
        "distributed_executor_backend": "mp" if args.tp > 1 else "uni",
        **{key: value for key, value in given.items() if value is not None},
        **args.engine,
    }  # fmt: skip
    engine = EngineArgs(
        model=str(model_folder(args.model)), dtype=args.dtype, max_model_len=args.max_model_len,
        tensor_parallel_size=args.tp, **settings,
    )  # fmt: skip
    return engine.create_engine_config(UsageContext.OPENAI_API_SERVER)


def model_folder(name: str) -> Path:
    """A folder with the model's config.json, which names an architecture and all of a format's settings."""
    config = dict(resolve(name).config)
    stored = config.get("quantization_config")
    if stored:
        config["quantization_config"] = {**FORMATS.get(stored["quant_method"], {}), **stored}
    if not config.get("architectures"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        config["architectures"] = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config["model_type"]]]
    folder = Path(tempfile.mkdtemp(prefix="vllm-oracle-"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


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
    if getattr(config, "use_v2_model_runner", False):
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner as SecondRunner

        return SecondRunner
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    return GPUModelRunner


@contextmanager
def phases(runner: Any, memory: CardMemory) -> Iterator[dict[str, Peak]]:
    """Peaks of the profile run's phases, each above what was allocated before the profile run."""
    whole = memory.watch()
    found = {"profile run": whole}
    for method, phase in PHASES.items():
        setattr(runner, method, _watched(getattr(runner, method), phase, whole.start_bytes, memory, found))
    yield found
    memory.unwatch(whole)


def _watched(
    original: Callable[..., Any], phase: str, start_bytes: int, memory: CardMemory, found: dict[str, Peak]
) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
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


def run(args: argparse.Namespace) -> dict[str, Any]:
    """One start of one rank."""
    major, _, minor = args.capability.partition(".")
    card = CARDS[int(major), int(minor)]
    memory = CardMemory()
    results: dict[str, Callable[..., Any]] = {}
    operations: dict[str, Callable[..., Any]] = {}
    unanswered: Counter[str] = Counter()
    install_device_guard()
    install_cuda(card, memory, args.tp)
    install_absent(results, unanswered)
    import vllm

    choose_cuda()  # before anything asks which platform it is
    from vllm.config import set_current_vllm_config

    keep_custom_operations(operations)
    results_of_kernels(results)
    without_communication(args.tp)
    shorten_loading()
    config = engine_config(args)
    runner_class = start(config, card, args.tp)
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
    scheduler = config.scheduler_config
    return {
        "version": vllm.__version__, "model": args.model, "dtype": args.dtype, "tensor_parallel_size": args.tp,
        "capability": args.capability, "max_model_len": args.max_model_len,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens, "max_num_seqs": scheduler.max_num_seqs,
        "engine": args.engine, "runner": runner_class.__module__, "runner_bytes": before.start_bytes,
        "weights_bytes": weights, "beside_parameters": beside,
        "kept_bytes": kept, "peaks": {name: described(peak) for name, peak in found.items()},
        "unanswered": dict(unanswered),
    }  # fmt: skip


if __name__ == "__main__":
    started = time.monotonic()
    given = arguments()
    sys.path.insert(0, given.vllm)
    set_environment()
    answer = run(given)
    print(json.dumps({**answer, "seconds": round(time.monotonic() - started, 1)}), flush=True)
    os._exit(0)  # finalizers of thousands of fakes have nothing to say
