"""Jamba: layers of Mamba and of attention without positions, every second one with experts."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mamba_mixer import Mamba, low_rank, mixer
from vramwise.models.layers.mixture import Mixture, model
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.routed_experts import Experts, checked

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 65_536, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "num_experts_per_tok": 2,
    "num_experts": 16, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
    "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True,
}  # fmt: skip
"""Defaults of `JambaConfig` (transformers 5.23)."""


def mixer_sizes(c: Config) -> Mamba:
    inner = int(c.number("mamba_expand") * c.hidden_size)
    return Mamba(
        inner, c.size("mamba_d_state"), low_rank(c, "mamba_dt_rank"), c.size("mamba_d_conv"),
        c.flag("mamba_proj_bias"), c.flag("mamba_conv_bias"), c.text("hidden_act"), norm="llama",
    )  # fmt: skip


def at(c: Config, index: int, name: str) -> bool:
    """Whether a layer is one of those that come every so often, from an offset on."""
    return index % c.size(f"{name}_period") == c.size(f"{name}_offset", least=0)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(CLASS_DEFAULTS)
    num_experts = c.size("num_experts", "num_local_experts")
    e = checked(c, Experts(
        num_experts=num_experts, experts_per_token=min(num_experts, c.size("num_experts_per_tok")),
        intermediate_size=c.intermediate_size, function=c.text("hidden_act"), routing="jamba", normalized=False,
        router="feed_forward.router", module="feed_forward.experts",
    ))  # fmt: skip
    sparse = [num_experts > 1 and at(c, i, "expert_layer") for i in range(c.num_hidden_layers)]
    mamba = partial(mixer, s=mixer_sizes(c), module="mamba")
    mlp = partial(gated_mlp, width=c.intermediate_size, function=c.text("hidden_act"), module="feed_forward")
    attention = partial(grouped_attention, c=c, turned=None)
    mixers = [attention if at(c, i, "attn_layer") else mamba for i in range(c.num_hidden_layers)]
    s = Design(norms=("input_layernorm", None, "pre_ff_layernorm", None), final_norm="model.final_layernorm")
    return model(c, s, Mixture(e, balanced=True), sparse, [LayerKind(attention=own, mlp=mlp) for own in mixers])
