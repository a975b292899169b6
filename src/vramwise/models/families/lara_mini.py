"""Lara Mini: gated DeltaNet, sliding and full attention by turns, experts in every layer; only sliding layers turn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import delta_net, mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind, sliding_window
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.mixture import Mixture, experts

# Defaults of LaraMiniConfig (transformers 5.24).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 151_936, "hidden_size": 1024, "num_hidden_layers": 34, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "hidden_act": "silu", "sliding_window": 512,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 8,
    "linear_num_value_heads": 16, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 4, "num_experts": 128, "norm_topk_prob": True, "tie_word_embeddings": True,
}  # fmt: skip
_PATTERN = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    c = c.filled(_DEFAULTS)
    default = [_PATTERN[i % len(_PATTERN)] for i in range(c.num_hidden_layers)]
    mixer = partial(delta_net.mixer, s=replace(delta_net.sizes(c), widened=True), fused=False)
    kinds = {
        "linear_attention": LayerKind(attention=mixer),
        "sliding_attention": LayerKind(sliding_window(c)),
        "full_attention": LayerKind(turned=False),
    }
    bias = c.flag("attention_bias")
    s = Design(
        norm_style="fp32-weight", qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads", style="fp32-weight"),
    )  # fmt: skip
    e = experts(
        c, None, keys=("num_experts",), routing="fp32_softmax", normalized=c.flag("norm_topk_prob", True)
    )  # fmt: skip
    m = Mixture(
        e, shared=c.size("shared_expert_intermediate_size"), shared_module="mlp.shared_expert", balanced=True
    )  # fmt: skip
    layers = [kinds[name] for name in layer_kinds(c, default, allowed=tuple(kinds))]
    return mixture.model(c, s, m, [True] * len(layers), layers)
