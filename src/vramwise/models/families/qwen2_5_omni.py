"""Qwen2.5-Omni: a thinker that reads images, sound and text, and, behind it, the parts that speak."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.families.nested import renamed, under
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers import qwen_vision, tower_defaults, towers_by_type
from vramwise.models.towers.projector_pieces import Ends
from vramwise.models.towers.qwen2_5_omni_speech import sound_weights
from vramwise.models.towers.qwen_projectors import qwen2_vl
from vramwise.models.towers.tower_design import Tower
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks

# Defaults of Qwen2_5OmniTalkerConfig (transformers 5.23).
_TALKER = {
    "vocab_size": 8448, "embedding_size": 3584, "hidden_size": 3584, "intermediate_size": 18_944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128,
}  # fmt: skip


def tower_of(c: Config, key: str, kind: str) -> tuple[Config, Tower]:
    """The config of a tower of the thinker, and the tower."""
    towers = {**qwen_vision.TOWERS, **towers_by_type.TOWERS}
    defaults = {**qwen_vision.DEFAULTS, **tower_defaults.DEFAULTS}
    given = c.table(key) or Config({}, c.model_id)
    config = Config({**given.filled(defaults[kind]).values, "model_type": kind}, c.model_id)
    return config, towers[kind](config)


def thinker(c: Config) -> tuple[Block, ...]:
    """Both towers, the merger of patches, the language model."""
    text = text_config(c, "qwen2_5_omni_text", {})
    audio_config, audio = tower_of(c, "audio_config", "qwen2_5_omni_audio_encoder")
    vision_config, vision = tower_of(c, "vision_config", "qwen2_5_omni_vision_encoder")
    b = BlockBuilder("model.visual.merger", part="projector", modality="image")
    merged = qwen2_vl(b, b.input("image", vision.width), Ends(c, vision_config, text.hidden_size))
    embedding, *language = language_blocks(text, "model.language_model", tied=c.flag("tie_word_embeddings"))
    return (
        *tower_blocks(audio_config, audio, "model.audio_tower"), *tower_blocks(vision_config, vision, "model.visual"),
        b.build(image=merged), embedding, image_tokens(text.hidden_size), *language,
    )  # fmt: skip


def talker(c: Config) -> tuple[Block, ...]:
    """A Qwen 2 decoder over codes of sound that reads what the thinker made."""
    c = Config({**c.filled(_TALKER).values, "model_type": "qwen2"}, c.model_id)
    b = BlockBuilder("talker")
    x = b.embedding("model.embed_tokens", c.vocab_size, c.size("embedding_size"))
    first = b.build(hidden=b.linear(x, "thinker_to_talker_proj", c.hidden_size, bias=True))
    kind = LayerKind(attention=partial(grouped_attention, c=c, bias=True))
    layers = (renamed(decoder.layer(c, Design(), i, kind), under("talker")) for i in range(c.num_hidden_layers))
    b = BlockBuilder("talker")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "model.norm")
    last = b.build(codes=b.linear(x, "codec_head", c.vocab_size, shard="vocab"))
    return tuple(_spoken(block) for block in (first, *layers, last))


def _spoken(block: Block) -> Block:
    """A block that text alone does not run, whose weights are those of speech."""
    ops = (replace(op, parameters=tuple(replace(p, part="speech") for p in op.parameters)) for op in block.ops)
    return replace(block, ops=tuple(ops), layer=None, caches=(), modality="audio")


def blocks(c: Config) -> tuple[Block, ...]:
    """The thinker alone, or with the talker and the model of sound before it."""
    if c.model_type == "qwen2_5_omni_thinker":
        return thinker(c)
    inner, outer = (c.table(f"{name}_config") or Config({}, c.model_id) for name in ("thinker", "talker"))
    thinking = tuple(renamed(block, under("thinker")) for block in thinker(inner))
    if not c.flag("enable_audio_output", True):
        return thinking
    b = BlockBuilder("token2wav", part="speech", modality="audio")
    weights = sound_weights(c.table("token2wav_config") or Config({}, c.model_id))
    sound = b.op(
        Undescribed(name="a decoder of sound"), "", [], [1], [b.parameter("", name, shape) for name, shape in weights]
    )
    return (*talker(outer), b.build(sound=sound[0]), *thinking)
