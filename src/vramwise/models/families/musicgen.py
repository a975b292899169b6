"""MusicGen: T5 reads the text, EnCodec makes codes of sound, a decoder writes several codes a step.

MusicGen Melody's decoder has no cross-attention: what it is conditioned on comes before its codes.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families import t5
from vramwise.models.families.nested import renamed, under
from vramwise.models.layers import t5_layers
from vramwise.models.layers.code_decoder import bridge, layer
from vramwise.models.layers.t5_stack import Stack, embedding, encoder_end
from vramwise.models.operations.codes import CodeHeads, CodesEmbedding
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.encodec import codec_buffers, codec_weights

HEAD = "seq2seq-lm"
# Defaults of MusicgenDecoderConfig and MusicgenMelodyDecoderConfig (transformers 5.23).
_DECODER: dict[str, object] = {
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


def counted_as(c: Config) -> str:
    """What an estimate says of melodies."""
    return "no melody is given: its frames are a silent one repeated" if c.model_type == "musicgen_melody" else ""


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
    encodec = part(c, "audio_encoder", "encodec")
    weights = [b.parameter("", name, shape) for name, shape in codec_weights(encodec)]
    for name, shape in codec_buffers(encodec):
        b.buffer("", name, shape)
    codec = b.build(codes=b.op(Undescribed(name="a codec of sound"), "", [], [1], weights)[0])
    b = BlockBuilder("decoder", part="embedding")
    rows, many = decoder.vocab_size, range(codes)
    tables = [b.parameter(f"model.decoder.embed_tokens.{i}", "weight", (rows + 1, width), shard="vocab") for i in many]
    listens, first = c.model_type == "musicgen", text.num_hidden_layers
    conditions = [] if listens else [b.input("encoder", width)]
    b.buffer("model.decoder.embed_positions", "weights", (decoder.size("max_position_embeddings", default=2048), width))
    (embedded,) = b.op(CodesEmbedding(), "model.decoder", conditions, [width], tables)
    start = b.build(hidden=b.dropout(embedded, decoder.number("dropout", 0.1)))
    layers = (layer(decoder, i, first, listens=listens) for i in range(decoder.num_hidden_layers))
    b = BlockBuilder("decoder", part="head")
    x = b.layer_norm(b.input("hidden", width), "model.decoder.layer_norm")
    heads = [b.parameter(f"lm_heads.{i}", "weight", (rows, width), shard="vocab", is_linear=True) for i in many]
    logits = b.op(CodeHeads(), "lm_heads", [x], [rows], heads)[0]
    read = bridge(c, text.hidden_size, width)
    return (*text_encoder(text), codec, *read, start, *layers, b.build(logits=logits))
