"""What to change so that less memory is needed: each line is a full estimate of the changed scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.result import Result
from vramwise.scenario import Scenario

MOST = 3
LEAST_SAVING = 0.02  # of the peak; a smaller one is no help


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change, the peak with it, how much lower that is, and what it costs."""

    change: str
    peak_bytes: int
    saved_bytes: int
    cost: str


_TRAINING: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("checkpointing full", {"checkpointing": "full"}, "about 30 % more compute"),
    ("loss fused-linear", {"loss": "fused-linear"}, "needs Liger or cut cross-entropy"),
    ("attention sdpa", {"attention": "sdpa"}, "none"),
    ("attention flash", {"attention": "flash"}, "needs flash-attn"),
    ("optimizer adamw-8bit", {"optimizer": "adamw-8bit"}, "needs bitsandbytes or torchao"),
    ("optimizer_impl fused", {"optimizer_impl": "fused"}, "none"),
    ("method lora", {"method": "lora"}, "adapters train, the model does not"),
    ("method qlora", {"method": "qlora", "quantization": "nf4"}, "adapters on a 4-bit base"),
    ("offload_optimizer cpu", {"offload_optimizer": "cpu"}, "slower steps; host memory"),
    ("zero_stage 3", {"zero_stage": 3}, "weights are gathered module by module"),
    (
        "stage3_max_live_parameters 100,000,000",
        {"stage3_max_live_parameters": 100_000_000, "stage3_max_reuse_distance": 100_000_000},
        "weights are gathered later, and again",
    ),
    ("fsdp full-shard", {"fsdp": "full-shard"}, "weights are gathered layer by layer"),
    ("rollout_sleep", {"rollout_sleep": True}, "the engine wakes up for every generation"),
    ("micro_batch_size 1", {"micro_batch_size": 1}, "fewer tokens a step; accumulate gradients"),
    ("sequence_length halved", {"sequence_length": "half"}, "shorter texts"),
)
_SERVING: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("quantization awq", {"quantization": "awq"}, "a 4-bit checkpoint; some quality"),
    ("quantization fp8", {"quantization": "fp8"}, "needs a card that computes in fp8"),
    ("kv_cache_dtype fp8", {"kv_cache_dtype": "fp8_e4m3"}, "a little quality at long context"),
    ("max_model_len halved", {"max_model_len": "half"}, "shorter requests"),
)
_GENERATION: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("quantization bitsandbytes-nf4", {"quantization": "bitsandbytes-nf4"}, "slower; some quality"),
    ("batch_size 1", {"batch_size": 1}, "one request at a time"),
    ("prompt_tokens halved", {"prompt_tokens": "half"}, "shorter prompts"),
)
_CHEAPER_METHODS = frozenset({("full", "lora"), ("full", "qlora"), ("lora", "qlora")})
_CHANGES = {"train": _TRAINING, "serve": _SERVING, "generate": _GENERATION}


def suggestions(scenario: Scenario, result: Result, estimate: Callable[[Scenario], Result]) -> list[Suggestion]:
    """The changes that save most, best first; at most three. None where only a part of the need is known."""
    if "total_needed" not in result.quantities:
        return []
    peak = needed_bytes(result)
    found = []
    for change, values, cost in _CHANGES.get(scenario.task, ()):
        changed = _changed(scenario, values)
        if changed is None:
            continue
        try:
            smaller = needed_bytes(estimate(changed))
        except VramwiseError:
            continue
        if smaller < peak * (1 - LEAST_SAVING):
            found.append(Suggestion(change, smaller, peak - smaller, cost))
    return sorted(_without_needless_package(found), key=lambda item: item.peak_bytes)[:MOST]


def _without_needless_package(found: list[Suggestion]) -> list[Suggestion]:
    """Flash attention only where SDPA, which needs no package, saves less: it gets masks, for padding above all."""
    sdpa = min((one.peak_bytes for one in found if one.change == "attention sdpa"), default=None)
    return [
        one for one in found
        if one.change != "attention flash" or sdpa is None or one.peak_bytes < sdpa * (1 - LEAST_SAVING)
    ]  # fmt: skip


def needed_bytes(result: Result) -> int:
    """The memory that the scenario needs, as its headline says."""
    for name in ("total_needed", "nvidia_smi", "peak_allocated", "weights"):
        if name in result.quantities:
            return int(result.quantities[name].expected)
    return 0


def _changed(scenario: Scenario, values: dict[str, Any]) -> Scenario | None:
    """The scenario with other values, or None where nothing would change or nothing is set to halve."""
    settings = scenario.settings
    changes: dict[str, Any] = {}
    for key, value in values.items():
        present = getattr(settings, key)
        if value == "half":
            if not isinstance(present, int) or present < 2:
                return None
            value = present // 2
        if present == value:
            return None
        changes[key] = value
    method = settings_method(settings)
    if "method" in changes and (method, changes["method"]) not in _CHEAPER_METHODS:
        return None
    train = scenario.train
    if changes.get("attention") == "flash" and train.precision == "fp32":
        return None  # the kernel computes in 16 bits
    if "rollout_sleep" in changes and train.rollout_gpu_memory_utilization is None:
        return None
    if "zero_stage" in changes and train.zero_stage not in (1, 2):
        return None
    if "stage3_max_live_parameters" in changes and train.zero_stage != 3:
        return None
    if "fsdp" in changes and (scenario.num_gpus == 1 or train.zero_stage or train.tensor_parallel_size > 1):
        return None
    return scenario.replace(**{scenario.task: settings.replace(**changes)})


def settings_method(settings: Any) -> str:
    return str(getattr(settings, "method", ""))
