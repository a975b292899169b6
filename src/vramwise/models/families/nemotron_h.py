"""Nemotron H: every layer is one thing, Mamba 2, attention without positions, an MLP or experts."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers import mamba2_mixer
from vramwise.models.layers.grouped_attention import grouped_attention
from vramwise.models.layers.hybrid import old_names
from vramwise.models.layers.mamba2_mixer import Mamba2
from vramwise.models.layers.mixture import grouped
from vramwise.models.layers.sparse import Experts, checked, expert_mlps, routed

CLASS_DEFAULTS: dict[str, Any] = {
    "vocab_size": 131_072, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 21_504, "mlp_hidden_act": "relu2", "ssm_state_size": 128, "mamba_num_heads": 128,
    "mamba_head_dim": 64, "mamba_hidden_act": "silu", "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True,
    "chunk_size": 128, "n_routed_experts": 8, "moe_intermediate_size": 7688,
    "moe_shared_expert_intermediate_size": 7688, "num_experts_per_tok": 2, "norm_topk_prob": True,
}  # fmt: skip
"""Defaults of `NemotronHConfig` (transformers 5.23)."""
_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
_OLDER = {
    "n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv", "use_conv_bias": "mamba_conv_bias",
    "chunk_size": "mamba_chunk_size", "n_routed_experts": "num_local_experts",
}  # fmt: skip


def kinds(c: Config) -> list[str]:
    """What each layer is, from a list or from a pattern of letters, whose length is the number of layers."""
    given = c.items("layers_block_type") or c.items("layer_types")
    if given is None:
        pattern = c.text("hybrid_override_pattern", "ME*-")
        given = [_LETTERS.get(letter, letter) for letter in pattern]
    found = old_names(given)
    for kind in found:
        if kind not in _LETTERS.values():
            raise c.error(f'"{kind:.40}" is no kind of layer; known are {", ".join(_LETTERS.values())}')
    return found


def mlp(b: BlockBuilder, x: Value, c: Config, width: int, module: str = "mixer") -> Value:
    """down(act(up(x)))."""
    bias, function = c.flag("mlp_bias"), c.text("mlp_hidden_act")
    h = b.activation(b.linear(x, f"{module}.up_proj", width, bias=bias, part="mlp"), function, f"{module}.act_fn")
    return b.linear(h, f"{module}.down_proj", x.width, bias=bias, shard="row", part="mlp")


def moe(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Experts of two products, on a narrower copy of the stream where the config names one, plus a shared MLP."""
    e = checked(c, Experts(
        num_experts=c.size("n_routed_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.size("moe_intermediate_size"), function=c.text("mlp_hidden_act"), routing="deepseek_v3",
        normalized=c.flag("norm_topk_prob"), gating="none", router="mixer.gate", module="mixer.experts",
        fused_branches=1, gated=False,
    ))  # fmt: skip
    weights, indices = routed(b, x, e, **grouped(c, e))
    h, bias = x, c.flag("mlp_bias")
    narrow = c.size("moe_latent_size") if c.has("moe_latent_size") else None
    if narrow:
        h = b.linear(h, "mixer.fc1_latent_proj", narrow, bias=bias, shard="replicated", part="mlp")
    h = expert_mlps(b, h, weights, indices, e)
    if narrow:
        h = b.linear(h, "mixer.fc2_latent_proj", x.width, bias=bias, shard="replicated", part="mlp")
    shared = mlp(b, x, c, c.size("moe_shared_expert_intermediate_size"), "mixer.shared_experts")
    return b.add(h, shared)


def mixer_sizes(c: Config) -> Mamba2:
    bias = c.flag("use_bias")
    return mamba2_mixer.checked(c, Mamba2(
        c.size("mamba_num_heads"), c.size("mamba_head_dim"), c.size("n_groups"), c.size("ssm_state_size"),
        c.size("conv_kernel"), c.size("chunk_size"), bias, bias, c.flag("use_conv_bias"), c.text("mamba_hidden_act"),
    ))  # fmt: skip


def layer(c: Config, index: int, kind: str) -> Block:
    """A norm, one mixer and a residual."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(b.unary("to_parameter_dtype", x), "norm", style="fp32-weight")
    if kind == "linear_attention":
        h = mamba2_mixer.mixer(b, h, mixer_sizes(c))
    elif kind == "full_attention":
        h = grouped_attention(b, h, c, "mixer", turned=None)
    elif kind == "moe":
        h = moe(b, h, c)
    else:
        h = mlp(b, h, c, c.intermediate_size)
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; the class never ties the head's weight."""
    older = {name: c.get(old) for name, old in _OLDER.items() if c.has(old)}
    c = Config({**c.values, **older}, c.model_id).filled(CLASS_DEFAULTS)
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("model.embeddings", c.vocab_size, c.hidden_size))
    layers = (layer(c, i, kind) for i, kind in enumerate(kinds(c)))
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "model.norm_f", style="fp32-weight")
    return (first, *layers, b.build(logits=b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head")))
