"""Weights of a rank against printed logs: engines print what PyTorch's allocator holds after loading."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.models import Model, describe
from vramwise.models.allocator import block_bytes
from vramwise.models.parallel_cut import ParallelCut
from vramwise.serving.common.storage import storage_of
from vramwise.serving.common.weights import Layout, Stages, rope_cache_bytes, stage_weights
from vramwise.sources import resolve
from vramwise.units import GIB, MIB

LLAMA_3_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def load(config: object, **serve: object) -> int:
    table = {"engine": "vllm", **serve}
    result = estimate({"model": config, "task": "load", "serve": table})
    return int(result.quantities["weights"].expected)


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        ({}, 14.9595),  # vLLM log "Loading model weights took 14.9595 GB", Llama-3-8B
        ({"max_position_embeddings": 131072}, 14.9888),  # Llama-3.1-8B
    ],
)
def test_llama_8b_agrees_with_vllm_to_the_last_digit(change: dict[str, object], printed: float) -> None:
    assert round(load({**LLAMA_3_8B, **change}) / GIB, 4) == printed


def test_qwen_7b_needs_the_allocators_rounding() -> None:
    """vLLM prints 14.25 (32,768 positions) and, for the distilled R1 with 131,072, 14.2717."""
    config = {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert round(load(config) / GIB, 2) == 14.27
    assert round(load({**config, "max_position_embeddings": 32768}) / GIB, 2) == 14.25


def model(**change: object) -> Model:
    return describe({**LLAMA_3_8B, **change})


def test_tensor_parallelism_pads_the_vocabulary_and_copies_key_value_heads() -> None:
    small = model(vocab_size=1000, num_hidden_layers=1, num_key_value_heads=2)
    storage = storage_of(small, "auto", None, None)
    whole = dict(stage_weights(small, storage, Layout(ParallelCut(vocab_multiple=64)))[0].by_part)
    assert whole["embedding"] == 1024 * 4096 * 2
    eight = dict(stage_weights(small, storage, Layout(ParallelCut(8, vocab_multiple=64)))[0].by_part)
    assert eight["embedding"] == 128 * 4096 * 2
    assert eight["norm"] == whole["norm"]
    one_head, query_and_output = 128 * 4096 * 2, 2 * 512 * 4096 * 2
    assert eight["attention"] == query_and_output + 2 * one_head
    assert eight["mlp"] * 8 == whole["mlp"]


def test_pipeline_stages_share_out_layers_and_hold_both_ends() -> None:
    assert Stages(4).spans(10) == ((0, 2), (2, 5), (5, 8), (8, 10))
    small = model(num_hidden_layers=4)
    storage = storage_of(small, "auto", None, None)
    first, last = stage_weights(small, storage, Layout(stages=Stages(2)))
    assert "embedding" in dict(first.by_part)
    assert "head" in dict(last.by_part)
    assert first.tensor_bytes + last.tensor_bytes == small.num_parameters * 2


def test_expert_parallelism_keeps_experts_whole() -> None:
    config = {
        "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "num_local_experts": 8,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    sparse = describe(config)
    storage = storage_of(sparse, "auto", None, None)
    whole = dict(stage_weights(sparse, storage, Layout())[0].by_part)
    spread = dict(stage_weights(sparse, storage, Layout(ParallelCut(4, 4)))[0].by_part)
    assert spread["experts"] * 4 == whole["experts"]
    assert spread["router"] == whole["router"]


def test_modules_that_a_checkpoint_leaves_out_stay_16_bit() -> None:
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["mlp"]}
    plain = model(num_hidden_layers=1)
    partly = model(num_hidden_layers=1, quantization_config=quantized)
    storage = storage_of(partly, "auto", None, None)
    before = dict(stage_weights(plain, storage_of(plain, "auto", None, None), Layout())[0].by_part)
    after = dict(stage_weights(partly, storage, Layout())[0].by_part)
    assert after["mlp"] == before["mlp"]
    assert after["embedding"] == before["embedding"]
    scales = 4 * sum(rows // 128 * 4096 // 128 for rows in (4096, 1024, 1024, 4096))
    assert after["attention"] == before["attention"] // 2 + scales


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "transformers"])
@pytest.mark.parametrize(("name", "own"), [("bitsandbytes-nf4", 64), ("bitsandbytes-fp4", 64), ("gptq", 128)])
def test_where_nobody_says_the_groups_they_are_the_formats_own(engine: str, name: str, own: int) -> None:
    """bitsandbytes 0.50.2 functional.py quantize_4bit: blocks of 64; 128 is what GPTQ, AWQ and W4A16 are written in."""
    said = {"engine": engine, "quantization": name}
    assert load(LLAMA_3_8B, **said) == load(LLAMA_3_8B, **said, quantization_group_size=own)


def test_vllm_quantizes_the_scales_of_its_own_4_bits_and_widens_them_since_0_9_2() -> None:
    """bitsandbytes_loader.py quantize_4bit(compress_statistics=True); pull request 19742 dequantizes them at once."""
    said = {"quantization": "bitsandbytes-nf4", "engine": "vllm"}
    older, newer = (load(LLAMA_3_8B, **said, engine_version=version) for version in ("0.9.1", "0.9.2"))
    linear = sum(p.numel for p in model().parameters if p.is_linear and p.part not in ("embedding", "head"))
    blocks = linear // 64
    assert newer - older == pytest.approx(4 * blocks - blocks - 4 * blocks // 256, rel=0.01)
    assert newer == load(LLAMA_3_8B, **said)


def test_four_bit_blocks_have_a_scale_of_four_bytes_each() -> None:
    described = model()
    linear = sum(p.numel for p in described.parameters if p.is_linear and p.part not in ("embedding", "head"))
    said = {"engine": "transformers", "quantization": "bitsandbytes-nf4"}
    fewer = load(LLAMA_3_8B, **said, quantization_group_size=128)
    assert load(LLAMA_3_8B, **said) - fewer == 4 * linear // 128


def test_yarn_and_long_rope_tables() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert rope_cache_bytes(model(rope_scaling=yarn), 2) == 131072 * 128 * 2


def test_tables_of_layers_with_a_window_are_not_stretched() -> None:
    """Gemma 3: positions of the class where the config leaves them out; scaling stretches full layers' table alone.

    vLLM model_executor/layers/rotary_embedding LinearScalingRotaryEmbedding: positions · factor.
    """
    flat = {"rope_type": "linear", "factor": 8.0}
    nested = {"full_attention": flat, "sliding_attention": {"rope_type": "default"}}
    config = {"model_type": "gemma3_text", "hidden_size": 256, "head_dim": 128, "num_hidden_layers": 6}
    for scaling in ({"rope_scaling": flat}, {"rope_parameters": nested}):
        assert rope_cache_bytes(describe({**config, **scaling}), 2) == (8 + 1) * 131_072 * 128 * 2


def test_blocks_keep_remainders_of_up_to_one_mebibyte() -> None:
    assert block_bytes(1) == 512
    assert block_bytes(43 * MIB) == 44 * MIB
    assert block_bytes(24 * MIB + MIB // 2) == 24 * MIB + MIB // 2


def test_layers_and_experts_are_stored_as_the_checkpoint_names_them() -> None:
    """nvidia/MiniMax-M3-NVFP4: 1 + 1/32 byte a weight of attention and MLPs, 1/2 + 1/16 one of routed experts."""
    model = describe(resolve("nvidia/MiniMax-M3-NVFP4").config)
    storage = storage_of(model, "auto", None, None)
    found = {p.part: storage.rule_for(p) for p in model.parameters if len(p.shape) > 1}
    assert {part: rule.name for part, rule in found.items() if rule} == {
        "attention": "mxfp8", "mlp": "mxfp8", "experts": "nvfp4"
    }  # fmt: skip
    product = next(p for p in model.parameters if p.name.endswith("layers.0.self_attn.q_proj.weight"))
    assert storage.quantization is not None
    assert storage.quantization.bytes_for(product.shape) == product.numel + product.numel // 32


@pytest.mark.parametrize(("engine", "shared"), [("vllm", True), ("sglang", False)])
def test_data_parallel_ranks_of_vllm_share_the_experts(engine: str, shared: bool) -> None:
    """vLLM 0.8.5 to 0.33.0 fused_moe: experts are cut over tensor and data ranks, or dealt out whole over them."""

    def part(name: str, **settings: Any) -> int:
        table = {"engine": engine, **settings}
        result = estimate({"model": "Qwen/Qwen3-30B-A3B", "task": "serve", "serve": table})
        node = result.phases[0].components.find(f"weights/{name}")
        assert node is not None
        return node.bytes

    whole, cut = part("experts"), part("experts", data_parallel_size=2)
    assert cut == (whole // 2 if shared else whole)
    assert part("attention", data_parallel_size=2) == part("attention")
    assert part("experts", data_parallel_size=2, expert_parallel=True) == whole // 2
