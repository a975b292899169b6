"""LED: BART whose encoder attends to a window and, by products of its own, to a few tokens everywhere."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.bart import design_of
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers.bart_ends import closing, embedding, shared_embedding
from vramwise.models.layers.bart_layers import Stack, layer
from vramwise.models.layers.windowed_encoder import encoder_embedding, encoder_end, encoder_layer

HEAD = "seq2seq-lm"


def counted_as(c: Config) -> str:
    """What an estimate says of tokens that attend to all others."""
    return "no token attends globally (a batch without global_attention_mask)"


def windows(c: Config) -> tuple[int, ...]:
    """One of each encoder layer: how many tokens it sees on both sides; the longest is what sequences fill."""
    layers, listed = c.size("encoder_layers"), isinstance(c.values.get("attention_window"), list)
    found = (c.items("attention_window") or []) if listed else [c.size("attention_window", default=512)] * layers
    if len(found) != layers:
        raise c.error(f"attention_window: {layers} encoder layers, {len(found)} windows")
    for one in found:
        if not isinstance(one, int) or one < 2 or one % 2 or max(found) % one:
            raise c.error(f"attention_window: even numbers that divide the longest, got {one!r:.40}")
    return tuple(found)


def blocks(config: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head; layers are numbered through both stacks."""
    c, d = design_of(config)

    def of(name: str, positions: int) -> Config:
        rows = c.size(f"max_{name}_position_embeddings", default=positions)
        return Config({**c.values, "max_position_embeddings": rows}, c.model_id)

    encoder = Stack(of("encoder", 16_384), d, "encoder", alone=False)
    decoder = Stack(of("decoder", 1024), d, "decoder", alone=False, first_layer=encoder.num_layers)
    seen = windows(c)
    stacks = (
        encoder_embedding(encoder, max(seen)), shared_embedding(encoder),
        *(encoder_layer(encoder, i, window) for i, window in enumerate(seen)), encoder_end(encoder, max(seen)),
        embedding(decoder), *(layer(decoder, i) for i in range(decoder.num_layers)), closing(decoder),
    )  # fmt: skip
    return tuple(renamed(block, inside("led")) for block in stacks)
