"""ERNIE 4.5 VL: experts for text and narrower ones for images in every sparse layer; text meets the former only."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.experts_by_modality import isolated
from vramwise.models.layers.mixture import Mixture, experts, sparse_layers
from vramwise.models.layers.routed_experts import balancing_loss
from vramwise.models.towers.ernie_vision import VISION_DEFAULTS, resampler, tower
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks

# Defaults of Ernie4_5_VLMoeTextConfig (transformers 5.23).
_TEXT: dict[str, object] = {
    "vocab_size": 103_424, "hidden_size": 2560, "intermediate_size": 12_288, "num_hidden_layers": 28,
    "num_attention_heads": 20, "num_key_value_heads": 4, "moe_k": 6, "moe_num_experts": 64,
    "moe_num_shared_experts": 2, "moe_intermediate_size": [1536, 512],
}  # fmt: skip


def text_blocks(c: Config, *, tied: bool) -> tuple[Block, ...]:
    widths = c.items("moe_intermediate_size") or []
    if len(widths) != 2:
        raise c.error("moe_intermediate_size: expected two widths, of the experts for text and for images")
    own, images = (
        experts(
            Config({**c.values, "moe_intermediate_size": width, "attention_dropout": 0.0}, c.model_id), None,
            keys=("moe_num_experts", "num_experts"), chosen="moe_k", routing="ernie4_5_moe",
            router="mlp.text_moe.gate", module="mlp.text_moe.experts",
        )
        for width in widths
    )  # fmt: skip
    bias = c.flag("use_bias")
    statics = ("mlp.text_moe.gate.moe_statics", "e_score_correction_bias", (1, own.num_experts))
    shared = c.size("moe_num_shared_experts", least=0) * own.intermediate_size
    m = Mixture(own, correction=statics, shared=shared, bias=bias)
    s = Design(
        qkv_bias=bias, output_bias=bias, mlp_bias=bias, rotary="pairs_widened", rotary_table="rows fp32",
    )  # fmt: skip
    flags = sparse_layers(c, 1)
    kinds = [LayerKind(mlp=partial(isolated, m=m, images=images)) if flag else LayerKind() for flag in flags]
    values = {**c.values, "tie_word_embeddings": tied, "attention_dropout": 0.0}
    *body, head = decoder.model(Config(values, c.model_id), s, kinds)
    return (*body, *balancing_loss(c, own, sum(flags)), head)


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, resampler, language model."""
    text = (c.table("text_config") or Config({}, c.model_id)).filled(_TEXT)
    vision = (c.table("vision_config") or Config({}, c.model_id)).filled(VISION_DEFAULTS)
    tied = c.flag("tie_word_embeddings", True)
    rename = inside("model.language_model")
    embedding, *language = (renamed(block, rename) for block in text_blocks(text, tied=tied))
    towers = (*tower_blocks(vision, tower(vision), "model.vision_tower"), resampler(vision, text.hidden_size))
    return (*towers, embedding, image_tokens(text.hidden_size), *language)
