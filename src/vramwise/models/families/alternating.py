"""Decoders whose layers take turns between sliding and full attention: Command R7B, CWM, EXAONE 4, OLMo 3."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.class_defaults import with_class_defaults
from vramwise.models.families.decoder import model
from vramwise.models.families.design import (
    Design,
    HeadNorm,
    LayerKind,
    layer_types,
    sliding_window,
)

_NORMS_AFTER = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")


def design(c: Config) -> Design:
    """The switches that a config sets, by its model type."""
    bias = c.flag("attention_bias")
    if c.model_type == "cohere2":
        return Design(
            norm="layer", norm_style="python", norms=("input_layernorm", None, None, None), qkv_bias=bias,
            output_bias=bias, rotary="pairs_fp32", scaled_logits=True, tied=True,
        )  # fmt: skip
    if c.model_type == "cwm":
        return Design(mlp_bias=c.flag("mlp_bias"))
    if c.model_type == "exaone4":
        return Design(norms=_NORMS_AFTER, qk_norm=HeadNorm("heads_first"))
    if c.model_type == "olmo3":
        return Design(
            norm_style="fp32-product", norms=_NORMS_AFTER, qkv_bias=bias, output_bias=bias,
            qk_norm=HeadNorm("projection", style="fp32-product"), rotary="half_fp32",
        )  # fmt: skip
    return Design()


def default_types(c: Config) -> list[str]:
    """The class's own pattern: which layers are full."""
    layers = range(c.num_hidden_layers)
    if c.model_type == "ministral":
        full = [sliding_window(c) is None for _ in layers]
    elif c.model_type == "cwm":
        full = [i % 4 == 0 for i in layers]
    else:
        period = c.size("sliding_window_pattern", default=4) if c.model_type != "olmo3" else 4
        full = [(i + 1) % period == 0 for i in layers]
    return ["full_attention" if flag else "sliding_attention" for flag in full]


def layer_kinds(c: Config) -> list[LayerKind]:
    """Windows; Command R7B and EXAONE 4 turn only sliding layers, OLMo 3 turns each kind by a table of its own."""
    window = sliding_window(c)
    kinds = []
    for name in layer_types(c, default_types(c)):
        own = window if name == "sliding_attention" else None
        turned = {"cohere2": own is not None, "exaone4": window is None or name == "sliding_attention"}
        table = f"fp32 {name}" if c.model_type == "olmo3" else ""
        kinds.append(LayerKind(own, turned.get(c.model_type, True), table))
    return kinds


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    if c.model_type == "cohere2":  # the class derives it, whatever the config says
        c = Config({**c.values, "head_dim": None}, c.model_id)
    return model(c, design(c), layer_kinds(c))
