"""Steps replayed on the allocator: against traced steps, published runs, and what the moments say."""

from __future__ import annotations

import json
import math
import pickle
import random
import statistics
from typing import Any

import pytest
from test_traced_moments import model_named, rows

from vramwise import estimate
from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.job import Job, job_of
from vramwise.training.recipe.lengths import record_lengths, usual_length
from vramwise.training.reserved_memory.replay import is_replayed, replay
from vramwise.training.reserved_memory.step_replay import Replayed, StepReplay

GIB = 2**30
WORKSPACE = 2 * 8_519_680


def job(scenario: dict[str, Any]) -> Job:
    named = scenario["model"]
    model = model_named(named) if isinstance(named, str) else describe(named)
    return job_of(Scenario.from_dict(scenario), model, None)


def played(scenario: dict[str, Any]) -> Replayed:
    asked = job(scenario)
    assert is_replayed(asked.train, asked.ranks[0])
    batch, sequence = asked.train.micro_batch_size, asked.local_sequence
    return replay(asked.model, asked.structure, batch, sequence, asked.accumulates, WORKSPACE)


def test_reserved_memory_of_traced_steps() -> None:
    """Every third of 184 steps of real modules, played on another model of the same allocator."""
    pairs = [(played(row["scenario"]), row) for row in rows()[::3]]
    allocated = sorted(abs(found.allocated / row["peak_allocated"] - 1) for found, row in pairs)
    reserved = sorted(abs(found.reserved / row["peak_reserved"] - 1) for found, row in pairs)
    assert allocated[len(pairs) * 9 // 10] < 0.001
    assert statistics.median(reserved) < 0.004
    assert reserved[len(pairs) * 9 // 10] < 0.05


LORA = {"framework": "transformers", "framework_version": "transformers 4.45.2, torch 2.4.1", "optimizer": "adamw",
        "optimizer_impl": "foreach", "checkpointing": "full", "attention": "flash", "sequence_length": 4096,
        "precision": "bf16", "lora_rank": 16, "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
        "lora_dropout": 0.1, "lora_dtype": "fp32"}  # fmt: skip
FUSED_LINEAR = {**LORA, "method": "qlora", "quantization": "nf4-dq", "loss": "fused-linear", "kernels": ["fms"]}
STANDARD = {**LORA, "framework_version": "transformers 4.48.1, torch 2.4.1", "method": "lora", "loss": "standard"}


@pytest.mark.parametrize(
    ("train", "batch", "measured_mib"),
    [(FUSED_LINEAR, 4, 14_172), (STANDARD, 4, 29_572), (STANDARD, 8, 43_230)],
    ids=["fused-linear 4", "standard 4", "standard 8"],
)
def test_process_memory_of_published_runs_on_one_a100(train: dict[str, Any], batch: int, measured_mib: int) -> None:
    """fms-acceleration, Mistral 7B with adapters: nvidia-smi less its first reading."""
    table = {"model": "mistralai/Mistral-7B-v0.1", "task": "train", "gpu": "A100-80GB",
             "train": {**train, "micro_batch_size": batch}}  # fmt: skip
    assert estimate(table).quantities["nvidia_smi"].expected == pytest.approx(measured_mib * 2**20, rel=0.04)


FAST = {"framework_version": "transformers 4.45.2, torch 2.4.1", "checkpointing": "full", "attention": "flash",
        "sequence_length": 4096, "packing": True, "kernels": ["fms"], "optimizer_impl": "foreach"}  # fmt: skip
WHOLE = {**FAST, "method": "full", "precision": "bf16", "grad_dtype": "bf16", "optimizer_state_dtype": "bf16"}


@pytest.mark.parametrize(
    ("loss", "batch", "runs"), [("fused-linear", 8, True), ("fused-linear", 16, True), ("fused", 8, True),
                                ("fused", 16, False)],
)  # fmt: skip
def test_runs_that_went_out_of_memory_in_pieces(loss: str, batch: int, runs: bool) -> None:
    """fms-acceleration, Mistral 7B in full on one A100: tensors of every one of these fit."""
    table = {"model": "mistralai/Mistral-7B-v0.1", "task": "train", "gpu": "A100-80GB",
             "train": {**WHOLE, "loss": loss, "micro_batch_size": batch}}  # fmt: skip
    found = estimate(table)
    assert found.capacity is not None
    assert found.verdict is not None
    assert found.quantities["peak_allocated"].expected < found.capacity.usable_bytes
    assert found.verdict.fits is runs
    assert any("no free piece" in reason for reason in found.verdict.reasons) is not runs
    assert (found.quantities["max_batch"].expected >= batch) is runs


def test_a_nearly_full_card_needs_the_least_room_in_which_the_step_runs() -> None:
    """fms-acceleration, Mistral 7B in full under FSDP: 16 rows went out of memory on two A100 that have all tensors."""
    train = {**WHOLE, "precision": "bf16-mixed", "grad_dtype": "fp32", "optimizer_state_dtype": "fp32",
             "fsdp": "full-shard", "fsdp_version": 1, "loss": "fused-linear", "kernels": ["fms", "liger"],
             "optimizer": "adamw", "micro_batch_size": 16}  # fmt: skip
    table = {"model": "mistralai/Mistral-7B-v0.1", "task": "train", "gpu": "A100-80GB", "num_gpus": 2, "train": train}
    found = estimate(table)
    assert found.capacity is not None
    assert found.verdict is not None
    asked = job(table)
    needed, allocated = found.quantities["total_needed"].expected, found.quantities["peak_allocated"].expected
    outside = found.quantities["nvidia_smi"].expected - found.quantities["peak_reserved"].expected

    def runs(room: float) -> bool:
        sizes = asked.train.micro_batch_size, asked.local_sequence, asked.accumulates, WORKSPACE, int(room)
        return not replay(asked.model, asked.structure, *sizes, placement=asked.ranks[0]).wanted

    assert allocated + outside + GIB < needed < found.capacity.usable_bytes
    assert runs(needed - outside)
    assert not runs(needed - outside - allocated / 32)
    assert found.verdict.probability < 0.8


SANTACODER = {**STANDARD, "sequence_length": 2048, "micro_batch_size": 8, "packing": True}
FULL = {name: value for name, value in SANTACODER.items() if not name.startswith("lora")} | {
    "method": "full", "param_dtype": "bf16", "grad_dtype": "bf16", "optimizer_state_dtype": "bf16",
}  # fmt: skip
QLORA = {**SANTACODER, "method": "qlora", "quantization": "nf4-dq",
         "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj", "c_attn"]}  # fmt: skip


@pytest.mark.parametrize(
    ("train", "allocated", "process_mib"), [(FULL, 15_193_274_880, 18_102), (QLORA, 17_486_716_416, 23_092)]
)
def test_a_cache_that_checkpointing_does_not_turn_off(train: dict[str, Any], allocated: int, process_mib: int) -> None:
    """fms-acceleration, santacoder (GPTBigCode, transformers 4.48): outputs hold every layer's fused product."""
    table = {"model": "bigcode/gpt_bigcode-santacoder", "task": "train", "gpu": "A100-80GB", "train": train}
    found = estimate(table).quantities
    assert found["peak_allocated"].expected == pytest.approx(allocated, rel=0.003)
    assert found["nvidia_smi"].expected == pytest.approx(process_mib * 2**20, rel=0.07)
    on, off = (
        next(phase.bytes for phase in estimate({**table, "train": {**train, "framework_version": v}}).phases
             if phase.name == "loss")
        for v in ("transformers 4.52.4", "transformers 4.53.0")
    )  # fmt: skip
    assert on - off == 24 * 16_384 * (2048 + 256) * (2 if train["method"] == "full" else 4)


SWIFT = {"framework": "ms-swift", "framework_version": "torch 2.1.1", "method": "lora", "precision": "bf16",
         "optimizer": "adamw", "optimizer_impl": "foreach", "checkpointing": "full", "attention": "flash",
         "lora_rank": 8, "lora_targets": ["c_attn"]}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "limit", "batch", "reserved_gib"),
    [("Qwen/Qwen-7B-Chat", 512, 1, 18.01), ("Qwen/Qwen-7B-Chat", 1024, 1, 21.73), ("Qwen/Qwen-7B-Chat", 2048, 1, 27.74),
     ("Qwen/Qwen-7B-Chat", 2048, 4, 63.81), ("Qwen/Qwen-14B-Chat", 2048, 1, 40.14)],
)  # fmt: skip
def test_conversations_of_any_length_up_to_a_limit(model: str, limit: int, batch: int, reserved_gib: float) -> None:
    """ms-swift's Benchmark.md: max_memory_reserved after an epoch of samples not longer than max_length."""
    train = {**SWIFT, "sequence_length": limit, "micro_batch_size": batch}
    table = {"model": model, "task": "train", "gpu": "A100-80GB", "train": train}
    found = estimate(table).quantities["peak_reserved"]
    packed = estimate({**table, "train": {**train, "packing": True}}).quantities["peak_reserved"]
    assert found.expected == pytest.approx(reserved_gib * GIB, rel=0.08)
    assert packed.expected < 0.9 * reserved_gib * GIB
    assert found.low <= packed.expected


