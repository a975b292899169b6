"""SpeechT5: one encoder and one decoder for text and speech, with what `architectures` puts before and behind them.

The parameters are those of `SpeechT5ForTextToSpeech`, `SpeechT5ForSpeechToText`, `SpeechT5ForSpeechToSpeech` and the
bare `SpeechT5Model` in transformers 5.23; what training keeps is not described. All of part `audio`.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.wav2vec2 import before_layers, convolutions
from vramwise.models.towers.known_weights import ProductWeight, inside, known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 81, "hidden_size": 768, "encoder_layers": 12, "encoder_attention_heads": 12,
    "encoder_ffn_dim": 3072, "decoder_layers": 6, "decoder_ffn_dim": 3072, "decoder_attention_heads": 12,
    "conv_dim": [512] * 7, "conv_kernel": [10, 3, 3, 3, 3, 2, 2], "num_conv_pos_embeddings": 128,
    "num_conv_pos_embedding_groups": 16, "mask_time_prob": 0.05, "num_mel_bins": 80,
    "speech_decoder_prenet_layers": 2, "speech_decoder_prenet_units": 256, "speaker_embedding_dim": 512,
    "speech_decoder_postnet_layers": 5, "speech_decoder_postnet_units": 256, "speech_decoder_postnet_kernel": 5,
    "reduction_factor": 2, "encoder_max_relative_position": 160, "max_speech_positions": 4000,
    "max_text_positions": 450,
}  # fmt: skip
"""Defaults of `SpeechT5Config`."""
_ENDS = {"ForTextToSpeech": ("text", "speech"), "ForSpeechToText": ("speech", "text"),
         "ForSpeechToSpeech": ("speech", "speech")}  # fmt: skip


def task(c: Config) -> str:
    """Its loops are the class's own."""
    return "none"


def ends(c: Config) -> tuple[str, str] | None:
    """What goes in and comes out; None for the bare model."""
    named = [str(name) for name in c.items("architectures") or []]
    return next((pair for name in named for ending, pair in _ENDS.items() if name.endswith(ending)), None)


def attention(name: str, width: int) -> list[Weight]:
    """Four products with biases."""
    return products([f"{name}.{leaf}_proj" for leaf in ("k", "v", "q", "out")], width, width)


def feed_forward(width: int, inner: int) -> list[Weight]:
    """Two products and the norm behind them."""
    return [*product("feed_forward.intermediate_dense", inner, width),
            *product("feed_forward.output_dense", width, inner), *norms(["final_layer_norm"], width)]  # fmt: skip


