"""Muse Glimmer: gated attention with normed queries and keys, norms around every half, capped logits, vision."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.text_defaults import TEXT_DEFAULTS
from vramwise.models.layers.windows import typed_layers
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.towers.muse_vision import DEFAULTS, projector, tower
from vramwise.models.towers.vision_tower import tower_blocks

_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def plain_norm(b: BlockBuilder, x: Value, module: str) -> Value:
    """A root-mean-square norm without a weight."""
    return b.unary(RmsNorm(style="gemma4"), x, module)


def attention(b: BlockBuilder, x: Value, *, c: Config, window: int | None, turned: bool) -> Value:
    """Grouped queries with norms without weights, queries times a number, the result times a sigmoid of the input."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"self_attn.{name}_proj", n * d, bias=bias), n))
        for name, n in zip("qkv", (heads, groups, groups), strict=True)
    )
    q, k = (plain_norm(b, y, "self_attn.qk_norm") for y in (q, k))
    q = b.scale(q)
    if turned:
        q, k = b.rotary(q, k)
    dropout = c.number("attention_dropout")
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=groups, window=window, dropout=dropout), q, k, v)
    gate = b.activation(b.linear(x, "self_attn.gate_proj", heads * d), "sigmoid", "self_attn")
    return b.linear(b.multiply(mixed, gate), "self_attn.o_proj", x.width, bias=bias, shard="row")


def layer_kinds(c: Config) -> list[LayerKind]:
    """Every fourth layer, counted from the last, is full and without rotary positions."""
    last = c.num_hidden_layers - 1
    full = [(last - i) % 4 == 0 for i in range(last + 1)]
    types = ["full_attention" if flag else "sliding_attention" for flag in full]
    thetas = c.by_layer("layer_rope_theta", empty_is_absent=True) or [not flag for flag in full]
    return [
        LayerKind(attention=partial(attention, c=c, window=kind.window, turned=bool(theta)))
        for kind, theta in zip(typed_layers(c, types), thetas, strict=True)
    ]


def text_blocks(c: Config, *, tied: bool) -> tuple[Block, ...]:
    """The language model, named as one of its own."""
    c = Config({**c.values, "hidden_act": c.text("hidden_activation")}, c.model_id)
    s = Design(norm_style="gemma", norms=_NORMS)
    b = BlockBuilder("")
    words = b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=plain_norm(b, words, "model.embed_tokens.embed_norm"))
    layers = (decoder.layer(c, s, index, kind) for index, kind in enumerate(layer_kinds(c)))
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "model.norm", style="gemma4")
    tied_to = "model.embed_tokens.weight" if tied else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *layers, b.build(logits=b.softcap(b.scale(logits))))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model."""
    v = (c.table("vision_config") or Config({}, c.model_id)).filled(DEFAULTS)
    text = (c.table("text_config") or Config({}, c.model_id)).filled(TEXT_DEFAULTS["muse_glimmer_text"])
    language = text_blocks(text, tied=c.flag("tie_word_embeddings"))
    language = tuple(renamed(block, inside("model.language_model")) for block in language)
    return (*tower_blocks(v, tower(v), "model.vision_tower"), projector(c, text.hidden_size), *language)
