"""What differs between BART and its relatives, by model type; names and defaults as in transformers 5.23."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from vramwise.models.config import Config
from vramwise.records import record


@record
class Design:
    """Switches of an encoder-decoder of BART's shape.

    `positions`: learned rows (with two that no position uses, or none), or a fixed table among the parameters.
    `embedding_norm`: of the sum of tokens and positions, or in the decoder of the tokens alone. `attention`: heads
    folded into the batch, or queries scaled before them and every piece copied; `masks_one_token`: a decoder's sequence
    of one token is masked too.
    """

    positions: Literal["offset", "learned", "fixed"] = "offset"
    pre_norm: bool = False
    embedding_norm: Literal["sum", "tokens", "none"] = "sum"
    final_norm: str | None = None
    attention: Literal["plain", "folded", "copied"] = "plain"
    attention_bias: bool = True
    masks_one_token: bool = True
    encoder_attention: tuple[str, str] = ("self_attn.{}_proj", "self_attn.out_proj")
    head: str = "lm_head"
    logits_bias: bool = True
    hears: bool = False
    """The encoder reads sound."""


BART = Design()
_PRE_NORM = Design(pre_norm=True, final_norm="layer_norm")
_DESIGNS: dict[str, Design] = {
    "bart": BART,
    "bigbird_pegasus": Design(
        "learned", pre_norm=True, embedding_norm="none", final_norm="layernorm_embedding",
        encoder_attention=("self_attn.self.{}", "self_attn.output"),
    ),
    "blenderbot": replace(_PRE_NORM, positions="learned", embedding_norm="none"),
    "blenderbot-small": Design("learned", embedding_norm="tokens"),
    "led": Design("learned", attention="folded", masks_one_token=False),
    "m2m_100": replace(_PRE_NORM, positions="fixed", embedding_norm="none", logits_bias=False),
    "marian": Design("fixed", embedding_norm="none"),
    "mbart": _PRE_NORM,
    "mvp": Design(attention="folded"),
    "pegasus": replace(_PRE_NORM, positions="fixed", embedding_norm="none"),
    "plbart": BART,
    "trocr": Design(attention="folded", head="output_projection"),
    "whisper": Design(
        "learned", pre_norm=True, embedding_norm="none", final_norm="layer_norm", attention="copied",
        head="proj_out", logits_bias=False, hears=True,
    ),
}  # fmt: skip

_NAMES = ("vocab_size", "d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "decoder_layers",
          "decoder_attention_heads", "decoder_ffn_dim", "max_position_embeddings")  # fmt: skip
_SIZES = {
    "bart": (50265, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "bigbird_pegasus": (96103, 1024, 16, 16, 4096, 16, 16, 4096, 4096),
    "blenderbot": (8008, 2560, 2, 32, 10240, 24, 32, 10240, 128),
    "blenderbot-small": (50265, 512, 8, 16, 2048, 8, 16, 2048, 512),
    "m2m_100": (128112, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "marian": (58101, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "mvp": (50267, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "plbart": (50005, 768, 6, 12, 3072, 6, 12, 3072, 1024),
    "trocr": (50265, 1024, 12, 16, 4096, 12, 16, 4096, 512),
    "whisper": (51865, 384, 4, 6, 1536, 4, 6, 1536, 448),
}
_OTHERS: dict[str, dict[str, object]] = {
    "bigbird_pegasus": {"activation_function": "gelu_new"},
    "m2m_100": {"activation_function": "relu", "attention_dropout": 0.1},
    "plbart": {"attention_dropout": 0.1},
    "whisper": {"dropout": 0.0, "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448},
}


def design_of(config: Config) -> tuple[Config, Design]:
    """The config with its class's defaults, and the switches of its model type."""
    model_type = config.model_type
    design = _DESIGNS[model_type]
    sizes = dict(zip(_NAMES, _SIZES.get(model_type, _SIZES["bart"]), strict=True))
    c = config.filled({"dropout": 0.1, "activation_function": "gelu", **sizes, **_OTHERS.get(model_type, {})})
    if model_type == "bigbird_pegasus":
        design = replace(design, attention_bias=c.flag("use_bias"))
    if model_type == "trocr":
        if not c.flag("use_learned_position_embeddings", True):
            design = replace(design, positions="fixed")
        if not c.flag("layernorm_embedding", True):
            design = replace(design, embedding_norm="none")
    return c, design
