"""Ling and Ring (Bailing): grouped queries from one product, experts beside shared ones; layers of linear attention.

Version 1 chooses experts by a softmax; version 2 norms heads, chooses by corrected sigmoid scores and turns half of
each head. The linear versions have lightning attention in all but every `layer_group_size`-th layer, which attends by
grouped queries or, where the config has `kv_lora_rank` (2.5), by multi-head latent attention. Parameter names are those
of the modeling files in inclusionAI/Ling, Ling-V2 and Ring-V2.5, except that routed experts are one 3-D parameter a
product. LLaDA 2's mixture is version 2's, whose attention looks both ways within the block of text that it makes. Not
counted: the layers for multi-token prediction, and what training keeps of linear attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.nested import renamed
from vramwise.models.layers import latent_attention, latent_design, mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind
from vramwise.models.layers.mixture import Mixture, experts, grouped
from vramwise.models.layers.sigmoid_routing import deepseek_style
from vramwise.models.operations.undescribed import Undescribed

_DEFAULTS: dict[str, dict[str, object]] = {
    "bailing_moe": {
        "vocab_size": 30_592, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_experts": 16, "num_experts_per_tok": 2, "num_shared_experts": 0, "first_k_dense_replace": 0,
        "use_bias": True, "norm_topk_prob": True,
    },
    "bailing_moe_v2": {
        "vocab_size": 157_184, "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20,
        "num_attention_heads": 16, "num_key_value_heads": 4, "num_experts": 256, "num_experts_per_tok": 8,
        "num_shared_experts": 1, "n_group": 8, "topk_group": 4, "moe_intermediate_size": 512,
        "first_k_dense_replace": 1, "head_dim": 128, "use_qk_norm": True, "norm_topk_prob": True,
    },
}  # fmt: skip
"""Defaults of the remote configuration classes."""
_LINEAR = {"layer_group_size": 5, "group_norm_size": 4}
_OF_FIRST_VERSION = frozenset({"bailing_moe"})
_NAMES = (
    ("self_attn.qkv_proj", "attention.query_key_value"), ("self_attn.o_proj", "attention.dense"),
    ("self_attn.", "attention."), ("model.embed_tokens", "model.word_embeddings"),
)  # fmt: skip


def completed(config: Config) -> Config:
    """The config with its class's defaults; no key-value heads mean as many as heads."""
    first = config.model_type in _OF_FIRST_VERSION
    c = config.filled(_DEFAULTS["bailing_moe" if first else "bailing_moe_v2"])
    if config.model_type == "bailing_moe_linear":
        c = c.filled(_LINEAR)
    groups = c.size("num_key_value_heads", default=0, least=0) or c.num_attention_heads
    head = c.size("head_dim", default=c.hidden_size // c.num_attention_heads)
    return Config({**c.values, "num_key_value_heads": groups, "head_dim": head}, c.model_id)


def mixture_of(c: Config) -> Mixture:
    """Version 1 takes a softmax's largest, later ones DeepSeek V3's corrected sigmoid scores within groups."""
    shared_width = c.size("moe_shared_expert_intermediate_size", default=c.size("moe_intermediate_size"))
    shared = c.size("num_shared_experts", default=0, least=0) * shared_width
    if c.model_type in _OF_FIRST_VERSION:
        normalized = c.flag("norm_topk_prob", True)
        e = experts(c, None, keys=("num_experts",), routing="deepseek_v2", normalized=normalized)
        return Mixture(e, routing={"num_groups": 0}, shared=shared)
    m = deepseek_style(c, None)
    return replace(m, routing=grouped(c, m.experts), shared=shared)


def lightning_attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """A decaying sum over the past for each head, normed in groups and gated; its state does not grow."""
    b.part = "attention"
    heads, d, module = c.num_attention_heads, c.head_dim, "self_attn"
    qkv = b.linear(x, f"{module}.qkv_proj", 3 * heads * d, bias=c.flag("use_qkv_bias"))
    names = ("query_layernorm", "key_layernorm") if c.flag("use_qk_norm") else ()
    weights = [b.parameter(f"{module}.{name}", "weight", (d,), part="norm") for name in names]
    weights.append(b.parameter(f"{module}.g_norm", "weight", (heads * d,), part="norm"))
    gate = b.linear(x, f"{module}.g_proj", heads * d)
    b.keep(LayerCache("recurrent", state_elements=heads * d * d))
    (mixed,) = b.op(Undescribed(name="lightning attention"), "", [qkv, gate], [heads * d], weights)
    return b.linear(mixed, f"{module}.o_proj", x.width, bias=c.flag("use_bias"), shard="row")


def latent(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Multi-head latent attention (2.5); both products that compress have biases where the config says so."""
    s = replace(latent_design.sizes(c), bias=c.flag("use_qkv_bias"))
    return latent_attention.attention(b, x, c, s)


def layer_kinds(c: Config) -> list[LayerKind]:
    """Which layers attend, and how; the last ones do that fill no whole group."""
    if c.model_type != "bailing_moe_linear":
        return [LayerKind()] * c.num_hidden_layers
    group, count = c.size("layer_group_size"), c.num_hidden_layers
    attending: Callable[..., Value] | None = partial(latent, c=c) if c.has("kv_lora_rank") else None
    linear = partial(lightning_attention, c=c)
    return [
        LayerKind(attention=attending if (i + 1) % group == 0 or i >= count // group * group else linear)
        for i in range(count)
    ]


def in_file(name: str) -> str:
    """A parameter's name in the modeling files."""
    for ours, theirs in _NAMES:
        name = name.replace(ours, theirs)
    return name


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = completed(config)
    first = c.model_type in _OF_FIRST_VERSION
    norm = HeadNorm("heads_first", names=("query_layernorm", "key_layernorm")) if c.flag("use_qk_norm") else None
    share = c.number("partial_rotary_factor", 1.0) if first or c.has("partial_rotary_factor") else 1.0
    s = Design(
        qkv_bias=c.flag("use_qkv_bias"), output_bias=c.flag("use_bias"), fused_qkv="joint", qk_norm=norm,
        rotary_share=share,
    )  # fmt: skip
    dense = c.size("first_k_dense_replace", default=0, least=0)
    sparse = [i >= dense for i in range(c.num_hidden_layers)]
    return tuple(renamed(block, in_file) for block in mixture.model(c, s, mixture_of(c), sparse, layer_kinds(c)))
