"""Decoders whose layers take turns between sliding and full attention: Cohere, CWM, EXAONE 4, OLMo 3, Granite."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.design import (
    Design,
    HeadNorm,
    LayerKind,
    sliding_window,
)

_NORMS_AFTER = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")


def design(c: Config) -> Design:
    """The switches that a config sets, by its model type."""
    bias = c.flag("attention_bias")
    if c.model_type.startswith("cohere"):
        rotary = "pairs_fp32" if c.model_type == "cohere2" else "half"
        return Design(
            norm="layer", norm_style="python", norms=("input_layernorm", None, None, None), qkv_bias=bias,
            output_bias=bias, rotary=rotary, scaled_logits=True, tied=True,
        )  # fmt: skip
    if c.model_type == "granite_swa":
        return Design(
            qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"), core="lse_sink", scaled=True,
            scaled_logits=True, tied=True,
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
    elif c.model_type == "cohere_compass_text":
        full = [True for _ in layers]
    elif c.model_type in ("cwm", "granite_swa"):
        full = [i % 4 == 0 for i in layers]
    else:
        period = c.size("sliding_window_pattern", default=4) if c.model_type != "olmo3" else 4
        full = [(i + 1) % period == 0 for i in layers]
    return ["full_attention" if flag else "sliding_attention" for flag in full]


def layer_kinds(c: Config) -> list[LayerKind]:
    """Windows; Command R7B and EXAONE 4 turn only sliding layers, Granite those whose base is not 0.

    OLMo 3 has a rotary table for each kind of layer, Granite one for each base. Compass has one for each kind and row
    of the batch, where the config gives the kind rotary parameters.
    """
    rope = c.table("rope_parameters") or Config({}, c.model_id)
    window = sliding_window(c)
    bases = c.items("layer_rope_theta") or [1] * c.num_hidden_layers
    if len(bases) < c.num_hidden_layers:
        raise c.error(f"layer_rope_theta names {len(bases)} layers, num_hidden_layers is {c.num_hidden_layers}")
    kinds = []
    for name, base in zip(c.layer_types() or default_types(c), bases, strict=False):
        own = window if name == "sliding_attention" else None
        turned = {
            "cohere2": own is not None, "exaone4": window is None or name == "sliding_attention",
            "granite_swa": bool(base), "cohere_compass_text": name not in rope.values or rope.has(name),
        }  # fmt: skip
        tables = {"olmo3": f"fp32 {name}", "granite_swa": f"base {base}", "cohere_compass_text": f"rows {name}"}
        table = tables.get(c.model_type, "")
        kinds.append(LayerKind(own, turned.get(c.model_type, True), table))
    return kinds


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    if c.model_type.startswith("cohere"):  # the class derives it, whatever the config says
        c = Config({**c.values, "head_dim": None}, c.model_id)
    return model(c, design(c), layer_kinds(c))