def encoder(c: Config) -> list[Weight]:
    """Layers with places relative to one another, of one table."""
    width, inner, heads = c.hidden_size, c.size("encoder_ffn_dim"), c.size("encoder_attention_heads")
    if width % heads:
        raise c.error(f"encoder_attention_heads ({heads}) does not divide hidden_size ({width})")
    one = [*attention("attention", width), *norms(["layer_norm"], width), *feed_forward(width, inner)]
    rows = 2 * c.size("encoder_max_relative_position")
    found: list[Weight] = [*norms(["layer_norm"], width), ("embed_positions.pe_k.weight", (rows, width // heads))]
    return [*found, *(w for i in range(c.size("encoder_layers")) for w in inside(f"layers.{i}", one))]


def decoder(c: Config) -> list[Weight]:
    """Layers that look at themselves and at the encoder."""
    width = c.hidden_size
    one = feed_forward(width, c.size("decoder_ffn_dim"))
    for name in ("self_attn", "encoder_attn"):
        one += [*attention(name, width), *norms([f"{name}_layer_norm"], width)]
    return [w for i in range(c.size("decoder_layers")) for w in inside(f"layers.{i}", one)]


def before_encoder(c: Config, what: str) -> list[Weight]:
    """A table of tokens, or wav2vec 2.0's convolutions over samples."""
    if what == "text":
        return [("embed_tokens.weight", (c.vocab_size, c.hidden_size)), ("encode_positions.alpha", ())]
    renamed = {"feature_extractor": "feature_encoder", "encoder.pos_conv_embed": "pos_conv_embed"}
    found: list[Weight] = []
    for weight in (*convolutions(c), *before_layers(c)):
        name, shape = weight
        if name.startswith("encoder.layer_norm"):
            continue
        old = next((key for key in renamed if name.startswith(key)), "")
        new = renamed[old] + name.removeprefix(old) if old else name
        found.append(ProductWeight(new, shape) if isinstance(weight, ProductWeight) else (new, shape))
    return found


def positions(c: Config, what: str, *, in_decoder: bool) -> list[Weight]:
    """The table of fixed positions before a stack, which no file holds: scaled, or fairseq's with rows for padding."""
    rows = c.size(f"max_{what}_positions")
    if (what == "text") != in_decoder:
        return [("encode_positions.pe", (1, rows, c.hidden_size))]
    name = "embed_positions" if in_decoder else "pos_sinusoidal_embed"
    return [(f"{name}.weights", (rows + c.size("pad_token_id", default=1, least=0) + 3, c.hidden_size))]


def before_decoder(c: Config, what: str) -> list[Weight]:
    """A table of tokens, or products over mel bins and what tells the speaker."""
    width, units = c.hidden_size, c.size("speech_decoder_prenet_units")
    if what == "text":
        return [("embed_tokens.weight", (c.vocab_size, width))]
    found: list[Weight] = [("encode_positions.alpha", ()), *product("final_layer", width, units)]
    found += product("speaker_embeds_layer", width, c.size("speaker_embedding_dim") + width)
    for i in range(c.size("speech_decoder_prenet_layers")):
        found += product(f"layers.{i}", units, units if i else c.size("num_mel_bins"))
    return found


def behind_decoder(c: Config) -> list[Weight]:
    """Mel bins of several frames a step, whether it ends, and convolutions with norms by batch."""
    width, bins, frames = c.hidden_size, c.size("num_mel_bins"), c.size("reduction_factor")
    units, kernel = c.size("speech_decoder_postnet_units"), c.size("speech_decoder_postnet_kernel")
    depth = c.size("speech_decoder_postnet_layers")
    found = [*product("feat_out", bins * frames, width), *product("prob_out", frames, width)]
    for i in range(depth):
        made = bins if i == depth - 1 else units
        found.append((f"layers.{i}.conv.weight", (made, units if i else bins, kernel)))
        found += norms([f"layers.{i}.batch_norm"], made)
    return found


def blocks(config: Config) -> tuple[Block, ...]:
    """Encoder and decoder, with their ends."""
    c = config.filled(CLASS_DEFAULTS)
    pair = ends(c)
    root = "speecht5." if pair else ""

    def block(
        name: str, weights: list[Weight], tied: dict[str, str] | None = None, fixed: Sequence[Weight] = ()
    ) -> Block:
        return known_weights(name, weights, "speech", part="audio", modality="audio", tied=tied or {}, buffers=fixed)

    halves = [block(f"{root}encoder.wrapped_encoder", encoder(c)), block(f"{root}decoder.wrapped_decoder", decoder(c))]
    if pair is None:
        return tuple(halves)
    heard = positions(c, pair[0], in_decoder=False), positions(c, pair[1], in_decoder=True)
    found = [block(f"{root}encoder.prenet", before_encoder(c, pair[0]), fixed=heard[0]), halves[0],
             block(f"{root}decoder.prenet", before_decoder(c, pair[1]), fixed=heard[1]), halves[1]]  # fmt: skip
    if pair[1] == "speech":
        return (*found, block("speech_decoder_postnet", behind_decoder(c)))
    head = product("lm_head", c.vocab_size, c.hidden_size, bias=False)
    table = {"lm_head.weight": "speecht5.decoder.prenet.embed_tokens.weight"}
    tied = table if c.flag("tie_word_embeddings", True) else {}
    return (*found, block("text_decoder_postnet", head, tied))
