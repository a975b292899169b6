"""CSM: a Llama over words and codes of sound, a small one that writes the other codes of a step, and Mimi.

Parameters, and the cache of the large decoder, are exact; what training keeps of codes is not described, and neither is
what the small decoder holds while it writes a step's codes.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Parameter
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.known_weights import ProductWeight, known_weights, product
from vramwise.models.towers.mimi import mimi_buffers, mimi_weights
from vramwise.models.towers.tower_design import Weight

CLASS_DEFAULTS: dict[str, object] = {
    "num_codebooks": 32, "vocab_size": 2051, "text_vocab_size": 128_256, "hidden_size": 2048, "num_hidden_layers": 16,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu",
    "max_position_embeddings": 2048, "tie_codebooks_embeddings": True,
}  # fmt: skip
DEPTH_DEFAULTS: dict[str, object] = {
    "num_codebooks": 32, "backbone_hidden_size": 2048, "vocab_size": 2051, "hidden_size": 1024,
    "num_hidden_layers": 4, "intermediate_size": 8192, "num_attention_heads": 8, "num_key_value_heads": 2,
    "hidden_act": "silu",
}  # fmt: skip
"""Defaults of `CsmConfig` and `CsmDepthDecoderConfig` (transformers 5.23)."""
_CODES = "backbone_model.embed_tokens.embed_audio_tokens.weight"


def task(c: Config) -> str:
    """It writes the first code of each step; the small decoder writes the rest."""
    return "causal-lm"


def not_counted(c: Config) -> str:
    """What an estimate leaves out."""
    return "the decoder of a step's other codes"


def decoder(c: Config, name: str) -> tuple[Block, ...]:
    """The layers and the norm of a Llama, whose tables and head are CSM's own."""
    llama = Config({**c.values, "model_type": "llama", "tie_word_embeddings": False, "architectures": None}, c.model_id)
    _, *layers, _ = language_model(llama, lambda old: old.replace("model", name, 1))
    b = BlockBuilder("", part="norm")
    return (*layers, b.build(hidden=b.rms_norm(b.input("hidden", c.hidden_size), f"{name}.norm")))


def words_and_codes(c: Config) -> Block:
    """A row for a word, or the sum of a row for each code."""
    b = BlockBuilder("", part="embedding")
    x = b.embedding("embed_text_tokens", c.size("text_vocab_size"), c.hidden_size)
    rows = c.size("num_codebooks") * c.size("vocab_size", "codebook_size")
    table = b.parameter("", _CODES, (rows, c.hidden_size), shard="vocab")
    return b.build(hidden=b.unary(Undescribed(name="codes of sound"), x, "", [table]))


def _below(name: str, p: Parameter) -> Weight:
    leaf = p.name.removeprefix(f"{name}.")
    return ProductWeight(leaf, p.shape) if p.is_linear else (leaf, p.shape)


def depth_decoder(c: Config, d: Config) -> list[Block]:
    """A row for each code, a product to fewer columns, layers, and a head of its own for each place of a step."""
    name, width, outer = "depth_decoder", d.hidden_size, d.size("backbone_hidden_size")
    codes, rows = d.size("num_codebooks", least=2), d.size("vocab_size", "codebook_size")
    table = "model.embed_tokens.weight"
    first: list[Weight] = [(table, (codes * rows, outer)),
                           *product("model.inputs_embeds_projector", width, outer, bias=False)]  # fmt: skip
    tied = {table: _CODES} if c.flag("tie_codebooks_embeddings", True) else {}
    inner = [
        known_weights(block.name, [_below(block.name, p) for p in block.parameters], "a layer over a step's codes",
                      part="audio", modality="audio")
        for block in decoder(d, f"{name}.model")
    ]  # fmt: skip
    heads = [("codebooks_head.weight", (codes - 1, width, rows))]
    return [
        known_weights(name, first, "a step's codes", part="audio", modality="audio", tied=tied), *inner,
        known_weights(name, heads, "heads of a step's codes", part="audio", modality="audio"),
    ]  # fmt: skip


def blocks(config: Config) -> tuple[Block, ...]:
    """Codec, small decoder, words and codes, layers, the head of the first code."""
    c, d = config.filled(CLASS_DEFAULTS), config.part("depth_decoder_config", DEPTH_DEFAULTS)
    codec = config.table("codec_config") or Config({}, config.model_id)
    if codec.model_type not in ("", "mimi"):
        raise config.error(f"codec_config: only mimi is described here, not {codec.model_type:.40}")
    sound = known_weights("codec_model", mimi_weights(codec), "a codec of sound", part="audio", modality="audio",
                          buffers=mimi_buffers(codec))  # fmt: skip
    *layers, norm = decoder(c, "backbone_model")
    b = BlockBuilder("", part="head")
    logits = b.linear(b.input("hidden", c.hidden_size), "lm_head", c.vocab_size, shard="vocab")
    return (sound, *depth_decoder(c, d), words_and_codes(c), *layers, norm, b.build(logits=logits))
