"""The block that transformers allocates before it loads a quantized model, and what stays of it."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.allocator import CachingAllocator
from vramwise.scenario import Scenario
from vramwise.training.job import Job, job_of
from vramwise.training.reserved_memory.loading import Card, load, most_reserved_by_loading, warm_up_bytes
from vramwise.training.reserved_memory.replay import replay_in_order
from vramwise.training.reserved_memory.step_replay import StepReplay
from vramwise.training.reserved_memory.traces import Memory
from vramwise.units import GIB, MIB

EMBEDDING = 32_000 * 1024
LINEAR = 2 * (4 * 1024 * 1024 + 3 * 1024 * 2816)
NORMS = 5 * 1024
LLAMA = {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2,
         "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32_000}  # fmt: skip
QLORA = {"framework": "transformers", "method": "qlora", "quantization": "nf4-dq", "precision": "bf16-mixed",
         "param_dtype": "bf16", "lora_rank": 8, "sequence_length": 128}  # fmt: skip


def job(version: str, *, tied: bool = False, gpus: int = 1, **train: Any) -> Job:
    settings = {**QLORA, "framework_version": version, **train}
    model = describe({**LLAMA, "tie_word_embeddings": tied})
    scenario = {"model": {**LLAMA, "tie_word_embeddings": tied}, "num_gpus": gpus, "task": "train", "train": settings}
    return job_of(Scenario.from_dict(scenario), model, None)


def block(version: str, card: Card | None = None, **settings: Any) -> int:
    asked = job(version, **settings)
    return warm_up_bytes(asked.model, asked.structure, asked.ranks[0], card)


HALF_WITH_HEAD = 2 * EMBEDDING + LINEAR + NORMS
HALF_WITHOUT = EMBEDDING + LINEAR + NORMS


@pytest.mark.parametrize(
    ("version", "own_head", "tied"),
    [
        ("transformers 4.49.0", 0, 0),
        ("transformers 4.50.3", 0, 0),
        ("transformers 4.51.3", HALF_WITH_HEAD, HALF_WITH_HEAD),
        ("transformers 4.53.3", HALF_WITH_HEAD, HALF_WITH_HEAD),
        ("transformers 4.54.1", HALF_WITHOUT, HALF_WITHOUT),
        ("transformers 4.57.6", HALF_WITHOUT, HALF_WITHOUT),
        ("transformers 5.0.0", LINEAR // 2 + 2 * (2 * EMBEDDING + NORMS), LINEAR // 2 + 2 * (EMBEDDING + NORMS)),
        ("transformers 5.24.0", LINEAR // 2 + 2 * (2 * EMBEDDING + NORMS), LINEAR // 2 + 2 * (EMBEDDING + NORMS)),
    ],
)
def test_the_block_by_version(version: str, own_head: int, tied: int) -> None:
    """caching_allocator_warmup in the wheels of each version, worked out by hand for a model of 91 million values."""
    assert block(version) == own_head
    assert block(version, tied=True) == tied


def test_eight_bits() -> None:
    assert block("transformers 4.57.6", quantization="int8") == HALF_WITHOUT
    assert block("transformers 5.24.0", quantization="int8") == LINEAR + 2 * (2 * EMBEDDING + NORMS)


def test_a_card_that_is_nearly_full() -> None:
    """A share of what is free, then what is free but for 1.2 GiB, then the card but for 1.2 GiB."""
    card = Card(total=int(1.3 * GIB), free=int(1.25 * GIB))
    free, total = int(1.25 * GIB) - int(1.2 * GIB), int(1.3 * GIB) - int(1.2 * GIB)
    assert block("transformers 4.51.3", Card(total=10**9, free=10**8)) == 95_000_000 // 4 * 2
    assert block("transformers 4.53.3", card) == free // 4 * 2
    assert block("transformers 4.57.6", card) == free // 4 * 2
    assert block("transformers 5.1.0", card) == free // 2 * 2
    assert block("transformers 5.24.0", card) == total // 2 * 2
    assert block("transformers 4.57.6", Card(total=10**9, free=10**8)) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"framework": "torchtune", "version": "torchtune 0.6.1"},
        {"quantization": "gptq-int4"},
        {"gpus": 2, "fsdp": "full-shard"},
        {"gpus": 2, "zero_stage": 3},
        {"method": "lora", "quantization": None},
    ],
    ids=["classes of its own", "another quantizer", "FSDP", "ZeRO-3", "nothing quantized"],
)
def test_loads_that_have_none_or_none_that_is_counted(settings: dict[str, Any]) -> None:
    assert block(settings.pop("version", "transformers 4.57.6"), **settings) == 0


def test_axolotl_switches_it_off_where_it_quantizes_experts() -> None:
    axolotl = {"framework": "axolotl"}
    assert block("axolotl 0.13.0, transformers 4.57.6", **axolotl) == HALF_WITHOUT
    assert block("axolotl 0.13.0, transformers 4.57.6", quantize_experts=True, **axolotl) == 0


def test_weights_are_cut_out_of_the_block() -> None:
    """By hand: 62.5 MiB of embedding do not fit into the block of 56, nor does the head; linear weights, whole and in
    4 bits, do, but for those of 512 KiB, which with their scales and the norms need three segments of small blocks.
    Rank-8 adapters bring 2.75 MiB of which nothing is above 1 MiB: another two."""
    asked = job("transformers 4.57.6", tied=False, lora_dtype="fp32", lora_targets="all-linear")
    warm_up = warm_up_bytes(asked.model, asked.structure, asked.ranks[0], None)
    memory = Memory()
    load(memory, asked.model, asked.structure, asked.ranks[0], warm_up)
    large = 56 * MIB + 2 * 64 * MIB
    assert memory.reserved - large in (3 * 2 * MIB, 4 * 2 * MIB)
    assert most_reserved_by_loading(asked.model, asked.structure, asked.ranks[0], warm_up, None) == memory.peak_reserved


def test_counters_that_begin_anew_know_what_is_left_of_loading() -> None:
    """What preparation copied is gone by then; without growing segments the block's stays."""
    settings = {"framework": "axolotl", "kbit_preparation": True}
    asked = job("axolotl 0.13.0, transformers 4.57.6", expandable_segments=False, **settings)
    warm_up = warm_up_bytes(asked.model, asked.structure, asked.ranks[0], None)
    memory = Memory()
    load(memory, asked.model, asked.structure, asked.ranks[0], warm_up)
    found = most_reserved_by_loading(asked.model, asked.structure, asked.ranks[0], warm_up, None)
    assert found == memory.reserved < memory.peak_reserved
    growing = job("axolotl 0.13.0, transformers 4.57.6", expandable_segments=True, **settings)
    assert most_reserved_by_loading(growing.model, growing.structure, growing.ranks[0], warm_up, None) == 0


