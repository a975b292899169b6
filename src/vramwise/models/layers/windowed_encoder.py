"""LED's encoder: tokens padded to whole windows, layers that attend to a window."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.layers.bart_layers import Stack, half
from vramwise.models.operations.encoders import BoundFp16
from vramwise.models.operations.simple import Embedding, Hold
from vramwise.models.operations.sliding_windows import TokensFirst, WholeWindows, WindowAttention, WithoutWindowPadding


def encoder_embedding(s: Stack, window: int) -> Block:
    """Tokens, padded to whole windows, plus positions; norm, dropout."""
    b, c = BlockBuilder("model.encoder", part="embedding"), s.c
    width, owner = c.hidden_size, s.tied("model.shared.weight")
    table = b.parameter("embed_tokens", "weight", (c.vocab_size, width), shard="vocab", tied_to=owner)
    (x,) = b.op(Embedding(ids="encoder_input_ids"), "embed_tokens", [], [width], [table])
    positions = b.parameter("embed_positions", "weight", (c.size("max_position_embeddings"), width))
    x = b.layer_norm(b.unary(WholeWindows(chunk_size=window), x, "", [table, positions]), "layernorm_embedding")
    return b.build(hidden=b.dropout(x, c.number("dropout")))


def encoder_layer(s: Stack, index: int, window: int) -> Block:
    """Windowed attention and a feed-forward, each with a residual and a norm after it."""
    b = BlockBuilder(f"model.encoder.layers.{index}", layer=index, part="attention")
    x, heads = b.input("hidden", s.c.hidden_size), s.c.size("encoder_attention_heads")
    if x.width % heads:
        raise s.c.error(f"encoder_attention_heads ({heads}) does not divide d_model ({x.width})")
    module, read = "self_attn.longformer_self_attn", b.unary(TokensFirst(), x)
    pieces = [b.linear(read, f"{module}.{name}", x.width, bias=True) for name in ("query", "key", "value")]
    dropout = float(s.c.number("attention_dropout"))
    (mixed,) = b.op(
        WindowAttention(num_heads=heads, half_window=window // 2, dropout=dropout), module, pieces, [x.width]
    )
    aside = BlockBuilder(b.name, b.layer, b.part)
    for name in ("query", "key", "value"):
        aside.linear(aside.value(x.width), f"{module}.{name}_global", x.width, bias=True)
    mixed = b.unary(Hold(), mixed, module, [parameter for op in aside.ops for parameter in op.parameters])
    mixed = b.linear(b.unary(TokensFirst(), mixed), "self_attn.output", x.width, bias=True, shard="row")
    x = b.layer_norm(b.add(x, b.dropout(mixed, s.c.number("dropout"))), "self_attn_layer_norm")
    b.part = "mlp"
    return b.build(hidden=b.unary(BoundFp16(), half(b, s, x, "final")))


def encoder_end(s: Stack, window: int) -> Block:
    """What the decoder reads: the tokens without the padding of the last window."""
    b = BlockBuilder("")
    return b.build(encoder=b.unary(WithoutWindowPadding(chunk_size=window), b.input("hidden", s.c.hidden_size)))
