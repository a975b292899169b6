"""Layers of BART and its relatives: attention, feed-forward, and the stack that they belong to."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.seq2seq_design import Design
from vramwise.models.operations.attention import PLAIN, Attention
from vramwise.models.operations.encoders import FOLDED, BoundFp16, Contiguous
from vramwise.models.operations.simple import Hold
from vramwise.records import record


@record
class Stack:
    """The encoder or the decoder: its sizes, and how many layers come before it."""

    c: Config
    d: Design
    name: str
    alone: bool
    first_layer: int = 0

    @property
    def is_decoder(self) -> bool:
        return self.name == "decoder"

    @property
    def num_layers(self) -> int:
        return self.c.size(f"{self.name}_layers")

    @property
    def shares(self) -> bool:
        """Whether there is a table of its own whose storage the stacks share."""
        return not (self.alone or self.d.hears) and self.c.flag("share_encoder_decoder_embeddings", True)

    @property
    def vocabulary(self) -> int:
        return self.c.size("decoder_vocab_size", default=self.c.vocab_size) if self.is_decoder else self.c.vocab_size

    def tied(self, owner: str) -> str | None:
        return owner if self.c.flag("tie_word_embeddings", True) else None


def attention(b: BlockBuilder, s: Stack, x: Value, source: Value, module: str) -> Value:
    """Attention of `x` to itself or, in the decoder, to the encoder's result."""
    c, d, cross = s.c, s.d, source is not x
    heads = c.size(f"{s.name}_attention_heads")
    if x.width % heads:
        raise c.error(f"{s.name}_attention_heads ({heads}) does not divide d_model ({x.width})")
    pattern, last = (f"{module}.{{}}_proj", f"{module}.out_proj") if s.is_decoder else d.encoder_attention
    long = "self." in pattern
    pieces = {}
    for name, value in (("query", x), ("key", source), ("value", source)):
        bias = d.attention_bias and not (name == "key" and d.hears)
        piece = b.linear(value, pattern.format(name if long else name[0]), x.width, bias=bias)
        if name == "query" and d.attention != "plain":
            piece = b.scale(piece)
        piece = b.heads_first(b.heads(piece, heads))
        pieces[name] = b.unary(Contiguous(), piece) if d.attention == "copied" else piece
    kind = LayerCache("cross" if cross else "full", heads, x.width // heads, x.width // heads)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            causal=s.is_decoder and not cross,
            style=FOLDED if d.attention == "folded" else PLAIN,
            cross=cross,
            dropout=c.number("attention_dropout"),
            eager_only=d.attention == "folded" or long,
            masks_one_token=d.masks_one_token,
        ),
        *pieces.values(),
        module=module,
        cache=kind if s.is_decoder else None,
    )
    return b.linear(mixed, last, x.width, bias=d.attention_bias, shard="row")


def half(b: BlockBuilder, s: Stack, x: Value, module: str, source: Value | None = None) -> Value:
    """Attention or feed-forward (without a `source` of keys) with norm, dropout and residual."""
    c, d, norm = s.c, s.d, f"{module}_layer_norm"
    h = b.layer_norm(x, norm) if d.pre_norm else x
    if module == "final":
        h = b.activation(b.linear(h, "fc1", c.size(f"{s.name}_ffn_dim"), bias=True), c.text("activation_function"))
        drops = s.is_decoder or d.encoder_drops_inside
        h = b.linear(
            b.dropout(h, c.number("activation_dropout") if drops else 0.0), "fc2", x.width, bias=True, shard="row"
        )
    else:
        h = attention(b, s, h, h if source is None else source, module)
    x = b.add(x, b.dropout(h, c.number("dropout")))
    return x if d.pre_norm else b.layer_norm(x, norm)


def layer(s: Stack, index: int) -> Block:
    """Self-attention, in the decoder cross-attention, feed-forward."""
    b = BlockBuilder(f"model.{s.name}.layers.{index}", layer=s.first_layer + index, part="attention")
    x = half(b, s, b.input("hidden", s.c.hidden_size), "self_attn")
    if s.is_decoder and not s.alone:
        x = half(b, s, x, "encoder_attn", b.input("encoder", x.width))
    elif s.is_decoder:
        aside = BlockBuilder(b.name, b.layer, b.part)
        width = s.c.size("cross_attention_hidden_size", default=x.width)
        half(aside, s, aside.value(x.width), "encoder_attn", aside.value(width))
        x = b.unary(Hold(), x, "encoder_attn", [p for op in aside.ops for p in op.parameters])
    b.part = "mlp"
    x = half(b, s, x, "final")
    clamped = s.d.pre_norm and not s.is_decoder and s.d.encoder_clamps
    return b.build(hidden=b.unary(BoundFp16(), x) if clamped else x)
