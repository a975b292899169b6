"""Small models that cut images into tiles in ways of their own, and batches for them."""

from __future__ import annotations

from typing import Any

from image_batches import TOWER, Case, square, whole

from vramwise.models.execution import Images

LLAMA4: dict[str, Any] = {
    "model_type": "llama4_text", "head_dim": 8, "intermediate_size_mlp": 48, "num_local_experts": 4, "pad_token_id": 0,
    "num_experts_per_tok": 1, "attention_chunk_size": 4, "no_rope_layers": [1, 0], "layer_types":
    ["chunked_attention", "full_attention"], "interleave_moe_layer_step": 2, "rope_parameters": None,
}  # fmt: skip
CASES: dict[str, Case] = {
    "llama4": (
        whole("llama4", {**TOWER, "model_type": "llama4_vision_model", "image_size": 16, "intermediate_size": 96,
                         "projector_input_dim": 40, "projector_output_dim": 40, "vision_output_dim": 40}, LLAMA4),
        Images(1, 4, 4, tokens=12, tiles=3), square,
    ),
}  # fmt: skip
