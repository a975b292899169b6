"""How many configurations a core works out a second: python benchmarks/grid.py [--side 512]

Structures of training are models with methods, checkpointing, attention and layouts; each is taken with every
micro-batch and sequence length of a square of `--side`. Those of serving are models with versions of vLLM, dtypes of
the cache, batches and ranks, each with as many lengths from 256 tokens on. Recording the structures is part of the
time. Printed: configurations, CPU seconds and their ratio, and the time of a map of 16 × 16 on lists and by one
estimate for each cell.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import time
from collections.abc import Callable, Iterator

import numpy

from vramwise.estimation import estimate, needs_of_lengths, needs_together
from vramwise.planner.changes import changed
from vramwise.points import run as points
from vramwise.points.columns import Lists
from vramwise.points.needs import ManyNeeds
from vramwise.scenario import Scenario

MODELS = (
    "qwen3-0.6b", "qwen3-8b", "llama-3.1-8b", "llama-3.2-1b", "qwen2.5-7b", "mistral-7b-v0.3", "phi-2", "qwen3-30b-a3b",
)  # fmt: skip
WAYS = (
    {"method": "full"},
    {"method": "full", "optimizer": "adamw-8bit", "precision": "bf16"},
    {"method": "lora"},
    {"method": "lora", "lora_rank": 64},
    {"method": "qlora"},
    {"fsdp": "full-shard"},
    {"zero_stage": 2},
    {"zero_stage": 3, "offload_optimizer": "cpu"},
)
KINDS = ({"checkpointing": "none"}, {"checkpointing": "full"})
ATTENTION = ({"attention": "sdpa"}, {"attention": "flash"})


def structures() -> Iterator[Scenario]:
    """256 scenarios that record or share their operations otherwise."""
    for model, way, kind, attention in itertools.product(MODELS, WAYS, KINDS, ATTENTION):
        cards = 8 if "fsdp" in way or "zero_stage" in way else 1
        train = {**way, **kind, **attention}
        yield Scenario.from_dict({"model": model, "task": "train", "gpu": "h100", "num_gpus": cards, "train": train})


def servers() -> Iterator[Scenario]:
    """240 scenarios whose servers start otherwise."""
    settings = itertools.product(
        MODELS[:-1], ("0.11.2", "0.25.0", "0.33.0"), ("auto", "fp8_e4m3"), (64, 256), (1, 2, 4),
    )  # fmt: skip
    for model, version, cache, seqs, ranks in settings:
        serve = {
            "engine": "vllm", "engine_version": version, "kv_cache_dtype": cache, "max_num_seqs": seqs,
            "tensor_parallel_size": ranks,
        }  # fmt: skip
        yield Scenario.from_dict({"model": model, "task": "serve", "gpu": "h100", "num_gpus": ranks, "serve": serve})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=512)
    side = parser.parse_args().side
    gc.set_threshold(200_000, 50, 1_000)
    lengths = numpy.arange(256, side * side + 256)
    _timed("serving", servers(), lambda scenario: needs_of_lengths(scenario, lengths))
    batches, tokens = numpy.repeat(numpy.arange(1, side + 1), side), numpy.tile(numpy.arange(1, side + 1) * 64, side)
    _timed("training", structures(), lambda scenario: needs_together(scenario, batches, tokens))
    _map()


def _timed(task: str, scenarios: Iterator[Scenario], answer: Callable[[Scenario], ManyNeeds | None]) -> None:
    done = many = 0
    began = time.process_time()
    for scenario in scenarios:
        found = answer(scenario)
        assert found is not None
        done, many = done + len(found.needed_bytes), many + 1
    used = time.process_time() - began
    print(f"{task:<9} {many} structures: {done:,} configurations in {used:.1f} s, {done / used:,.0f} a second")


def _map() -> None:
    """A map of 16 × 16, as a page without NumPy draws it."""
    scenario = Scenario.from_dict(
        {"model": "llama-3.1-8b", "task": "train", "gpu": "h100", "train": {"method": "lora"}}
    )
    cells = list(itertools.product(range(1, 17), range(256, 4097, 256)))
    points.columns_for = lambda count: Lists()
    began = time.process_time()
    needs_together(scenario, [b for b, _ in cells], [s for _, s in cells], ends=True)
    together = time.process_time() - began
    began = time.process_time()
    for batch, length in cells:
        estimate(changed(scenario, {"micro_batch_size": batch, "sequence_length": length}), replays=False)
    alone = time.process_time() - began
    print(f"a map of 16 × 16 without NumPy: {together:.2f} s, by an estimate for each: {alone:.2f} s")


if __name__ == "__main__":
    main()
