"""Families that are `decoder` with switches: Phi, OLMo, Cohere, GLM, StarCoder 2, StableLM, Nemotron and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.design import Design, HeadNorm, LayerKind

_LAYERNORMS = ("q_layernorm", "k_layernorm")


def cohere(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm="layer", norm_style="python", norms=("input_layernorm", None, None, None), qkv_bias=bias, output_bias=bias,
        qk_norm=HeadNorm("heads", "python") if c.flag("use_qk_norm") else None, rotary="pairs_fp32",
        scaled_logits=True, tied=True,
    )  # fmt: skip


def glm(c: Config) -> Design:
    return Design(qkv_bias=c.flag("attention_bias", True), mlp="fused", rotary="pairs", rotary_share=0.5, joined=True)


def glm4(c: Config) -> Design:
    names = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    return replace(glm(c), norms=names)


def granite(c: Config) -> Design:
    bias = c.flag("attention_bias")
    mlp_bias = c.flag("mlp_bias")
    return Design(qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, scaled=True, scaled_logits=True)


def helium(c: Config) -> Design:
    if c.num_attention_heads * c.head_dim != c.hidden_size:
        raise c.error("its output projection needs num_attention_heads · head_dim = hidden_size")
    return Design(
        norm_style="fp32-weight", qkv_bias=c.flag("attention_bias"), mlp_bias=c.flag("mlp_bias"), rotary="pairs"
    )


def nemotron(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm="layer", norm_style="one-plus-weight", norm_bias=True, qkv_bias=bias, output_bias=bias,
        mlp_bias=c.flag("mlp_bias"), mlp="plain", rotary_share=0.5, joined=True,
    )  # fmt: skip


def olmo(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm="layer", norm_style="fp32", norm_weight=False, qkv_bias=bias, output_bias=bias,
        clip_qkv=c.has("clip_qkv"), rotary="half_fp32", rotary_table="fp32",
    )  # fmt: skip


def olmo2(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm_style="fp32-product", norms=(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
        qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("projection", style="fp32-product"), rotary="half_fp32",
        rotary_table="fp32",
    )  # fmt: skip


def phi(c: Config) -> Design:
    after = c.number("resid_pdrop")
    return Design(
        norm="layer", norm_style="torch", norm_bias=True, norms=("input_layernorm", None, None, None),
        final_norm="model.final_layernorm", qkv_bias=True, output_bias=True, mlp_bias=True, head_bias=True,
        qk_norm=HeadNorm("heads_first", "layer", _LAYERNORMS) if c.flag("qk_layernorm") else None, output="dense",
        mlp="plain", mlp_names=("fc1", "fc2"),
        rotary_share=0.5, joined=True, dropouts=(c.number("embd_pdrop"), after, after),
    )  # fmt: skip


def phi3(c: Config) -> Design:
    after = c.number("resid_pdrop")
    return Design(fused_qkv="joint", mlp="fused", joined=True, dropouts=(0.0, after, after))


def smollm3(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"), tied=True)


def stablelm(c: Config) -> Design:
    second = None if c.flag("use_parallel_residual") else "post_attention_layernorm"
    return Design(
        norm="layer", norm_style="torch", norm_bias=True, norms=("input_layernorm", None, second, None),
        qkv_bias=c.flag("use_qkv_bias"),
        qk_norm=HeadNorm("heads_first", "per_head", _LAYERNORMS) if c.flag("qk_layernorm") else None,
        rotary_share=0.25, joined=True, dropouts=(0.0, 0.0, c.number("hidden_dropout")),
    )  # fmt: skip


def starcoder2(c: Config) -> Design:
    bias, after = c.flag("use_bias", True), c.number("residual_dropout")
    return Design(
        norm="layer", norm_style="torch", norm_bias=True, qkv_bias=bias, output_bias=bias, mlp_bias=bias, mlp="plain",
        mlp_names=("c_fc", "c_proj"), dropouts=(c.number("embedding_dropout"), after, after), tied=True,
    )  # fmt: skip


_DESIGNS: dict[str, Callable[[Config], Design]] = {
    "cohere": cohere, "glm": glm, "glm4": glm4, "granite": granite, "helium": helium, "nemotron": nemotron,
    "olmo": olmo, "olmo2": olmo2, "phi": phi, "phi3": phi3, "smollm3": smollm3, "stablelm": stablelm,
    "starcoder2": starcoder2,
}  # fmt: skip


def layer_kinds(c: Config) -> list[LayerKind]:
    """Windows and, in SmolLM 3, the layers without rotary positions."""
    window = c.size("sliding_window", default=0, least=0) or None
    layers = range(c.num_hidden_layers)
    if c.model_type in ("phi3", "starcoder2"):
        return [LayerKind(window) for _ in layers]
    if c.model_type != "smollm3":
        return [LayerKind() for _ in layers]
    period = c.size("no_rope_layer_interval", default=4)
    turned = c.items("no_rope_layers") or [int((i + 1) % period != 0) for i in layers]
    slides = c.flag("use_sliding_window") and window is not None
    types = c.items("layer_types") or ["full_attention" if flag else "sliding_attention" for flag in turned]
    if len(turned) < len(layers) or len(types) < len(layers):
        raise c.error(f"no_rope_layers and layer_types must name {len(layers)} layers each")
    return [LayerKind(window if slides and types[i] == "sliding_attention" else None, bool(turned[i])) for i in layers]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    return model(c, _DESIGNS[c.model_type](c), layer_kinds(c))