def test_a_card_with_no_room_for_the_weights_says_nothing() -> None:
    asked = job("transformers 4.57.6")
    assert most_reserved_by_loading(asked.model, asked.structure, asked.ranks[0], 60 * MIB, 100 * MIB) == 0


@pytest.mark.parametrize("kbit_preparation", [False, True])
def test_a_recorded_load_is_the_load(*, kbit_preparation: bool) -> None:
    """Step after step the recording reserves what the allocator does, the emptied cache included."""
    asked = job("transformers 4.57.6", kbit_preparation=kbit_preparation)
    rank = asked.ranks[0]
    warm_up = warm_up_bytes(asked.model, asked.structure, rank, None)
    sizes = 1, 128, False, 8 * MIB, None
    by_blocks = StepReplay(asked.model, asked.structure, *sizes, (), rank, warm_up=warm_up).run()
    assert replay_in_order(asked.model, asked.structure, *sizes, rank, warm_up) == by_blocks
    assert replay_in_order(asked.model, asked.structure, *sizes, rank).reserved != by_blocks.reserved


def test_emptying_the_cache_keeps_the_segment_that_weights_lie_in() -> None:
    memory = CachingAllocator()
    memory.free(memory.take(100 * MIB))
    weight = memory.take(30 * MIB)
    memory.empty_cache()
    assert memory.reserved == 100 * MIB
    memory.free(weight)
    memory.empty_cache()
    assert memory.reserved == 0


@pytest.mark.parametrize(
    ("version", "settings", "prepared"),
    [
        ("trl 0.24.0, transformers 4.57.1", {}, True),
        ("trl 0.12.2, transformers 4.46.3", {}, True),
        ("trl 0.25.1, transformers 4.57.1", {}, False),
        ("trl 1.16.0", {}, False),
        ("transformers 4.57.1", {}, False),
        ("trl 0.24.0, transformers 4.57.1", {"kbit_preparation": False}, False),
        ("trl 0.24.0, transformers 4.57.1", {"gpus": 2, "fsdp": "full-shard"}, False),
        ("trl 0.24.0, transformers 4.57.1", {"gpus": 2, "zero_stage": 3}, False),
    ],
)
def test_trl_prepares_a_quantized_model_before_0_25(version: str, settings: dict[str, Any], prepared: bool) -> None:
    assert job(version, **settings).train.kbit_preparation is prepared
