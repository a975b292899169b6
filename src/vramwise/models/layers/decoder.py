"""A decoder with the switches of `decoder_design`, which its families set.

The first and the last block of a decoder: embedding, final norm and output projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder_attention import attention
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mlp import gated_mlp, plain_mlp
from vramwise.models.operations.simple import ToFp32


def token_embedding(c: Config, module: str = "model.embed_tokens") -> Block:
    """The first block: token ids -> hidden states."""
    b = BlockBuilder("")
    return b.build(hidden=b.embedding(module, c.vocab_size, c.hidden_size))


def logits(
    b: BlockBuilder, x: Value, c: Config, norm: str, *, tied: bool, norm_style: str = "llama", layer_norm: bool = False,
    module: str = "lm_head", embedding: str = "model.embed_tokens", capped: bool = False, widened: bool = False,
) -> Value:  # fmt: skip
    """Final norm and output projection, whose weight may be that of the embedding `embedding`; `widened`: to fp32."""
    x = b.layer_norm(x, norm) if layer_norm else b.rms_norm(x, norm, style=norm_style)
    tied_to = f"{embedding}.weight" if tied else None
    y = b.linear(x, module, c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    y = b.unary(ToFp32(), y) if widened else y
    return b.softcap(y) if capped else y


def lm_head(c: Config, norm: str, **switches: Any) -> Block:
    """The last block: `logits` of the stream."""
    b = BlockBuilder("")
    return b.build(logits=logits(b, b.input("hidden", c.hidden_size), c, norm, **switches))


def norm(b: BlockBuilder, x: Value, name: str | None, s: Design) -> Value:
    """The family's norm, where it has one at this place."""
    if name is None:
        return x
    if s.norm == "rms":
        return b.rms_norm(x, name, style=s.norm_style)
    return b.layer_norm(x, name, weight=s.norm_weight, bias=s.norm_bias, style=s.norm_style)


def mlp(b: BlockBuilder, x: Value, c: Config, s: Design) -> Value:
    """Gated (in two products or one fused), or two linear layers with an activation between them."""
    b.part = "mlp"
    width, function = c.intermediate_size, c.text("hidden_act", "silu")
    if s.mlp == "gated":
        return gated_mlp(b, x, width, function, bias=s.mlp_bias, sub_norm="mlp.ffn_sub_norm" if s.sub_norms else None)
    if s.mlp == "fused":
        gate, up = b.split(b.linear(x, "mlp.gate_up_proj", 2 * width), [width, width])
        h = b.multiply(up, b.activation(gate, function, "mlp.activation_fn"))
        return b.linear(h, "mlp.down_proj", x.width, shard="row")
    return plain_mlp(b, x, width, function, names=s.mlp_names, bias=s.mlp_bias)


def summed(b: BlockBuilder, x: Value, h: Value, s: Design) -> Value:
    """The stream plus a half of the layer, either or both times a number."""
    if s.shared_out:
        return b.add(b.scale(h), b.scale(x))
    return b.add(x, b.scale(h) if s.scaled else h)


def layer(c: Config, s: Design, index: int, kind: LayerKind) -> Block:
    """One decoder layer."""
    b = BlockBuilder(f"{s.root}.layers.{index}", layer=index)
    before, after, before_mlp, after_mlp = s.norms
    x = b.input("hidden", c.hidden_size)
    read = norm(b, x, before, s)
    mixed = kind.attention(b, read) if kind.attention else attention(b, read, c, s, kind)
    mixed = b.dropout(norm(b, mixed, after, s), s.dropouts[1])
    x = summed(b, x, mixed, s)
    if before_mlp is not None or after_mlp is not None:
        read = norm(b, x, before_mlp, s)
    h = kind.mlp(b, read) if kind.mlp else mlp(b, read, c, s)
    h = b.dropout(norm(b, h, after_mlp, s), s.dropouts[2])
    return b.build(hidden=summed(b, x, h, s))


def model(c: Config, s: Design, kinds: Sequence[LayerKind]) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    b = BlockBuilder("")
    x = b.embedding(f"{s.root}.embed_tokens", c.vocab_size, c.hidden_size)
    x = norm(b, x, s.final_norm, s) if s.first_norm else x
    x = b.scale_by_buffer(x, f"{s.root}.embed_tokens") if s.buffered_scale else x
    first = b.build(hidden=b.dropout(b.scale(x) if s.scaled or s.scaled_embedding else x, s.dropouts[0]))
    layers = (layer(c, s, index, kind) for index, kind in enumerate(kinds))
    b = BlockBuilder("")
    x = norm(b, b.input("hidden", c.hidden_size), s.final_norm, s)
    tied_to = f"{s.root}.embed_tokens.weight" if c.flag("tie_word_embeddings", s.tied) else None
    rows = s.head_rows or c.vocab_size
    logits = b.linear(x, "lm_head", rows, bias=s.head_bias, shard="vocab", part="head", tied_to=tied_to)
    logits = b.unary(ToFp32(), logits) if s.widened_logits else logits
    logits = b.softcap(logits) if s.capped_logits else logits
    return (first, *layers, b.build(logits=b.scale(logits) if s.scaled_logits else logits))


def alike(c: Config, s: Design, kind: LayerKind | None = None) -> tuple[Block, ...]:
    """A model whose layers are all of one kind, by default with full attention and rotary positions."""
    return model(c, s, [kind or LayerKind()] * c.num_hidden_layers)