def test_lengths_that_a_run_meets_before_the_longest() -> None:
    assert record_lengths(2048, None, 1) == (1024, 1536, 1792, 2048)
    assert record_lengths(1, None, 1) == (1, 1, 1, 1)


def test_records_and_the_usual_row_follow_the_lengths_that_are_stated():
    """Against 80,000 drawn samples: lognormal by mean and spread, rows as long as the longest of their batch."""
    samples, draw = {"mean": 300, "spread": 250, "maximum": 2048}, random.Random(1)
    variance = math.log1p((250 / 300) ** 2)
    lengths = [min(2048, draw.lognormvariate(math.log(300) - variance / 2, variance**0.5)) for _ in range(80_000)]
    for batch in (1, 4):
        longest = sorted(max(lengths[i : i + batch]) for i in range(0, len(lengths), batch))
        assert usual_length(2048, samples, batch) == pytest.approx(sum(longest) / len(longest), rel=0.02)
        halves = [longest[round(len(longest) * (1 - 0.5**k))] for k in (1, 2, 3)]
        assert record_lengths(2048, samples, batch) == (*(pytest.approx(one, rel=0.03) for one in halves), 2048)
    assert usual_length(2048, {"mean": 300, "maximum": 900}, 4) == 300
    assert usual_length(2048, {"mean": 1, "spread": 10**9, "maximum": 2048}, 10**18) == 2048
    assert usual_length(2048, {"fixed": 512}, 4) == usual_length(2048, None, 4) == 2048


