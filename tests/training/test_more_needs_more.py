"""More sequences, tokens, ranks of adapters or layers never need less memory."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from by_turns import is_thorough
from vramwise import estimate
from vramwise.errors import VramwiseError

WIDE = {"hidden_size": 256, "num_attention_heads": 8, "intermediate_size": 512, "vocab_size": 4000}
KV = {**WIDE, "num_key_value_heads": 2, "max_position_embeddings": 4096}
MODELS: tuple[dict[str, Any], ...] = (
    {"model_type": "llama", **KV},
    {"model_type": "llama", **KV, "tie_word_embeddings": True, "attention_bias": True},
    {"model_type": "qwen2", **KV, "use_sliding_window": False},
    {"model_type": "gemma2", **KV, "head_dim": 32, "sliding_window": 64},
    {"model_type": "bert", **WIDE},
    {"model_type": "gpt2", "n_embd": 256, "n_head": 8, "vocab_size": 4000, "n_positions": 4096},
    {"model_type": "mixtral", **KV, "num_local_experts": 4, "num_experts_per_tok": 2},
)
LAYERS = {"gpt2": "n_layer"}
TRAIN = {
    "method": st.sampled_from(["full", "lora", "qlora"]),
    "precision": st.sampled_from(["bf16-mixed", "fp16-mixed", "bf16", "fp32"]),
    "optimizer": st.sampled_from(["adamw", "adamw-8bit", "lion-8bit", "adafactor", "sgd", "muon"]),
    "gradient_accumulation_steps": st.sampled_from([1, 4]),
    "checkpointing": st.sampled_from(["none", "full", "selective"]),
    "attention": st.sampled_from(["sdpa", "eager", "flash"]),
    "loss": st.sampled_from(["standard", "fused", "chunked", "fused-linear"]),
    "framework": st.sampled_from(
        ["transformers", "pytorch", "llamafactory", "unsloth", "torchtune", "torchtitan", "megatron", "deepspeed"]
    ),
    "packing": st.booleans(),
}
LAYOUTS: tuple[dict[str, Any], ...] = (
    {}, {}, {"fsdp": "full-shard"}, {"fsdp": "full-shard", "fsdp_version": 1}, {"zero_stage": 2}, {"zero_stage": 3},
    {"pipeline_parallel_size": 2}, {"tensor_parallel_size": 2},
)  # fmt: skip
SIZES = {
    "micro_batch_size": st.integers(1, 40),
    "sequence_length": st.integers(1, 1200),
    "lora_rank": st.integers(1, 300),
    "layers": st.integers(2, 9),
}


def need(model: dict[str, Any], train: dict[str, Any], layers: int) -> int:
    config = {**model, LAYERS.get(model["model_type"], "num_hidden_layers"): layers}
    return int(
        estimate({"model": config, "task": "train", "num_gpus": 4, "train": train}).quantities["total_needed"].expected
    )


@given(
    model=st.sampled_from(MODELS),
    layout=st.sampled_from(LAYOUTS),
    train=st.fixed_dictionaries(TRAIN),
    sizes=st.fixed_dictionaries(SIZES),
    key=st.sampled_from(sorted(SIZES)),
    more=st.integers(1, 500),
)
@settings(max_examples=150 if is_thorough() else 60, deadline=None)
def test_more_needs_more(
    model: dict[str, Any], layout: dict[str, Any], train: dict[str, Any], sizes: dict[str, int], key: str, more: int
) -> None:
    """Without a card: on one, a step whose segments find no room needs what stopped it."""
    if train["method"] == "full":
        sizes = {name: size for name, size in sizes.items() if name != "lora_rank"}
        key = key if key in sizes else "micro_batch_size"
    larger = {**sizes, key: sizes[key] + (1 + more % 4 if key == "layers" else more)}

    def asked(given: dict[str, int]) -> int:
        of_train = {name: size for name, size in given.items() if name != "layers"}
        return need(model, {**train, **layout, **of_train}, given["layers"])

    with suppress(VramwiseError):
        assert asked(sizes) <= asked(larger)
