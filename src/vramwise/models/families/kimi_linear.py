"""Kimi Linear and Bailing hybrid: layers of Kimi delta attention and of latent attention, with experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers import latent_attention, latent_design
from vramwise.models.layers.delta_net import CHUNK
from vramwise.models.layers.hybrid import every, layer_kinds, short_convolution
from vramwise.models.layers.mixture import grouped, sparse_layers
from vramwise.models.layers.parts import gated_mlp, lm_head, token_embedding
from vramwise.models.layers.sparse import Experts, checked, routed_experts

_SHARED: dict[str, Any] = {
    "num_attention_heads": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "hidden_act": "silu",
    "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "norm_topk_prob": True,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "kimi_linear": {
        **_SHARED, "vocab_size": 163_840, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
        "moe_intermediate_size": 1024, "n_group": 1, "topk_group": 1, "num_local_experts": 256,
        "linear_num_heads": 32, "first_k_dense_replace": 1,
    },
    "bailing_hybrid": {
        **_SHARED, "vocab_size": 157_184, "hidden_size": 2560, "intermediate_size": 6144, "num_hidden_layers": 42,
        "moe_intermediate_size": 768, "n_group": 8, "topk_group": 4, "num_local_experts": 512,
        "first_k_dense_replace": 2, "layer_group_size": 6,
    },
}  # fmt: skip
"""Defaults of the configuration classes (transformers 5.23)."""
_OTHER_NAMES = {
    "moe_renormalize": "norm_topk_prob", "num_expert_group": "n_group", "num_experts": "num_local_experts",
    "num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}  # fmt: skip
_NESTED_NAMES = {
    "head_dim": "linear_head_dim", "num_heads": "linear_num_heads", "short_conv_kernel_size": "linear_conv_kernel_dim"
}  # fmt: skip


def completed(c: Config) -> tuple[Config, list[str]]:
    """The config under the class's names, with its defaults, and the kind of each layer."""
    values = {_OTHER_NAMES.get(name, name): value for name, value in c.values.items()}
    nested = c.table("linear_attn_config") or Config({}, c.model_id)
    values |= {name: nested.get(old) for old, name in _NESTED_NAMES.items() if nested.has(old)}
    if c.model_type == "bailing_hybrid":
        # The class writes the rotary width over `head_dim`; the linear layers' own width is kept beside it.
        values.setdefault("linear_head_dim", values.get("head_dim"))
        values.setdefault("linear_num_heads", values.get("num_attention_heads", 32))
    c = Config(values, c.model_id).filled(_DEFAULTS[c.model_type])
    layers = range(c.num_hidden_layers)
    if c.model_type == "bailing_hybrid":
        default = every(c, c.size("layer_group_size"))
    elif nested.has("full_attn_layers"):
        attending = nested.items("full_attn_layers") or []  # counted from one
        default = ["full_attention" if i + 1 in attending else "linear_attention" for i in layers]
    else:
        default = ["full_attention" if i and i % 4 == 0 else "linear_attention" for i in layers]
    return c, layer_kinds(c, default, allowed=("linear_attention", "full_attention"))


def delta_attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(norm(rule(conv(q, k, v), b, decay)) · gate): the delta rule with a decay for every channel of a key."""
    heads, d, kernel = c.size("linear_num_heads"), c.size("linear_head_dim"), c.size("linear_conv_kernel_dim")
    width, kimi, module = heads * d, c.model_type == "kimi_linear", "self_attn"
    b.part = "mixer"
    x, hidden_size = b.unary("padding_zeroed", x), x.width
    pieces = [b.linear(x, f"{module}.{name}_proj", width) for name in "qkv"]
    (joint,) = b.op("concatenate", module, pieces, [3 * width])
    h = b.unary("channels_first", joint)
    h = short_convolution(b, h, f"{module}.conv1d", kernel, function=c.text("hidden_act"))
    q, k, v = b.split(b.unary("channels_last", h), [width] * 3)
    decay = forget_gate(b, x, c, width, heads, module)
    beta = b.linear(x, f"{module}.b_proj", heads)
    settings: dict[str, Any] = {"num_heads": heads, "chunk_size": CHUNK}
    (mixed,) = b.op("kimi_delta_rule", module, [q, k, v, beta, decay], [width], **settings)
    gate = b.linear(x, f"{module}.g_a_proj", d, shard="replicated") if kimi else x
    gate = b.linear(gate, f"{module}.{'g_b_proj' if kimi else 'g_proj'}", width)
    weight = b.parameter(f"{module}.o_norm", "weight", (d,), part="norm")
    (mixed,) = b.op("sigmoid_gated_norm", f"{module}.o_norm", [mixed, gate], [width], [weight])
    b.keep(LayerCache("recurrent", conv_state_elements=3 * width * kernel, state_elements=width * d))
    return b.linear(mixed, f"{module}.o_proj", hidden_size, shard="row")


def forget_gate(b: BlockBuilder, x: Value, c: Config, width: int, heads: int, module: str) -> Value:
    """The logarithm of the decay of every channel; Kimi's comes through a narrow product."""
    module, kimi = f"{module}.forget_gate", c.model_type == "kimi_linear"
    rates = b.parameter(module, "A_log", (1, 1, heads, 1) if kimi else (heads,), shard="column")
    parameters = [b.parameter(module, "dt_bias", (width,), shard="column"), rates]
    if kimi:
        h = b.linear(x, f"{module}.f_a_proj", width // heads, shard="replicated")
        h = b.linear(h, f"{module}.f_b_proj", width)
        return b.unary("kimi_forget_gate", h, module, parameters, num_heads=heads)
    h = b.linear(x, f"{module}.f_proj", width)
    bounded = c.flag("kda_safe_gate", True)
    return b.unary("bailing_forget_gate", h, module, parameters, num_heads=heads, bounded=bounded)


def latent(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Latent attention; Kimi's has no positions, Bailing's a gate for every head."""
    s = latent_design.sizes(c)
    if c.model_type == "kimi_linear":
        return latent_attention.attention(b, x, c, replace(s, style="unturned"))
    return latent_attention.attention(b, x, c, replace(s, rank=None, output_gate="by_head_fp32"))


def layer(c: Config, index: int, kind: str, e: Experts | None) -> Block:
    """A pre-norm decoder layer, dense without experts."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(x, "input_layernorm")
    x = b.add(x, delta_attention(b, h, c) if kind == "linear_attention" else latent(b, h, c))
    h, function = b.rms_norm(x, "post_attention_layernorm"), c.text("hidden_act")
    if e is None:
        return b.build(hidden=b.add(x, gated_mlp(b, h, c.intermediate_size, function)))
    routed = routed_experts(b, h, e, **grouped(c, e))
    width = e.intermediate_size * c.size("n_shared_experts")
    shared = gated_mlp(b, h, width, function, module="mlp.shared_experts")
    return b.build(hidden=b.add(x, b.add(routed, shared)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; the classes never tie the head's weight."""
    c, kinds = completed(c)
    e = checked(c, Experts(
        num_experts=c.size("num_local_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.size("moe_intermediate_size"), function=c.text("hidden_act"), routing="deepseek_v3",
        normalized=c.flag("norm_topk_prob"),
    ))  # fmt: skip
    sparse = sparse_layers(c, c.size("first_k_dense_replace", least=0))
    each = enumerate(zip(kinds, sparse, strict=True))
    layers = tuple(layer(c, i, kind, e if flag else None) for i, (kind, flag) in each)
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=False))