@pytest.mark.parametrize(
    "settings",
    [
        {"num_gpus": 2, "train": {"zero_stage": 2}},
        {"num_gpus": 2, "train": {"tensor_parallel_size": 2}},
        {"train": {"extra_models": ["rollout:vllm"]}},
        {"train": {"expandable_segments": True}},
        {"train": {"offload_activations": "cpu"}},
    ],
)
def test_what_moves_tensors_is_not_replayed(settings: dict[str, Any]) -> None:
    train = {"method": "lora", "precision": "bf16", **settings.pop("train", {})}
    asked = job({"model": "Qwen/Qwen2.5-0.5B", "task": "train", "train": train, **settings})
    assert not is_replayed(asked.train, asked.ranks[0])


TORCHTITAN = {"framework": "torchtitan", "fsdp": "full-shard", "fsdp_version": 2, "precision": "bf16-mixed",
              "sequence_length": 4096, "checkpointing": "full", "attention": "sdpa"}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "cut"),
    [
        ("meta-llama/Llama-3.1-8B", {"tensor_parallel_size": 4, "sequence_parallel": True}),
        ("meta-llama/Llama-3.1-8B", {"tensor_parallel_size": 2, "sequence_parallel": True, "checkpointing": "none"}),
        ("deepseek-ai/DeepSeek-V2-Lite", {"expert_parallel_size": 8}),
        ("Qwen/Qwen3-30B-A3B", {"expert_parallel_size": 4, "tensor_parallel_size": 2, "sequence_parallel": True}),
    ],
    ids=["tensors", "tensors, nothing recomputed", "experts", "both"],
)
def test_ranks_of_tensor_and_expert_parallelism_play_what_their_moments_hold(model: str, cut: dict[str, Any]) -> None:
    asked = job({"model": model, "task": "train", "num_gpus": 8, "train": {**TORCHTITAN, **cut, "set_to_none": True}})
    rank = asked.ranks[0]
    assert is_replayed(asked.train, rank)
    batch, sequence = asked.train.micro_batch_size, asked.local_sequence
    found = replay(asked.model, asked.structure, batch, sequence, asked.accumulates, 0, None, (), rank)
    held = max(moment.total for moment in asked.moments(rank))
    assert abs(found.allocated / held - 1) < 0.02
    assert found.allocated < found.reserved < 1.5 * found.allocated


def test_more_ranks_of_tensor_parallelism_reserve_less() -> None:
    def reserved(ranks: int) -> int:
        train = {**TORCHTITAN, "tensor_parallel_size": ranks, "sequence_parallel": True, "micro_batch_size": 4}
        scenario = {"model": "meta-llama/Llama-3.1-8B", "task": "train", "num_gpus": 8, "train": train}
        return int(estimate(scenario).quantities["peak_reserved"].expected)

    assert reserved(2) > reserved(4) > reserved(8)


