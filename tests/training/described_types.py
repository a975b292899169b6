"""One small model of every described type: the catalog's smallest, else its class's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from vramwise import describe
from vramwise.errors import VramwiseError
from vramwise.models.family_of_type import FAMILY_OF_TYPE
from vramwise.models.model import Model
from vramwise.sources.catalog import catalog

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
WIDE_HEADS = {"text_config": {"head_dim": 128}}
INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 64}
DEEPSEEK_OCR = {
    "use_mla": False, "hidden_size": 1280, "num_hidden_layers": 2, "num_attention_heads": 10, "intermediate_size": 6848,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 896,
    "first_k_dense_replace": 1, "vocab_size": 129280,
}  # fmt: skip
REQUIRED: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": 33},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "deepseek_ocr": {"language_config": DEEPSEEK_OCR},
    "deepseekocr_2": {"language_config": DEEPSEEK_OCR},
    "dots_ocr": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 2,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 131072,
    },
    "qwen3_omni_moe_thinker": WIDE_HEADS,
    "qwen3_omni_moe": {
        "thinker_config": WIDE_HEADS,
        "talker_config": {"text_config": {"shared_expert_intermediate_size": 768}},
    },
    # its code comes with checkpoints: no class has defaults
    "mimo_v2": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "v_head_dim": 64,
        "vocab_size": 512,
        "max_position_embeddings": 4096,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "moe_layer_freq": [0, 1],
        "hybrid_layer_pattern": [0, 1],
        "sliding_window": 128,
        "tie_word_embeddings": False,
    },
    "granite4_vision": {"deepstack_layer_map": [[-1, 0]], "downsample_rate": "4/8"},
    "qwen4_exp_text": INDEXER,
    "qwen4_exp": {"text_config": INDEXER},
}
"""What classes' own defaults lack for a model that runs."""


@cache
def small_model(model_type: str) -> Model:
    own = FAMILY_OF_TYPE[model_type]
    candidates = [config for kind, config in _smallest().items() if kind == model_type]
    candidates.append(REQUIRED.get(model_type, {}))
    candidates += [config for kind, config in _smallest().items() if FAMILY_OF_TYPE.get(kind) == own]
    for candidate in candidates:
        try:
            return describe({**candidate, "model_type": model_type})
        except VramwiseError:
            continue
    raise AssertionError(f"no config of {model_type} is described")


@cache
def _smallest() -> Mapping[str, dict[str, Any]]:
    entries = sorted(catalog(), key=lambda entry: -_layers(entry.hyperparameters))
    return {entry.model_type: entry.hyperparameters for entry in entries}


def _layers(config: Mapping[str, Any]) -> int:
    return next((config[key] for key in LAYERS if isinstance(config.get(key), int)), 0)
