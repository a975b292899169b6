"""Families that are `decoder` with switches and full attention in every layer, or one window for all."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.design import Design, HeadNorm, LayerKind, sliding_window


def apertus(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norms=("attention_layernorm", None, "feedforward_layernorm", None), qkv_bias=bias, output_bias=bias,
        qk_norm=HeadNorm("heads_first"), mlp="plain",
    )  # fmt: skip


def bitnet(c: Config) -> Design:
    if c.num_attention_heads * c.head_dim != c.hidden_size:
        raise c.error("its norm after attention needs num_attention_heads · head_dim = hidden_size")
    bias = c.flag("attention_bias")
    return Design(qkv_bias=bias, output_bias=bias, sub_norms=True)


def ernie4_5(c: Config) -> Design:
    bias = c.flag("use_bias")
    return Design(
        qkv_bias=bias, output_bias=bias, mlp_bias=bias, rotary="pairs_widened", rotary_table="fp32", tied=True
    )


def hunyuan(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("turned", names=("query_layernorm", "key_layernorm"))
    )


def hyperclovax(c: Config) -> Design:
    bias, after = c.flag("attention_bias"), c.flag("use_post_norm", True)
    names = ("input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2")
    return Design(
        norms=names if after else Design().norms, qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"),
        scaled=True, scaled_logits=True,
    )  # fmt: skip


def diffllama(c: Config) -> Design:
    if c.number("attention_dropout") or c.num_key_value_heads % 2:
        raise c.error("differential attention wants an even num_key_value_heads and no attention_dropout")
    bias = c.flag("attention_bias")
    return Design(qkv_bias=bias, output_bias=bias, core="differential")


def llama(c: Config) -> Design:
    """InternLM 3 spells the biases `qkv_bias` and `bias`; Arcee has Nemotron's MLP."""
    bias = c.flag("attention_bias", c.flag("qkv_bias"))
    return Design(
        qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias", c.flag("bias")),
        mlp="plain" if c.model_type == "arcee" else "gated",
    )  # fmt: skip


def jais2(c: Config) -> Design:
    bias = c.flag("attention_bias", True)
    return Design(
        norm="layer", norm_style="torch", norm_bias=True, qkv_bias=bias, output_bias=bias,
        mlp_bias=c.flag("mlp_bias", True), mlp="plain",
    )  # fmt: skip


def nanochat(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm_style="unweighted", first_norm=True, qkv_bias=bias, output_bias=bias, mlp="plain",
        mlp_names=("fc1", "fc2"), qk_norm=HeadNorm("turned", style="unweighted"),
        capped_logits=c.has("final_logit_softcapping"),
    )  # fmt: skip


def persimmon(c: Config) -> Design:
    names = ("q_layernorm", "k_layernorm")
    return Design(
        norm="layer", norm_style="torch", norm_bias=True, final_norm="model.final_layernorm", fused_qkv="by_head",
        qkv_bias=True, output_bias=True, mlp_bias=True, mlp="plain", mlp_names=("dense_h_to_4h", "dense_4h_to_h"),
        qk_norm=HeadNorm("heads", "layer", names) if c.flag("qk_layernorm", True) else None, output="dense",
        rotary_share=0.5, joined=True, dropouts=(0.0, 0.0, c.number("hidden_dropout")),
    )  # fmt: skip


def seed_oss(c: Config) -> Design:
    after = c.number("residual_dropout")
    return Design(
        qkv_bias=c.flag("attention_bias", True), output_bias=c.flag("attention_out_bias"), mlp_bias=c.flag("mlp_bias"),
        dropouts=(0.0, after, after),
    )  # fmt: skip


_DESIGNS: dict[str, Callable[[Config], Design]] = {
    "apertus": apertus, "arcee": llama, "bitnet": bitnet, "diffllama": diffllama, "ernie4_5": ernie4_5,
    "hunyuan_v1_dense": hunyuan, "hyperclovax": hyperclovax, "internlm3": llama, "iquestcoder": llama, "jais2": jais2,
    "ministral3": lambda c: Design(scaled_queries="every"), "nanochat": nanochat, "persimmon": persimmon,
    "seed_oss": seed_oss,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    if c.model_type == "persimmon":  # its class has no grouped queries
        c = Config({**c.values, "num_key_value_heads": None, "head_dim": None}, c.model_id)
    elif c.model_type == "ernie4_5":  # nor this one attention dropout
        c = Config({**c.values, "attention_dropout": 0.0}, c.model_id)
    window = sliding_window(c) if c.model_type == "ministral3" else None
    return model(c, _DESIGNS[c.model_type](c), [LayerKind(window)] * c.num_hidden_layers)
