"""Scenarios that the benchmarks of the library ask for: the measured cases, and variations of a few models."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CASES = Path(__file__).with_name("cases")
MODELS = (
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-2-7b-hf",
    "Qwen/Qwen3-8B",
    "google/gemma-2-9b",
    "mistralai/Mixtral-8x7B-v0.1",
    "deepseek-ai/DeepSeek-V3",
    "gpt2",
    "mistralai/Mistral-7B-v0.1",
)
GPUS = ("h100-sxm-80gb", "rtx-4090", "a100-sxm-80gb", None)
TASKS = ("load", "serve", "generate", "train")

Scenario = dict[str, Any]


def measured() -> list[Scenario]:
    """The scenario of every measured case."""
    return [
        json.loads(line)["scenario"]
        for path in sorted(CASES.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def variations(task: str, models: tuple[str, ...] = MODELS) -> Iterator[Scenario]:
    """Endless scenarios of one task: every model in turn, no two settings alike for a long while."""
    for turn in itertools.count():
        gpu = GPUS[turn % len(GPUS)]
        for model in models:
            scenario: Scenario = {"model": model, "task": task, **_SETTINGS[task](turn)}
            yield scenario if gpu is None else {**scenario, "gpu": gpu}


def _load(turn: int) -> Scenario:
    return {"serve": {"dtype": ("bf16", "fp16", "fp32")[turn % 3], "tensor_parallel_size": 1}}


def _serve(turn: int) -> Scenario:
    return {
        "serve": {
            "engine": "vllm",
            "max_model_len": 1024 + 16 * turn,
            "max_num_seqs": 32 + turn % 64,
            "gpu_memory_utilization": 0.9,
        }
    }


def _generate(turn: int) -> Scenario:
    return {"generate": {"batch_size": 1 + turn % 7, "prompt_tokens": 128 + 8 * turn, "new_tokens": 256}}


def _train(turn: int) -> Scenario:
    methods: tuple[Scenario, ...] = (
        {"method": "full", "precision": "bf16-mixed", "checkpointing": "full"},
        {"method": "lora", "lora_rank": 8 + turn % 5, "precision": "bf16"},
        {"method": "qlora", "quantization": "nf4", "lora_rank": 16, "checkpointing": "full"},
    )
    sizes = {"micro_batch_size": 1 + turn % 4, "sequence_length": 512 + 64 * turn}
    return {"train": {**methods[turn % len(methods)], **sizes}}


_SETTINGS = {"load": _load, "serve": _serve, "generate": _generate, "train": _train}
