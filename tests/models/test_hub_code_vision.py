"""Kimi VL and dots.ocr, whose code is on the hub only: their tensors against what vLLM reads and what was published."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import UnsupportedModelError
from vramwise.models import Model, describe
from vramwise.models.config import Config
from vramwise.models.images import image_tokens

KIMI: dict[str, Any] = {  # moonshotai/Kimi-VL-A3B-Instruct config.json
    "model_type": "kimi_vl", "torch_dtype": "bfloat16",
    "text_config": {
        "vocab_size": 163840, "max_position_embeddings": 131072, "hidden_size": 2048, "intermediate_size": 11264,
        "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
        "n_shared_experts": 2, "n_routed_experts": 64, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "kv_lora_rank": 512, "q_lora_rank": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "topk_method": "noaux_tc",
    },
    "vision_config": {
        "model_type": "moonvit", "patch_size": 14, "num_attention_heads": 16, "num_hidden_layers": 27,
        "hidden_size": 1152, "intermediate_size": 4304, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
        "merge_kernel_size": [2, 2],
    },
}  # fmt: skip
DOTS: dict[str, Any] = {  # rednote-hilab/dots.ocr config.json
    "model_type": "dots_ocr", "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 131072, "vocab_size": 151936,
    "attention_bias": True, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "vision_config": {
        "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224, "num_hidden_layers": 42,
        "num_attention_heads": 12, "num_channels": 3, "patch_size": 14, "post_norm": True, "spatial_merge_size": 2,
        "temporal_patch_size": 1, "use_bias": False,
    },
}  # fmt: skip


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {p.name: p.shape for p in model.parameters}


def test_kimi_vl_has_the_published_size() -> None:
    """16 billion parameters, 2.8 billion active for a token without embedding and vision (its model card)."""
    model = describe(KIMI)
    assert round(model.num_parameters / 1e9, 1) == 16.4
    beside = model.parts["embedding"] + model.parts["vision"] + model.parts["projector"]
    assert 2.5 < (model.num_active_parameters - beside) / 1e9 < 2.9
    assert {cache.kind for cache in model.caches if cache.kind != "none"} == {"latent"}


def test_kimi_vls_tensors_are_those_that_vllm_reads() -> None:
    found = shapes(describe(KIMI))
    assert found["vision_tower.patch_embed.pos_emb.weight"] == (64, 64, 1152)
    assert found["vision_tower.encoder.blocks.26.wqkv.bias"] == (3 * 1152,)
    assert found["vision_tower.encoder.final_layernorm.bias"] == (1152,)
    assert found["multi_modal_projector.linear_1.weight"] == (4608, 4608)
    assert found["multi_modal_projector.linear_2.weight"] == (2048, 4608)
    assert found["language_model.model.layers.1.mlp.gate.weight"] == (64, 2048)
    assert found["language_model.lm_head.weight"] == (163840, 2048)


def test_dots_ocr_has_the_published_size_and_vllms_tensors() -> None:
    """1.7 billion parameters of language model and 1.2 billion of vision (its report)."""
    model = describe(DOTS)
    assert round(model.parts["vision"] / 1e9, 1) == 1.2
    assert round(model.num_parameters / 1e9, 2) == 3.04
    found = shapes(model)
    assert found["vision_tower.patch_embed.patchifier.proj.weight"] == (1536, 3, 14, 14)
    assert found["vision_tower.blocks.41.mlp.fc3.weight"] == (4224, 1536)
    assert found["vision_tower.merger.mlp.2.bias"] == (1536,)
    assert "vision_tower.blocks.0.attn.qkv.bias" not in found
    assert found["model.layers.0.self_attn.q_proj.bias"] == (1536,)


@pytest.mark.parametrize("config", [KIMI, DOTS], ids=["kimi-vl", "dots-ocr"])
def test_they_serve_load_and_train_on_text(config: dict[str, Any]) -> None:
    for task in ("serve", "load", "train"):
        result = estimate({"model": config, "task": task, "gpu": "h200"})
        assert result.quantities["weights"].expected > 0


@pytest.mark.parametrize("config", [KIMI, DOTS], ids=["kimi-vl", "dots-ocr"])
def test_training_with_images_is_refused_in_a_sentence(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match="not described"):
        estimate({"model": config, "task": "train", "train": {"images_per_sequence": 1, "image_size": "448x448"}})


@pytest.mark.parametrize(("width", "height"), [(14, 14), (1024, 768), (3000, 2000), (14 * 64, 14 * 64), (57, 4000)])
def test_kimi_vls_tokens_are_those_that_vllm_reserves(width: int, height: int) -> None:
    """vLLM 0.33.0 kimi_vl.py get_num_image_tokens with in_token_limit 4096."""
    wide, high = width, height
    if (wide // 14) * (high // 14) > 4096:
        scale = math.sqrt(4096 / ((wide // 14) * (high // 14)))
        wide, high = int(wide * scale), int(high * scale)
    tokens = -(-high // 28) * -(-wide // 28)
    found = image_tokens(Config(KIMI), width, height)
    assert found is not None
    assert found.tokens == tokens
