"""Emu 3 with its image tokenizer, whose class wants a map of image tokens."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers_models import model_config, parameter_table

from vramwise.models import describe

TEXT = {
    "vocab_size": 20, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "pad_token_id": 0,
}  # fmt: skip
VOCABULARY = {"<image>": 1, "<|extra_200|>": 2, "<|visual token 000000|>": 3}
TOKENIZERS: tuple[dict[str, Any], ...] = (
    {},
    {
        "base_channels": 32, "channel_multiplier": [1, 2, 2], "num_res_blocks": 1, "attn_resolutions": [1, 2],
        "double_latent": True, "latent_channels": 3, "embed_dim": 5, "hidden_size": 64, "codebook_size": 9,
        "temporal_downsample_factor": 2, "in_channels": 1, "out_channels": 2,
    },
)  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_the_class_with_images_holds_its_tokenizer(tokenizer: dict[str, Any]) -> None:
    values = {"model_type": "emu3", "text_config": TEXT, "vq_config": tokenizer, "vocabulary_map": VOCABULARY}
    config = model_config(values)
    with torch.device("meta"):
        real = transformers.Emu3ForConditionalGeneration(config)
    shapes, ties = parameter_table(real)
    described = describe({**config.to_dict(), "model_type": "emu3"})
    assert {p.name: p.shape for p in described.all_parameters} == shapes
    assert not ties
