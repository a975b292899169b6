"""MiniMax Text 01: layers of lightning attention and of softmax attention, all with experts."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_ends import lm_head, token_embedding
from vramwise.models.layers.grouped_attention import grouped_attention
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.routed_experts import Experts, balancing_loss, checked, routed_experts
from vramwise.models.operations.experts import Jitter
from vramwise.models.operations.lightning import LightningAttention
from vramwise.models.operations.mixers import PaddingZeroed

CLASS_DEFAULTS: dict[str, Any] = {
    "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "num_experts_per_tok": 2,
    "num_local_experts": 8, "block_size": 256,
}  # fmt: skip
"""Defaults of `MiniMaxConfig` (transformers 5.23)."""


def lightning_attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(sigmoid(gate(x)) · norm(linear attention with a decay for every head)); keeps a d·d matrix for each."""
    heads, d, module = c.num_attention_heads, c.head_dim, "self_attn"
    b.part = "attention"
    qkv = b.activation(b.linear(x, f"{module}.qkv_proj", 3 * heads * d), c.text("hidden_act"), f"{module}.act_fn")
    settings: dict[str, Any] = {"num_heads": heads, "chunk_size": c.size("block_size")}
    mixed = b.unary(LightningAttention(**settings), b.unary(PaddingZeroed(), qkv), module, width=heads * d)
    mixed = b.rms_norm(mixed, f"{module}.norm")
    gate = b.activation(b.linear(x, f"{module}.output_gate", heads * d), "sigmoid", module)
    mixed = b.multiply(gate, mixed)
    b.keep(LayerCache("recurrent", state_elements=heads * d * d, model_dtype_state=True))
    return b.linear(mixed, f"{module}.out_proj", x.width, shard="row")


def layer(c: Config, index: int, kind: str, e: Experts) -> Block:
    """Norms feed the residual too, and both terms are scaled."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.rms_norm(b.input("hidden", c.hidden_size), "input_layernorm")
    window = c.size("sliding_window", default=0, least=0) or None
    mixed = lightning_attention(b, x, c) if kind == "linear_attention" else grouped_attention(b, x, c, window=window)
    x = b.rms_norm(b.add(b.scale(x), b.scale(mixed)), "post_attention_layernorm")
    x = b.unary(Jitter(), x, "mlp") if c.number("router_jitter_noise") > 0 else x
    return b.build(hidden=b.add(b.scale(x), b.scale(routed_experts(b, x, e))))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(CLASS_DEFAULTS)
    default = ["linear_attention" if i % 2 else "full_attention" for i in range(c.num_hidden_layers)]
    kinds = layer_kinds(c, default, allowed=("linear_attention", "full_attention"))
    e = checked(c, Experts(
        num_experts=c.size("num_local_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.intermediate_size, function=c.text("hidden_act"), routing="mixtral",
    ))  # fmt: skip
    layers = tuple(layer(c, i, kind, e) for i, kind in enumerate(kinds))
    head = lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings"))
    return (token_embedding(c), *layers, *balancing_loss(c, e, len(layers)), head)
