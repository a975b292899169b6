"""Grouped-query decoders with experts chosen by softmax: ERNIE 4.5, FlexOlmo, Hunyuan, Phi 3.5, Aria."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.design import Design, HeadNorm, LayerKind, sliding_window
from vramwise.models.layers.mixture import Mixture, Parts, experts, full_layers
from vramwise.models.layers.mixture_defaults import completed

_KEYS = ("num_experts", "num_local_experts")


def all_sparse(c: Config) -> list[bool]:
    return [True] * c.num_hidden_layers


def aria_text(c: Config, count: int | None) -> Parts:
    chosen = c.size("moe_topk", default=2)
    c = Config({**c.values, "num_experts_per_tok": chosen, "hidden_act": "silu"}, c.model_id)
    e = experts(c, count, keys=("moe_num_experts",), routing="best_first", router="mlp.router", transposed=True)
    shared = e.intermediate_size * c.size("moe_num_shared_experts", default=2)
    bias = c.flag("attention_bias")
    s = Design(qkv_bias=bias, output_bias=bias)
    m = Mixture(e, routing={"widened": False, "function": "softmax"}, shared=shared, bias=c.flag("mlp_bias"))
    return s, m, all_sparse(c), full_layers(c)


def ernie4_5_moe(c: Config, count: int | None) -> Parts:
    chosen = c.size("moe_k", "num_experts_per_tok", default=6)
    c = Config({**c.values, "num_experts_per_tok": chosen, "attention_dropout": 0.0}, c.model_id)
    e = experts(c, count, keys=("moe_num_experts", "num_experts"), routing="ernie4_5_moe")
    bias = c.flag("use_bias")
    shared = c.size("moe_num_shared_experts", default=2, least=0) * e.intermediate_size
    m = Mixture(
        e, correction=("mlp.gate.moe_statics", "e_score_correction_bias", (1, e.num_experts)), shared=shared,
        bias=bias, balanced=True,
    )  # fmt: skip
    s = Design(
        qkv_bias=bias, output_bias=bias, mlp_bias=bias, head_bias=bias, rotary="pairs_widened", rotary_table="fp32",
        tied=True,
    )  # fmt: skip
    layers, period = c.num_hidden_layers, c.size("moe_layer_interval", default=1)
    first, last = (
        c.size("moe_layer_start_index", default=1, least=0),
        c.size("moe_layer_end_index", default=-1, least=-1),
    )
    last = layers - 1 if last == -1 else last
    sparse = [(i + 1) % period == 0 and first <= i <= last for i in range(layers)]
    return s, m, sparse, full_layers(c)


def flex_olmo(c: Config, count: int | None) -> Parts:
    bias = c.flag("attention_bias")
    s = Design(
        norm_style="fp32-product", norms=(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
        qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("projection", style="fp32-product"), rotary="half_fp32",
        rotary_table="fp32",
    )  # fmt: skip
    e = experts(c, count, keys=_KEYS, routing="qwen", normalized=c.flag("norm_topk_prob"))
    return s, Mixture(e, balanced=True), all_sparse(c), full_layers(c)


def hunyuan(c: Config, count: int | None) -> Parts:
    bias = c.flag("attention_bias")
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("turned", names=("query_layernorm", "key_layernorm")))
    values = {**c.values, "num_experts_per_tok": c.size("moe_topk", "num_experts_per_tok", default=1)}
    e = experts(Config(values, c.model_id), count, keys=_KEYS, routing="hunyuan_v1_moe", router="mlp.gate.wg")
    e = replace(e, intermediate_size=c.intermediate_size)
    m = Mixture(e, shared=e.intermediate_size, shared_module="mlp.shared_mlp")
    return s, m, all_sparse(c), full_layers(c)


def phimoe(c: Config, count: int | None) -> Parts:
    bias = c.flag("attention_bias")
    s = Design(
        norm="layer", norm_style="torch", norm_bias=True, qkv_bias=bias, output_bias=bias,
        head_bias=c.flag("lm_head_bias"),
    )  # fmt: skip
    # The class samples two experts for every token, whatever num_experts_per_tok says.
    c = Config({**c.values, "num_experts_per_tok": 2, "moe_intermediate_size": None}, c.model_id)
    e = experts(c, count, keys=("num_local_experts",), routing="sparsemixer", router="mlp.router")
    m = Mixture(e, jitters=2 if c.number("input_jitter_noise") > 0 else 0, balanced=True)
    return s, m, all_sparse(c), [LayerKind(sliding_window(c))] * c.num_hidden_layers


_PARTS: dict[str, Callable[[Config, int | None], Parts]] = {
    "aria_text": aria_text, "ernie4_5_moe": ernie4_5_moe, "flex_olmo": flex_olmo,
    "hunyuan_v1_moe": hunyuan, "phimoe": phimoe,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    return mixture.model(c, *_PARTS[c.model_type](c, count))
