"""Bamba and Granite 4: layers of Mamba 2 and of attention, each with an MLP or experts after it."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families import granite_moe
from vramwise.models.layers import decoder, mamba2_mixer
from vramwise.models.layers.decoder_attention import rotary_columns
from vramwise.models.layers.design import Design
from vramwise.models.layers.grouped_attention import grouped_attention
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.mixture import Mixture, experts, feed_forward
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.routed_experts import balancing_loss

_SHARED: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_act": "silu",
    "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_chunk_size": 256, "mamba_conv_bias": True,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "bamba": {**_SHARED, "vocab_size": 128_000, "intermediate_size": 14_336, "num_key_value_heads": 8},
    "granitemoehybrid": {
        **_SHARED, "vocab_size": 32_000, "intermediate_size": 11_008, "num_local_experts": 8,
        "num_experts_per_tok": 2, "shared_intermediate_size": 1024,
    },
}  # fmt: skip


def kinds(c: Config) -> list[str]:
    """Which layers attend: Bamba by number, Granite by `layer_types`."""
    layers = c.num_hidden_layers
    if c.model_type == "bamba":
        attending = c.items("attn_layer_indices") or []
        return ["full_attention" if i in attending else "linear_attention" for i in range(layers)]
    key = "layer_types" if c.has("layer_types") else "layers_block_type"
    return layer_kinds(c, ["linear_attention"] * layers, key=key, allowed=("linear_attention", "full_attention"))


def granite_experts(c: Config) -> Mixture | None:
    """Granite's experts beside its shared MLP; none where the config counts none."""
    if c.model_type == "bamba" or c.size("num_local_experts", least=0) == 0:
        return None
    module, shared = "block_sparse_moe", c.size("shared_intermediate_size")
    e = experts(c, None, keys=("num_local_experts",), routing="best_first", router=f"{module}.router",
                module=f"{module}.experts")  # fmt: skip
    return Mixture(e, routing={"widened": True, "function": "softmax"}, shared=shared,
                   shared_mlp=granite_moe.fused_shared)  # fmt: skip


def layer(c: Config, index: int, kind: str, m: Mixture | None) -> Block:
    """A pre-norm decoder layer; Granite scales what it adds."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    granite, bias = c.model_type != "bamba", c.flag("attention_bias")
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(x, "input_layernorm")
    if kind == "linear_attention":
        h = mamba2_mixer.mixer(b, h, mamba2_mixer.sizes(c, int(c.number("mamba_expand") * x.width)), "mamba")
    elif granite:
        turned = "half" if c.text("position_embedding_type") == "rope" else None
        h = grouped_attention(b, h, c, bias=bias, turned=turned, output_bias=bias)
    else:
        columns = rotary_columns(c, Design(rotary_share=0.5))
        style = "half_joined" if columns == c.head_dim else "half"
        h = grouped_attention(b, h, c, bias=bias, turned=style, columns=columns, output_bias=bias)
    x = b.add(x, b.scale(h) if granite else h)
    h = b.rms_norm(x, "post_attention_layernorm" if granite else "pre_ff_layernorm")
    if m is not None:
        h = feed_forward(b, h, m=m)
    elif granite:
        h = granite_moe.fused_mlp(b, h, c.size("shared_intermediate_size"), c.text("hidden_act"))
    else:
        width, function = c.intermediate_size, c.text("hidden_act")
        h = gated_mlp(b, h, width, function, module="feed_forward", bias=c.flag("mlp_bias"))
    return b.build(hidden=b.add(x, b.scale(h) if granite else h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS[c.model_type])
    granite, m = c.model_type != "bamba", granite_experts(c)
    final = "model.norm" if granite else "model.final_layernorm"
    first, last = decoder.model(c, Design(final_norm=final, scaled_embedding=granite, scaled_logits=granite), [])
    layers = tuple(layer(c, i, kind, m) for i, kind in enumerate(kinds(c)))
    loss = balancing_loss(c, m.experts, len(layers)) if m is not None else ()
    return (first, *layers, *loss, last)
