"""What the harness runs; anything else is refused in one sentence before a process starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vramwise.errors import UsageError
from vramwise.frameworks import framework_named
from vramwise.measure.libraries import need
from vramwise.scenario.names import FRAMEWORKS

TASKS: Final = ("train", "generate", "load")
METHODS: Final = ("full", "lora", "qlora", "freeze")
PRECISIONS: Final = ("bf16-mixed", "bf16", "fp16-mixed", "fp16", "fp32")
OPTIMIZERS: Final = (
    "adamw", "sgd", "sgd-momentum", "adafactor", "adamw-8bit", "paged-adamw", "paged-adamw-8bit", "lion", "lion-8bit",
    "none",
)  # fmt: skip
WITH_BITSANDBYTES: Final = frozenset({"adamw-8bit", "paged-adamw", "paged-adamw-8bit", "lion", "lion-8bit"})
QUANTIZATION: Final = ("nf4", "nf4-dq", "fp4")
_ALONE: Final[dict[str, tuple[object, ...]]] = {
    "loss": ("standard",),
    "checkpointing": ("none", "full"),
    "offload_optimizer": ("none",),
    "offload_params": ("none",),
    "offload_activations": ("none",),
    "pipeline_parallel_size": (1,),
    "context_parallel_size": (1,),
    "expert_parallel_size": (1,),
    "zero_stage": (0,),
    "fsdp": ("none", "full-shard"),
    "fsdp_version": (2,),
    "head": ("causal-lm", "masked-lm", "sequence-classification"),
    "kernels": ((), []),
    "extra_models": ((), []),
    "images_per_sequence": (0,),
}


def refuse_what_cannot_run(scenario: Mapping[str, Any], device: str, command: str = "measure") -> None:
    """Raises UsageError that names the key and what it may be, MissingLibraryError for a library that is not here.

    `command`: what the message calls who asks.
    """
    task = scenario.get("task")
    if task not in TASKS:
        raise UsageError(
            f"{command} runs --task {', '.join(TASKS)}, not {task}: an engine's own log tells what it takes"
        )
    table = scenario.get("train" if task == "train" else str(task)) or {}
    if task == "train":
        _choice(table, "framework", tuple(name for name in FRAMEWORKS if framework_named(name).measured), command)
        _choice(table, "method", METHODS, command)
        _choice(table, "precision", PRECISIONS, command)
        _choice(table, "optimizer", OPTIMIZERS, command)
        for key, allowed in _ALONE.items():
            _choice(table, key, allowed, command)
        if table.get("method") == "qlora":
            _choice(table, "quantization", QUANTIZATION, command)
        if table.get("tensor_parallel_size", 1) > 1:
            _choice(table, "method", ("full",), command)
    if task == "generate" and (table.get("quantization") or table.get("num_beams", 1) != 1):
        raise UsageError(f"{command} runs generate without quantization and with one beam")
    if device == "cpu" and (table.get("quantization") or table.get("optimizer") in WITH_BITSANDBYTES):
        raise UsageError("bitsandbytes needs a GPU: leave out quantization and 8-bit optimizers with --device cpu")
    if table.get("quantization") or table.get("optimizer") in WITH_BITSANDBYTES:
        need("bitsandbytes")
    if table.get("method") in ("lora", "qlora"):
        need("peft")
    if device == "cpu" and table.get("precision", "").startswith("fp16"):
        raise UsageError("--device cpu computes in bf16 or fp32: give --precision bf16, bf16-mixed or fp32")


def _choice(table: Mapping[str, object], key: str, allowed: tuple[object, ...], command: str) -> None:
    value = table.get(key, allowed[0])
    if value not in allowed:
        names = ", ".join(str(item) for item in allowed if item != [])
        raise UsageError(f"--{key.replace('_', '-')} {value} is not something that {command} runs: expected {names}")
