"""Tables of cosines and sines that old classes register in every layer, against the classes themselves.

Recorded from transformers 4.37.2 and 4.44.2 with torch 2.13 (CPU): `sum(b.nbytes for n, b in named_buffers() if
"cached" in n)` of `AutoModelForCausalLM.from_config`, default dtype bf16, two layers of hidden size 64 with four
heads, 1,000 positions.
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import Job, job_of
from vramwise.training.layout.parallel import ALONE
from vramwise.training.model_states.states import rotary_table_bytes

TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128,
    "num_key_value_heads": 2, "max_position_embeddings": 1000, "num_local_experts": 2, "num_experts": 2,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "tie_word_embeddings": False,
}  # fmt: skip
WHOLE, HALF, QUARTER = (2 * 2 * 1000 * columns * 2 for columns in (16, 8, 4))  # layers, cos and sin, rows, bytes
RECORDED = {
    "4.37.2": {
        "llama": WHOLE, "mistral": WHOLE, "mixtral": WHOLE, "qwen2": WHOLE, "falcon": WHOLE, "phi": HALF,
        "gpt_neox": 2 * QUARTER, "persimmon": HALF,
    },
    "4.44.2": {
        "llama": 0, "mistral": 0, "mixtral": WHOLE, "qwen2": WHOLE, "qwen2_moe": WHOLE, "falcon": WHOLE, "phi": HALF,
        "gpt_neox": 2 * QUARTER, "stablelm": QUARTER, "starcoder2": WHOLE, "persimmon": HALF, "olmo": 0,
    },
    "4.48.3": {"mixtral": 0, "qwen2": 0, "gpt_neox": 0},
}  # fmt: skip


def job(model_type: str, **train: Any) -> Job:
    given = {"method": "full", "precision": "bf16", "micro_batch_size": 1, "sequence_length": 64, **train}
    model = describe({"model_type": model_type, **TINY})
    return job_of(Scenario.from_dict({"model": "tiny", "task": "train", "train": given}), model, None)


def held(model_type: str, **train: Any) -> int:
    one = job(model_type, **train)
    return sum(rotary_table_bytes(one.model, one.train, ALONE))


@pytest.mark.parametrize(("version", "kind"), [(v, kind) for v, kinds in RECORDED.items() for kind in kinds])
def test_tables_are_those_of_the_class(version: str, kind: str) -> None:
    assert held(kind, framework_version=f"transformers {version}") == RECORDED[version][kind]


def test_tables_are_in_what_weights_are_loaded_in() -> None:
    old = {"framework_version": "transformers 4.37.2, torch 2.1"}
    assert held("mistral", precision="bf16-mixed", **old) == 2 * WHOLE
    assert held("mistral", precision="bf16-mixed", fsdp="full-shard", **old) == WHOLE
    assert held("mistral", precision="bf16-mixed", method="qlora", **old) == WHOLE
    assert held("llama", framework_version="transformers 4.30.2") == 2 * WHOLE


def test_other_classes_and_newer_ones_hold_none() -> None:
    assert held("mistral") == 0
    assert held("mistral", framework="litgpt", framework_version="0.5.0") == 0
    assert held("mistral", framework="unsloth", framework_version="2024.2") == 0


def test_tables_count_among_buffers_in_every_moment() -> None:
    old, new = (job("mistral", framework_version=f"transformers {v}, torch 2.3") for v in ("4.41.2", "4.42.4"))
    assert old.states(ALONE).buffers - new.states(ALONE).buffers == 4 * 32_256


@pytest.mark.parametrize(
    ("model_type", "positions", "method", "columns", "tables"),
    [
        ("qwen2", 131_072, "lora", 2 * 16, 2), ("qwen2", 1000, "full", 2 * 16, 1), ("phi3", 1000, "qlora", 2 * 16, 2),
        ("mistral", 32_768, "lora", 16, 2), ("llama", 8192, "lora", 16, 2), ("llama", 16_384, "lora", 16, 2),
        ("llama", 131_072, "lora", 16, 1), ("qwen3", 1000, "lora", 0, 0),
    ],
)  # fmt: skip
def test_torchtunes_tables(model_type: str, positions: int, method: str, columns: int, tables: int) -> None:
    """torchtune 0.6.1: `rope.cache.numel()` of its builders with 16 columns a head, in fp32; Llama's by positions."""
    given = {"framework": "torchtune", "method": method, "precision": "bf16", "micro_batch_size": 1}
    model = describe({"model_type": model_type, **TINY, "max_position_embeddings": positions})
    train = {**given, "sequence_length": 64}
    one = job_of(Scenario.from_dict({"model": "tiny", "task": "train", "train": train}), model, None)
    assert sum(rotary_table_bytes(one.model, one.train, ALONE)) == tables * positions * columns * 4


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"])
def test_torchtunes_adapted_llama_31_has_one_table_whether_its_config_states_a_scaling_or_not(name: str) -> None:
    train = {"framework": "torchtune", "method": "lora", "sequence_length": 64}
    scenario = Scenario.from_dict({"model": name, "task": "train", "train": train})
    one = job_of(scenario, describe(resolve(name).config, name), None)
    assert rotary_table_bytes(one.model, one.train, ALONE) == [131_072 * 128 * 4]
