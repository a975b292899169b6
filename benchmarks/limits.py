"""How long the longest sequence and the largest micro-batch take: python benchmarks/limits.py

Steps that are recorded once stand beside steps that are replayed block by block, each in a new process.

CPU seconds of one whole estimate (importing not among them), the replays in it, and how many times faster it is.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import processes

from vramwise import estimate
from vramwise.training.reserved_memory import replay

SCENARIOS: dict[str, dict[str, Any]] = {
    "Qwen3 8B, LoRA": {"model": "Qwen/Qwen3-8B", "train": {"method": "lora", "checkpointing": "full"}},
    "Gemma 4 E4B, LoRA": {"model": "google/gemma-4-E4B-it", "train": {"method": "lora"}},
    "Gemma 4 E4B, LoRA, checkpointing": {
        "model": "google/gemma-4-E4B-it", "train": {"method": "lora", "checkpointing": "full"},
    },
    "DeepSeek V4 Flash, LoRA, 16 cards": {
        "model": "deepseek-ai/DeepSeek-V4-Flash", "num_gpus": 16,
        "train": {"fsdp": "full-shard", "method": "lora", "checkpointing": "full"},
    },
}  # fmt: skip


def spent(scenario: dict[str, Any], *, recorded: bool) -> tuple[float, int, list[float]]:
    """CPU seconds of a scenario's first answer, its replays, and both limits."""
    if not recorded:
        replay.has_one_order = lambda train: False  # type: ignore[assignment]
    began = time.process_time()
    found = estimate({"task": "train", "gpu": "h100", **scenario}).quantities
    limits = [float(found[name].expected) for name in ("max_batch", "max_seq")]
    found["nvidia_smi"]
    return time.process_time() - began, replay.replay.cache_info().misses, limits


def main() -> None:
    """Measure and print."""
    print(processes.machine())
    print(f"{'':<36}{'replays':>8}{'block by block':>16}{'recorded':>11}{'ratio':>8}")
    for name, scenario in SCENARIOS.items():
        found = []
        for recorded in (False, True):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                found.append(fresh.submit(spent, scenario, recorded=recorded).result())
        (before, replays, limits), (after, *_, same) = found
        assert limits == same, name
        print(f"{name:<36}{replays:>8}{before:>14.2f} s{after:>9.2f} s{before / after:>6.1f} ×")


if __name__ == "__main__":
    main()
