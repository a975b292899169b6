"""Command R to A: attention and MLP side by side on one layer norm, logits times a number; from Command R7B windows."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind
from vramwise.models.layers.windows import every, full_layers, typed_layers


def design(c: Config) -> Design:
    """Norms of queries and keys in Command R+; Compass turns halves as Llama does."""
    bias, normed = c.flag("attention_bias"), c.model_type == "cohere" and c.flag("use_qk_norm")
    return Design(
        norm="layer", norm_style="python", norms=("input_layernorm", None, None, None), qkv_bias=bias, output_bias=bias,
        qk_norm=HeadNorm("heads", "python") if normed else None, scaled_logits=True, tied=True,
        rotary="half" if c.model_type == "cohere_compass_text" else "pairs_fp32",
    )  # fmt: skip


def layer_kinds(c: Config) -> list[LayerKind]:
    """Command R7B turns sliding layers only; Compass has a rotary table for each kind of layer and row of the batch.

    Kinds to which Compass's config gives null for rotary parameters are not turned.
    """
    if c.model_type == "cohere":
        return full_layers(c)
    if c.model_type == "cohere2":
        kinds = typed_layers(c, every(c, c.size("sliding_window_pattern", default=4)))
        return [replace(kind, turned=kind.window is not None) for kind in kinds]
    rope = c.table("rope_parameters") or Config({}, c.model_id)
    kinds = typed_layers(c, ["full_attention"] * c.num_hidden_layers, tables=True)
    return [
        replace(kind, turned=kind.table not in rope.values or rope.has(kind.table), table=f"rows {kind.table}")
        for kind in kinds
    ]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    if c.model_type != "cohere":  # the class derives it, whatever the config says
        c = Config({**c.values, "head_dim": None}, c.model_id)
    return model(c, design(c), layer_kinds(c))
