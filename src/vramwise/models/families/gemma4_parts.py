"""Gemma 4 with its towers for images and sound, each there if its config is.

The unified models have no towers: pixels and samples are projected as they are.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Modality, Value
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks
from vramwise.models.towers.gemma_sound import AUDIO_DEFAULTS, audio_tower

# Defaults of Gemma4VisionConfig (transformers 5.23).
_VISION: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12,
    "num_key_value_heads": 12, "head_dim": 64, "hidden_activation": "gelu_pytorch_tanh", "patch_size": 16,
    "position_embedding_size": 10_240,
}  # fmt: skip


def _norm(b: BlockBuilder, x: Value, name: str) -> Value:
    return b.rms_norm(x, name, part="vision")


def vision_layer(c: Config, name: str, index: int) -> Block:
    """Norms before and after attention and MLP, norms of the heads of queries and keys, rotary positions."""
    b = BlockBuilder(f"{name}.encoder.layers.{index}", part="vision", modality="image")
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    x = b.input("image", c.hidden_size)
    h = _norm(b, x, "input_layernorm")
    q, k, v = (
        b.heads(b.linear(h, f"self_attn.{n}_proj.linear", count * d), count)
        for n, count in (("q", heads), ("k", groups), ("v", groups))
    )
    q, k = _norm(b, q, "self_attn.q_norm"), _norm(b, k, "self_attn.k_norm")
    q, k, v = b.heads_first(q), b.heads_first(k), b.heads_first(v)
    h = b.attention(q, k, v, num_heads=heads, num_key_value_heads=groups, causal=False, cache=None)
    h = b.linear(h, "self_attn.o_proj.linear", x.width, shard="row")
    x = b.add(x, _norm(b, h, "post_attention_layernorm"))
    h = _norm(b, x, "pre_feedforward_layernorm")
    gate = b.activation(b.linear(h, "mlp.gate_proj.linear", c.intermediate_size), c.text("hidden_activation"))
    h = b.multiply(gate, b.linear(h, "mlp.up_proj.linear", c.intermediate_size))
    h = b.linear(h, "mlp.down_proj.linear", x.width, shard="row")
    return b.build(image=b.add(x, _norm(b, h, "post_feedforward_layernorm")))


def vision_tower(c: Config, name: str) -> tuple[Block, ...]:
    """Patches by a product, a table of positions for each axis, the layers."""
    b = BlockBuilder(f"{name}.patch_embedder", part="vision", modality="image")
    width = c.hidden_size
    table = b.parameter("", "position_embedding_table", (2, c.size("position_embedding_size"), width))
    patches = b.parameter("input_proj", "weight", (width, 3 * c.size("patch_size") ** 2), is_linear=True)
    first = b.build(image=b.op("patch_embedding", "input_proj", [], [width], [patches, table])[0])
    return (first, *(vision_layer(c, name, i) for i in range(c.num_hidden_layers)))


def embedder(name: str, modality: Modality, width: int, out: int) -> Block:
    """The projector: a norm without weight and one product."""
    b = BlockBuilder(name, part="projector", modality=modality)
    return b.build(**{modality: b.linear(b.input(modality, width), "embedding_projection", out)})


def pixels(c: Config, name: str, out: int) -> tuple[Block, ...]:
    """Patches of pixels: norms around a product, a position for each axis, the projector."""
    b = BlockBuilder(name, part="vision", modality="image")
    side = c.size("patch_size", default=16) * c.size("pooling_kernel_size", default=3)
    width, norms = c.size("mm_embed_dim", default=3840), (3 * side**2, "patch_ln1")
    if c.size("output_proj_dims", default=3840) != width:
        raise c.error(f"output_proj_dims must be mm_embed_dim ({width})")
    positions = b.parameter("", "pos_embedding", (c.size("mm_posemb_size", default=1120), 2, width))
    x = b.layer_norm(b.op("patch_embedding", "", [], [norms[0]], [positions])[0], norms[1], part="vision")
    x = b.layer_norm(b.linear(x, "patch_dense", width, bias=True), "patch_ln2", part="vision")
    image = b.build(image=b.layer_norm(x, "pos_norm", part="vision"))
    return image, embedder(f"{name}.multimodal_embedder", "image", width, out)


def towers(c: Config, width: int) -> list[Block]:
    """What turns images and sound into vectors of the language model's width."""
    unified, parts = c.model_type == "gemma4_unified", list[Block]()
    vision, audio = c.table("vision_config"), c.table("audio_config")
    if vision is not None and unified:
        parts += [*pixels(vision, "model.embed_vision", width)]
    elif vision is not None:
        vision = vision.filled(_VISION)
        parts += [*vision_tower(vision, "model.vision_tower")]
        parts += [embedder("model.embed_vision", "image", vision.hidden_size, width)]
    if audio is not None and unified:
        parts += [embedder("model.embed_audio", "audio", audio.size("audio_embed_dim", default=640), width)]
    elif audio is not None:
        audio = audio.filled(AUDIO_DEFAULTS)
        parts += [*audio_tower(audio, "model.audio_tower")]
        parts += [embedder("model.embed_audio", "audio", audio.size("output_proj_dims"), width)]
    return parts


def blocks(c: Config) -> tuple[Block, ...]:
    """Towers with their projectors, which run only for batches with such input, and the language model."""
    given = c.table("text_config") or Config({}, c.model_id)
    text = Config({**given.values, "model_type": f"{c.model_type}_text"}, c.model_id)
    tied = c.flag("tie_word_embeddings", True)
    if {"Gemma4ForCausalLM", "Gemma4UnifiedForCausalLM"} & set(map(str, c.items("architectures") or [])):
        return language_blocks(text, "model", tied=tied, capped=True)
    language = language_blocks(text, "model.language_model", tied=tied, capped=True)
    return (*towers(c, text.size("hidden_size", default=2304)), *language)
