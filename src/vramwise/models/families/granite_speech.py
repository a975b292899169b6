"""Granite Speech: a conformer over frames, a Q-Former over windows of them, and Granite as language model.

Version `plus` hands the frames of some more layers to the Q-Former. The LoRA adapter that checkpoints bring for sound
is not counted, and what training keeps of the conformer and the Q-Former is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.towers.known_weights import known_weights, norms, product
from vramwise.models.towers.query_former import DEFAULTS, query_former
from vramwise.models.towers.tower_design import Weight, layer_norm, with_bias

_ENCODER: dict[str, object] = {
    "input_dim": 160, "num_layers": 10, "hidden_dim": 1024, "feedforward_mult": 4, "num_heads": 8, "output_dim": 42,
    "max_pos_emb": 512, "conv_kernel_size": 15, "conv_expansion_factor": 2,
}  # fmt: skip
"""Defaults of `GraniteSpeechEncoderConfig` (transformers 5.23)."""


def loss(c: Config) -> str:
    """The class shifts its logits itself."""
    return "shifted-lm"


def ends(c: Config) -> list[Weight]:
    """The product before the layers, and the two of the characters that half of them predict."""
    width, out = c.size("hidden_dim"), c.size("output_dim")
    return [*product("input_linear", width, c.size("input_dim")), *product("out", out, width),
            *product("out_mid", width, out)]  # fmt: skip


def layer(c: Config) -> list[Weight]:
    """Two feed-forward halves, attention by relative places within blocks of frames, a convolution, norms."""
    width, heads = c.size("hidden_dim"), c.size("num_heads")
    d = c.size("dim_head", default=max(width // heads, 1))
    inner, convolved = heads * d, width * c.size("conv_expansion_factor")
    found: list[Weight] = []
    for half in ("ff1", "ff2"):
        wide = width * c.size("feedforward_mult")
        found += [*norms((f"{half}.pre_norm",), width), *product(f"{half}.up_proj", wide, width),
                  *product(f"{half}.down_proj", width, wide)]  # fmt: skip
    found += [
        *layer_norm("attn.pre_norm", width), *product("attn.to_q", inner, width, bias=False),
        *product("attn.to_kv", 2 * inner, width, bias=False), *product("attn.to_out", width, inner),
        ("attn.rel_pos_emb.weight", (2 * c.size("max_pos_emb") + 1, d)), *layer_norm("conv.norm", width),
        *with_bias("conv.up_conv", 2 * convolved, width, 1),
        ("conv.depth_conv.conv.weight", (convolved, 1, c.size("conv_kernel_size"))),
        *layer_norm("conv.batch_norm", convolved), *with_bias("conv.down_conv", width, convolved, 1),
        *layer_norm("post_norm", width),
    ]  # fmt: skip
    return found


def projector(c: Config, width: int) -> list[Weight]:
    """Learned queries for each window of frames, the Q-Former, and a product."""
    former = (c.table("projector_config") or Config({}, c.model_id)).filled(DEFAULTS)
    window, rate = c.size("window_size", default=15), c.size("downsample_rate", default=5)
    if window < rate:
        raise c.error(f"window_size ({window}) holds no query at a downsample_rate of {rate}")
    read = [(f"qformer.{leaf}", shape) for leaf, shape in query_former(former, text=False)]
    return [("query", (1, window // rate, former.hidden_size)), *read, *product("linear", width, former.hidden_size)]


def blocks(c: Config) -> tuple[Block, ...]:
    """Conformer, Q-Former, language model."""
    encoder = (c.table("encoder_config") or Config({}, c.model_id)).filled(_ENCODER)
    text = text_config(c, "granite", {})
    tied = c.flag("tie_word_embeddings", True)
    layers = (
        known_weights(
            f"model.encoder.layers.{i}", layer(encoder), "a layer over frames", part="audio", modality="audio"
        )
        for i in range(encoder.size("num_layers"))
    )
    return (
        known_weights("model.encoder", ends(encoder), "frames of sound", part="audio", modality="audio"), *layers,
        known_weights("model.projector", projector(c, text.hidden_size), "a Q-Former", part="projector",
                      modality="audio"),
        *language_blocks(text, "model.language_model", tied=tied),
    )  # fmt: skip
