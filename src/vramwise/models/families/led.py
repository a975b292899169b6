"""LED: BART whose encoder attends to a window and, by products of its own, to a few tokens everywhere."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.bart import closing, embedding, shared_embedding
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers.bart_layers import Stack, half, layer
from vramwise.models.layers.seq2seq_design import design_of

HEAD = "seq2seq-lm"


def encoder_layer(s: Stack, index: int) -> Block:
    """Windowed attention and a feed-forward, each with a residual and a norm after it."""
    b = BlockBuilder(f"model.encoder.layers.{index}", layer=index, part="attention")
    x, heads = b.input("hidden", s.c.hidden_size), s.c.size("encoder_attention_heads")
    if x.width % heads:
        raise s.c.error(f"encoder_attention_heads ({heads}) does not divide d_model ({x.width})")
    module = "self_attn.longformer_self_attn"
    names = [f"{name}{kind}" for kind in ("", "_global") for name in ("query", "key", "value")]
    pieces = [b.linear(x, f"{module}.{name}", x.width, bias=True) for name in names]
    mixed = b.op("undescribed", module, pieces, [x.width], name="attention to a window and to global tokens")[0]
    mixed = b.linear(mixed, "self_attn.output", x.width, bias=True, shard="row")
    x = b.layer_norm(b.add(x, b.dropout(mixed, s.c.number("dropout"))), "self_attn_layer_norm")
    b.part = "mlp"
    return b.build(hidden=half(b, s, x, "final"))


def blocks(config: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head; layers are numbered through both stacks."""
    c, d = design_of(config)

    def of(name: str, positions: int) -> Config:
        rows = c.size(f"max_{name}_position_embeddings", default=positions)
        return Config({**c.values, "max_position_embeddings": rows}, c.model_id)

    encoder = Stack(of("encoder", 16_384), d, "encoder", alone=False)
    decoder = Stack(of("decoder", 1024), d, "decoder", alone=False, first_layer=encoder.num_layers)
    stacks = (
        embedding(encoder), shared_embedding(encoder), *(encoder_layer(encoder, i) for i in range(encoder.num_layers)),
        closing(encoder), embedding(decoder), *(layer(decoder, i) for i in range(decoder.num_layers)),
        closing(decoder),
    )  # fmt: skip
    return tuple(renamed(block, inside("led")) for block in stacks)
