"""T5 and its relatives (v1.1, Flan-T5, UL2, mT5, UMT5): an encoder and a decoder with learned relative position biases.

Streams: `hidden` runs through both stacks, `encoder` is the encoder's result, `position_bias` and `cross_bias` are
made by the first layer of a stack for all of its layers. The token embedding, both stacks' names for it and the
output projection are one storage, as transformers 5.23 ties them whatever `tie_word_embeddings` says; checkpoints of
v1.1 and Flan-T5 hold a projection of their own, vocab_size · d_model parameters more.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config

HEAD = "seq2seq-lm"

CLASS_DEFAULTS = {
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "dropout_rate": 0.1,
    "feed_forward_proj": "relu",
}
"""Defaults of `T5Config`."""
MULTILINGUAL_DEFAULTS = {
    **CLASS_DEFAULTS, "vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}  # fmt: skip
"""Defaults of `MT5Config` and `UMT5Config`."""
EAGER_ONLY = frozenset({"longt5", "switch_transformers"})
"""Types whose classes take no other attention."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The encoder or the decoder, and how many layers of the model come before it."""

    name: str
    num_layers: int
    first_layer: int = 0

    @property
    def is_decoder(self) -> bool:
        return self.name == "decoder"


def embedding(c: Config, stack: Stack) -> Block:
    """Token ids -> hidden states; the encoder's comes first and holds the storage that all share."""
    b = BlockBuilder("", part="embedding")
    rows, width = c.vocab_size, c.hidden_size
    module = f"{stack.name}.embed_tokens"
    table = b.parameter(module, "weight", (rows, width), shard="vocab", tied_to="shared.weight")
    (x,) = b.op("embedding", module, [], [width], [table], ids=f"{stack.name}_input_ids")
    if not stack.is_decoder:
        x = b.unary("hold", x, "shared", [b.parameter("shared", "weight", (rows, width), shard="vocab")])
    return b.build(hidden=b.dropout(x, c.number("dropout_rate")))


def attention(
    b: BlockBuilder, c: Config, stack: Stack, x: Value, source: Value, bias: Value, module: str
) -> Value:  # fmt: skip
    """Attention of `x` to itself or, in the decoder, to the encoder's result; `bias` is added to the scores."""
    heads, width, cross = c.num_attention_heads, c.size("d_kv"), source is not x
    b.part = "attention"
    q, k, v = (
        b.heads_first(b.heads(b.linear(value, f"{module}.{name}", heads * width), heads))
        for name, value in (("q", x), ("k", source), ("v", source))
    )
    if stack.is_decoder:
        b.keep(LayerCache("cross" if cross else "full", heads, width, width))
    dropout = c.number("dropout_rate")
    (mixed,) = b.op(
        "attention", module, [q, k, v, bias], [heads * width], num_heads=heads, num_key_value_heads=heads,
        causal=stack.is_decoder and not cross, cross=cross, window=None, style="t5", dropout=dropout,
        eager_only=c.model_type in EAGER_ONLY,
    )  # fmt: skip
    return b.dropout(b.linear(mixed, f"{module}.o", c.hidden_size, shard="row"), dropout)


def relative_bias(b: BlockBuilder, c: Config, stack: Stack) -> Value:
    """A learned number for each head and bucket of distances, spread over all pairs of positions."""
    heads, module = c.num_attention_heads, "layer.0.SelfAttention.relative_attention_bias"
    shape = (c.size("relative_attention_num_buckets"), heads)
    table = b.parameter(module, "weight", shape, part="attention")
    return b.op("relative_position_bias", module, [], [heads], [table], stack=stack.name)[0]


