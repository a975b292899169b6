"""The gradient of a weight that several blocks use is there once, however many of them add to it."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.autograd import with_rounded_axes
from vramwise.scenario import Scenario
from vramwise.training.activations.sizes import step_shape
from vramwise.training.job import job_of

SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 96,
    "max_position_embeddings": 64,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "one group of layers": {"model_type": "albert", "num_hidden_layers": 4, "embedding_size": 16},
    "two groups of layers": {"model_type": "albert", "num_hidden_layers": 4, "num_hidden_groups": 2},
    "tied head": {"model_type": "llama", "num_hidden_layers": 3, "tie_word_embeddings": True},
    "nothing shared": {"model_type": "llama", "num_hidden_layers": 3, "tie_word_embeddings": False},
    "alternating shared blocks": {
        "model_type": "zamba2", "num_hidden_layers": 6, "num_mem_blocks": 2, "hybrid_layer_ids": [1, 3, 5],
        "layers_block_type": ["mamba", "hybrid"] * 3, "num_key_value_heads": 4, "attention_hidden_size": 128,
        "attention_head_dim": 32, "mamba_ngroups": 1, "n_mamba_heads": 4, "mamba_expand": 2, "mamba_d_state": 8,
    },
    "two uses in a layer": {
        "model_type": "prophetnet", "architectures": ["ProphetNetForConditionalGeneration"], "num_encoder_layers": 1,
        "num_decoder_layers": 2, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4,
        "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    },
    "several look-ups of one table": {
        "model_type": "blt", "patch_in_forward": False, "encoder_hash_byte_group_vocab": 50,
        **{f"{part}_config": {**SIZES, "num_hidden_layers": 1, "hidden_size_global": 64}
           for part in ("encoder", "decoder", "global")},
    },
}  # fmt: skip


def gradient_bytes(config: dict[str, Any], *, accumulating: bool) -> tuple[list[int], int]:
    """Finished gradients of every block, and 4 bytes a parameter."""
    model = describe({**SIZES, **config})
    made = job_of(Scenario.from_dict({"model": config, "task": "train", "train": {"precision": "fp32"}}), model, None)
    shape = step_shape(model, made.structure, 2, 8, accumulating=accumulating)
    runs = shape.at(with_rounded_axes(batch=2, sequence=8))
    return [run.weight_gradients for run in runs], 4 * model.num_parameters


@pytest.mark.parametrize("name", CONFIGS)
def test_all_gradients_together_are_as_large_as_the_weights(name: str) -> None:
    found, weights = gradient_bytes(CONFIGS[name], accumulating=False)
    assert sum(found) == weights


@pytest.mark.parametrize("name", CONFIGS)
def test_with_gradients_from_before_only_unfinished_sums_wait_and_all_go(name: str) -> None:
    found, _ = gradient_bytes(CONFIGS[name], accumulating=True)
    assert sum(found) == 0
    assert any(found) == (name not in ("nothing shared", "several look-ups of one table"))


def test_every_weight_of_a_vision_part_gets_its_gradient() -> None:
    text = {**SIZES, "model_type": "qwen2_vl_text", "num_hidden_layers": 2, "num_key_value_heads": 2}
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 14, "spatial_merge_size": 2}
    config = {"model_type": "qwen2_vl", "text_config": text, "vision_config": vision}
    model, train = describe(config), {"precision": "fp32", "images_per_sequence": 1, "image_size": "56x56"}
    made = job_of(Scenario.from_dict({"model": config, "task": "train", "train": train}), model, None)
    runs = step_shape(model, made.structure, 2, 32, accumulating=False).at(with_rounded_axes(batch=2, sequence=32))
    assert sum(run.weight_gradients for run in runs) == 4 * model.num_parameters
