"""MusicGen: T5 reads the text, EnCodec makes codes of sound, a decoder writes several codes a step.

MusicGen Melody's decoder has no cross-attention: what it is conditioned on comes before its codes.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families import t5
from vramwise.models.families.nested import renamed, under
from vramwise.models.layers import t5_layers
from vramwise.models.layers.t5_stack import Stack, embedding, encoder_end
from vramwise.models.towers.encodec import codec_weights

HEAD = "seq2seq-lm"
# Defaults of MusicgenDecoderConfig and MusicgenMelodyDecoderConfig (transformers 5.23).
_DECODER: dict[str, Any] = {
    "vocab_size": 2048, "hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096, "num_attention_heads": 16,
    "num_codebooks": 4,
}  # fmt: skip
MOST_CODEBOOKS = 1024


def part(c: Config, name: str, model_type: str) -> Config:
    """The config of an encoder, which is of the type that is described."""
    found = c.table(name) or Config({}, c.model_id)
    if found.model_type not in ("", model_type):
        raise c.error(f"{name}: only {model_type} is described here, not {found.model_type:.40}")
    return found


def text_encoder(c: Config) -> tuple[Block, ...]:
    stack = Stack("encoder", c.num_hidden_layers)
    blocks = (embedding(c, stack), *(t5_layers.layer(c, stack, i) for i in range(stack.num_layers)))
    return tuple(renamed(block, under("text_encoder")) for block in (*blocks, encoder_end(c, stack)))


def bridge(c: Config, given: int, width: int) -> tuple[Block, ...]:
    """Products that bring text, and a melody's pitches, to the decoder's width."""
    b = BlockBuilder("", part="projector")
    x = b.input("encoder", given)
    decoder = c.table("decoder") or Config({}, c.model_id)
    if given != width and not decoder.has("cross_attention_hidden_size"):
        x = b.linear(x, "enc_to_dec_proj", width, bias=True)
    chroma = c.size("num_chroma", default=12)
    if c.model_type == "musicgen_melody" and chroma != width:
        shapes = (("weight", (width, chroma)), ("bias", (width,)))
        x = b.unary(
            "hold", x, "audio_enc_to_dec_proj", [b.parameter("audio_enc_to_dec_proj", *leaf) for leaf in shapes]
        )
    return (b.build(encoder=x),)


def attention(b: BlockBuilder, x: Value, source: Value, c: Config, module: str) -> Value:
    heads, cross = c.num_attention_heads, source is not x
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    b.part, d = "attention", x.width // heads
    pieces = [
        b.heads_first(b.heads(b.linear(value, f"{module}.{name}_proj", x.width), heads))
        for name, value in (("q", x), ("k", source), ("v", source))
    ]
    mixed = b.attention(
        *pieces, num_heads=heads, num_key_value_heads=heads, module=module, causal=not cross, style="plain",
        cross=cross, dropout=c.number("attention_dropout"), cache=LayerCache("cross" if cross else "full", heads, d, d),
    )  # fmt: skip
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


def loss(c: Config) -> str:
    """One for each codebook."""
    return "codes-lm"


def blocks(c: Config) -> tuple[Block, ...]:
    """Text encoder, codec, decoder with a table and a head for each code of a step."""
    text = part(c, "text_encoder", "t5").filled(t5.CLASS_DEFAULTS)
    decoder = (c.table("decoder") or Config({}, c.model_id)).filled(_DECODER)
    width, codes = decoder.hidden_size, decoder.size("num_codebooks")
    if codes > MOST_CODEBOOKS:
        raise c.error(f"num_codebooks: at most {MOST_CODEBOOKS}, got {codes}")
    b = BlockBuilder("audio_encoder", part="audio", modality="audio")
    weights = [b.parameter("", name, shape) for name, shape in codec_weights(part(c, "audio_encoder", "encodec"))]
    codec = b.build(codes=b.op("codec", "", [], [1], weights)[0])
    b = BlockBuilder("decoder", part="embedding")
    rows, many = decoder.vocab_size, range(codes)
    tables = [b.parameter(f"model.decoder.embed_tokens.{i}", "weight", (rows + 1, width), shard="vocab") for i in many]
    listens, first = c.model_type == "musicgen", text.num_hidden_layers
    # Melody's decoder reads its conditions before the codes, so that what it keeps depends on their lengths too.
    kind, what = ("codes_embedding", "codes") if listens else ("undescribed", "conditions before the codes")
    embedded = b.op(kind, "model.decoder", [], [width], tables, name=what)[0]
    start = b.build(hidden=b.dropout(embedded, decoder.number("dropout", 0.1)))
    layers = (layer(decoder, i, first, listens=listens) for i in range(decoder.num_hidden_layers))
    b = BlockBuilder("decoder", part="head")
    x = b.layer_norm(b.input("hidden", width), "model.decoder.layer_norm")
    heads = [b.parameter(f"lm_heads.{i}", "weight", (rows, width), shard="vocab", is_linear=True) for i in many]
    logits = b.op("code_heads", "lm_heads", [x], [rows], heads)[0]
    read = bridge(c, text.hidden_size, width)
    return (*text_encoder(text), codec, *read, start, *layers, b.build(logits=logits))