def feed_forward(b: BlockBuilder, c: Config, x: Value, module: str) -> Value:
    """wo(act(wi(x))), or wo(act(wi_0(x)) · wi_1(x)) where `feed_forward_proj` says gated."""
    kind, dropout, width = c.text("feed_forward_proj"), c.number("dropout_rate"), c.size("d_ff")
    gated, _, function = kind.rpartition("-")
    if gated not in ("", "gated"):
        raise c.error(f'feed_forward_proj: expected "<activation>" or "gated-<activation>", got {kind!r:.60}')
    function = "gelu_new" if kind == "gated-gelu" else function
    b.part, module = "mlp", f"{module}.DenseReluDense"
    h = b.activation(b.linear(x, f"{module}.{'wi_0' if gated else 'wi'}", width), function, f"{module}.act")
    if gated:
        h = b.multiply(h, b.linear(x, f"{module}.wi_1", width))
    h = b.unary("to_parameter_dtype", b.dropout(h, dropout))
    return b.dropout(b.linear(h, f"{module}.wo", x.width, shard="row"), dropout)


def layer(c: Config, stack: Stack, index: int) -> Block:
    """Self-attention, in the decoder cross-attention, feed-forward; each pre-norm with a residual around it."""
    b = BlockBuilder(f"{stack.name}.block.{index}", layer=stack.first_layer + index)
    x, made = b.input("hidden", c.hidden_size), {}
    each = c.model_type == "umt5"  # biases of its own in every layer
    first = each or index == 0
    bias = relative_bias(b, c, stack) if first else b.input("position_bias", c.num_attention_heads)
    made["position_bias"] = bias
    h = b.rms_norm(x, "layer.0.layer_norm", style="t5")
    x = b.unary("clamp_fp16", b.add(x, attention(b, c, stack, h, h, bias, "layer.0.SelfAttention")))
    if stack.is_decoder:
        encoder, heads = b.input("encoder", c.hidden_size), c.num_attention_heads
        h = b.rms_norm(x, "layer.1.layer_norm", style="t5")
        bias = b.unary("zero_position_bias", h, width=heads) if first else b.input("cross_bias", heads)
        made["cross_bias"] = bias
        x = b.unary("clamp_fp16", b.add(x, attention(b, c, stack, h, encoder, bias, "layer.1.EncDecAttention")))
    last = f"layer.{2 if stack.is_decoder else 1}"
    h = b.rms_norm(x, f"{last}.layer_norm", style="t5")
    x = b.unary("clamp_fp16", b.add(x, feed_forward(b, c, h, last)))
    return b.build(hidden=x, **(made if first and not each else {}))


def final_norm(b: BlockBuilder, c: Config, stack: Stack) -> Value:
    """The norm and dropout after a stack's layers."""
    x = b.rms_norm(b.input("hidden", c.hidden_size), f"{stack.name}.final_layer_norm", style="t5")
    return b.dropout(x, c.number("dropout_rate"))


def encoder_end(c: Config, stack: Stack) -> Block:
    """The encoder's last block, which hands its result to every decoder layer."""
    b = BlockBuilder("")
    return b.build(encoder=final_norm(b, c, stack))


def head(c: Config, stack: Stack) -> Block:
    """The decoder's norm and the output projection; v1.1 does not scale what it projects."""
    b = BlockBuilder("")
    x = final_norm(b, c, stack)
    tied = c.get("tie_word_embeddings") is not False
    if c.model_type == "umt5" or (c.model_type == "t5" and c.flag("scale_decoder_outputs", tied)):
        x = b.scale(x)
    return b.build(logits=b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to="shared.weight"))


def blocks(config: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head; layers are numbered through both stacks."""
    c = config.filled(CLASS_DEFAULTS if config.model_type == "t5" else MULTILINGUAL_DEFAULTS)
    encoder = Stack("encoder", c.num_hidden_layers)
    decoder = Stack("decoder", c.size("num_decoder_layers", default=encoder.num_layers), encoder.num_layers)
    stacks = [
        (embedding(c, stack), *(layer(c, stack, i) for i in range(stack.num_layers))) for stack in (encoder, decoder)
    ]
    return (*stacks[0], encoder_end(c, encoder), *stacks[1], head(c, decoder))