def test_reserved_memory_is_worked_out_when_it_is_read() -> None:
    table = {"model": "Qwen/Qwen2.5-0.5B", "task": "train", "train": {"method": "lora", "sequence_length": 777}}
    replay.cache_clear()
    found = estimate(table)
    first = ["params", "weights", "peak_allocated", "peak_active", "peak_reserved", "nvidia_smi"]
    assert list(found.quantities)[:6] == first
    assert found.quantities["peak_allocated"].expected > GIB
    assert replay.cache_info().misses == 0
    reserved = found.quantities["peak_reserved"].expected
    assert replay.cache_info().misses == 1
    assert reserved > found.quantities["peak_allocated"].expected
    assert json.loads(found.to_json())["quantities"]["peak_reserved"]["expected"] == reserved
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("batch", [1, 8, 9, 14])
def test_the_largest_batch_is_the_same_whichever_is_asked_for(batch: int) -> None:
    """By its tensors 9 fit; the replay finds no room for the segments of more than 8."""
    train = {"method": "lora", "checkpointing": "full", "micro_batch_size": batch, "sequence_length": 1024}
    result = estimate({"model": "Qwen/Qwen2.5-3B-Instruct", "task": "train", "gpu": "rtx-4090", "train": train})
    assert result.verdict is not None
    assert (result.quantities["max_batch"].expected, result.verdict.fits) == (8, batch <= 8)


SMALL_LLAMA = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
               "num_attention_heads": 8, "vocab_size": 32000}  # fmt: skip


def test_steps_of_one_length_count_once_settled_and_steps_of_several_lengths_each() -> None:
    """A card that was full once gives back what was free: later steps of the same length need less."""
    train = {"optimizer": "adamw", "checkpointing": "none", "precision": "bf16", "sequence_length": 2048,
             "micro_batch_size": 2, "framework": "transformers"}  # fmt: skip
    asked = job({"model": SMALL_LLAMA, "task": "train", "train": train})
    batch = (asked.model, asked.structure, 2, 2048, asked.accumulates, WORKSPACE)
    card = int(replay(*batch).reserved * 0.99)
    settled, every = replay(*batch, card), replay(*batch, card, (2048,) * 3)
    assert settled.wanted == every.wanted == 0
    assert settled.reserved < every.reserved <= card


HINGLISH = {"framework": "transformers", "framework_version": "transformers 4.38, peft and accelerate of March 2024",
            "method": "qlora", "quantization": "fp4", "precision": "fp16-mixed", "param_dtype": "fp16",
            "optimizer": "adamw", "micro_batch_size": 2, "eval_batch_size": 8, "sequence_length": 2048,
            "gradient_accumulation_steps": 2, "checkpointing": "full", "attention": "flash", "loss": "standard",
            "lora_rank": 64, "lora_dropout": 0.0, "lora_dtype": "fp32", "kbit_preparation": True}  # fmt: skip
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


@pytest.mark.parametrize(
    ("model", "targets", "measured_gib"),
    [("meta-llama/Llama-2-7b-hf", ATTENTION, 42.266), ("microsoft/phi-2", ["q_proj", "k_proj", "v_proj", "dense",
                                                                          "fc1", "fc2"], 29.822),
     ("mistralai/Mistral-7B-v0.1", [*ATTENTION, "gate_proj", "up_proj", "down_proj"], 24.719)],
    ids=["Llama 2", "phi 2", "Mistral"],
)  # fmt: skip
def test_reserved_memory_of_runs_that_evaluate_between_steps(
    model: str, targets: list[str], measured_gib: float
) -> None:
    """Peak reserved memory of three published runs, where keys and values of 8 rows break up what steps of 2 left."""
    table = {"model": model, "task": "train", "gpu": "A100-80GB", "train": {**HINGLISH, "lora_targets": targets}}
    assert estimate(table).quantities["peak_reserved"].expected == pytest.approx(measured_gib * GIB, rel=0.03)


def test_an_evaluation_leaves_nothing_behind_and_needs_what_its_moment_says() -> None:
    table = {
        "model": "Qwen/Qwen2.5-0.5B",
        "task": "train",
        "train": {
            **STANDARD,
            "lora_targets": "all-linear",
            "micro_batch_size": 1,
            "sequence_length": 512,
            "eval_batch_size": 16,
        },
    }
    asked = job(table)
    sizes = asked.train.micro_batch_size, asked.local_sequence, asked.accumulates, WORKSPACE, None, ()
    steps = StepReplay(asked.model, asked.structure, *sizes, asked.ranks[0])
    steps._load()
    steps._step(is_first=True)
    before, steps.memory.peak_allocated = steps.memory.allocated, 0
    steps._evaluate()
    assert steps.memory.allocated == before
    largest = estimate(table).quantities["peak_allocated"].expected
    assert steps.memory.peak_allocated == pytest.approx(largest, rel=0.01)
