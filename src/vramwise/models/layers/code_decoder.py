"""MusicGen's decoder layers: pre-norm, without biases; what they are conditioned on."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import PLAIN, Attention
from vramwise.models.operations.codes import MelodyBeforeText, NoMelody


def bridge(c: Config, given: int, width: int) -> tuple[Block, ...]:
    """Products that bring text, and a melody's pitches, to the decoder's width."""
    b = BlockBuilder("", part="projector")
    x = b.input("encoder", given)
    decoder = c.table("decoder") or Config({}, c.model_id)
    if given != width and not decoder.has("cross_attention_hidden_size"):
        x = b.linear(x, "enc_to_dec_proj", width, bias=True)
    if c.model_type == "musicgen_melody":
        (melody,) = b.op(NoMelody(), "", [], [c.size("num_chroma", default=12)])
        if melody.width != width:
            melody = b.linear(melody, "audio_enc_to_dec_proj", width, bias=True)
        frames = c.size("chroma_length", default=235)
        (x,) = b.op(MelodyBeforeText(frames=frames), "", [melody, x], [width])
    return (b.build(encoder=x),)


def attention(b: BlockBuilder, x: Value, source: Value, c: Config, module: str) -> Value:
    heads, cross = c.heads_of(x.width), source is not x
    b.part, d = "attention", x.width // heads
    pieces = [
        b.heads_first(b.heads(b.linear(value, f"{module}.{name}_proj", x.width), heads))
        for name, value in (("q", x), ("k", source), ("v", source))
    ]
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            causal=not cross,
            style=PLAIN,
            cross=cross,
            dropout=c.number("attention_dropout"),
        ),
        *pieces,
        module=module,
        cache=LayerCache("cross" if cross else "full", heads, d, d),
    )
    return b.dropout(b.linear(mixed, f"{module}.out_proj", x.width, shard="row"), c.number("dropout", 0.1))


def layer(c: Config, index: int, first: int, *, listens: bool) -> Block:
    """Self-attention, attention to the text, an MLP without biases; each pre-norm."""
    b = BlockBuilder(f"decoder.model.decoder.layers.{index}", layer=first + index)
    x = b.input("hidden", c.hidden_size)
    h = b.layer_norm(x, "self_attn_layer_norm")
    x = b.add(x, attention(b, h, h, c, "self_attn"))
    if listens:
        h = b.layer_norm(x, "encoder_attn_layer_norm")
        x = b.add(x, attention(b, h, b.input("encoder", x.width), c, "encoder_attn"))
    b.part = "mlp"
    h = b.linear(b.layer_norm(x, "final_layer_norm"), "fc1", c.size("ffn_dim"))
    h = b.dropout(b.activation(h, c.text("activation_function", "gelu")), c.number("activation_dropout"))
    h = b.dropout(b.linear(h, "fc2", x.width, shard="row"), c.number("dropout", 0.1))
    return b.build(hidden=b.add(x, h))
