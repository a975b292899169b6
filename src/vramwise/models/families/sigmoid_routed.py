"""Grouped-query decoders with experts chosen by sigmoid scores: GLM 4.5, dots, EXAONE, MiniMax M2, Hunyuan 3, Solar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.design import Design, HeadNorm, sliding_window
from vramwise.models.layers.mixture import (
    Mixture,
    Parts,
    every,
    experts,
    full_layers,
    grouped,
    sparse_layers,
    typed_layers,
)
from vramwise.models.layers.mixture_defaults import completed

_KEYS = ("n_routed_experts", "num_local_experts", "num_experts")


def deepseek_style(c: Config, count: int | None) -> Mixture:
    """The router of DeepSeek V3 and its shared experts."""
    normalized = c.flag("norm_topk_prob", c.model_type != "dots1")
    e = experts(c, count, keys=_KEYS, routing="deepseek_v3", normalized=normalized)
    shared = c.size("n_shared_experts", "num_shared_experts", default=1)
    return Mixture(e, routing=grouped(c, e), shared=shared * e.intermediate_size)


def corrected(c: Config, count: int | None, *, shared: int = 0, router: str = "mlp.gate", **routing: Any) -> Mixture:
    """Sigmoid scores, corrected for the choice only, and normalized weights."""
    e = experts(c, count, keys=_KEYS, routing="corrected", router=router)
    defaults = {"widened": False, "in_place": False, "epsilon": True, "scaled": True, "cast": False, "capped": False}
    return Mixture(e, routing={**defaults, **routing}, shared=shared)


def dots1(c: Config, count: int | None) -> Parts:
    bias, window = c.flag("attention_bias"), sliding_window(c)
    first = c.size("max_window_layers", default=62, least=0)
    default = ["sliding_attention" if window and i >= first else "full_attention" for i in range(c.num_hidden_layers)]
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads"))
    dense = c.size("first_k_dense_replace", default=0, least=0)
    return s, deepseek_style(c, count), sparse_layers(c, dense), typed_layers(c, default)


def exaone_moe(c: Config, count: int | None) -> Parts:
    """Only sliding layers are turned, where there are any."""
    window = sliding_window(c)
    default = (
        every(c, c.size("sliding_window_pattern", default=4)) if window else ["full_attention"] * c.num_hidden_layers
    )
    kinds = typed_layers(c, default, unturned="full_attention" if window else "")
    dense = c.size("first_k_dense_replace", default=1, least=0)
    return Design(qk_norm=HeadNorm("heads_first")), deepseek_style(c, count), sparse_layers(c, dense), kinds


def glm4_moe(c: Config, count: int | None) -> Parts:
    norm = HeadNorm("heads") if c.flag("use_qk_norm") else None
    s = Design(qkv_bias=c.flag("attention_bias"), qk_norm=norm, rotary_share=0.5, joined=True)
    dense = c.size("first_k_dense_replace", default=1, least=0)
    return s, deepseek_style(c, count), sparse_layers(c, dense), full_layers(c)


def hy_v3(c: Config, count: int | None) -> Parts:
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    shared = c.size("moe_intermediate_size") * c.size("num_shared_experts", default=1)
    m = replace(corrected(c, count, shared=shared, widened=True), bias=mlp_bias)
    m = replace(m, joined="fp32") if c.flag("enable_moe_fp32_combine", True) else m
    s = Design(qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, qk_norm=HeadNorm("heads_first"))
    return s, m, sparse_layers(c, 1), full_layers(c)


def minimax_m2(c: Config, count: int | None) -> Parts:
    m = corrected(c, count, in_place=True, epsilon=False, scaled=False)
    share = c.size("rotary_dim", default=c.head_dim) / c.head_dim
    s = Design(qk_norm=HeadNorm("projection"), rotary_share=share, joined=True)
    mixture = replace(m, jitters=int(c.number("router_jitter_noise") > 0), balanced=True)
    return s, mixture, sparse_layers(c, 0), full_layers(c)


def solar_open(c: Config, count: int | None) -> Parts:
    s = Design(qkv_bias=c.flag("attention_bias"))
    return s, deepseek_style(c, count), [True] * c.num_hidden_layers, full_layers(c)


_PARTS: dict[str, Callable[[Config, int | None], Parts]] = {
    "dots1": dots1, "exaone_moe": exaone_moe, "glm4_moe": glm4_moe, "hy_v3": hy_v3, "minimax_m2": minimax_m2,
    "solar_open": solar_open,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    return mixture.model(c, *_PARTS[c.model_type](c, count))
