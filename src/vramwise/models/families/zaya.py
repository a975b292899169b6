"""ZAYA: compressed convolutional attention, a router that hands its state on, a residual stream in fp32."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.routed_experts import Experts, checked, expert_mlps
from vramwise.models.layers.zaya_attention import attention
from vramwise.models.operations.compressed_convolution import Copied, ScaledByWeight, ShiftedAndScaled
from vramwise.models.operations.routers import Router
from vramwise.models.operations.simple import ToFp32, ToParameterDtype

# Defaults of ZayaConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 262_272, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 128, "moe_intermediate_size": 2048, "num_experts": 16,
    "num_experts_per_tok": 1, "router_hidden_size": 256, "cca_time0": 2, "cca_time1": 2,
}  # fmt: skip


def shifted(b: BlockBuilder, x: Value, module: str, name: str) -> Value:
    leaves = [b.parameter(module, f"{name}_{leaf}", (x.width,), part="norm") for leaf in ("bias", "scale")]
    return b.unary(ShiftedAndScaled(), x, module, leaves)


def summed(b: BlockBuilder, h: Value, x: Value, module: str) -> Value:
    """Both sides of the sum with the stream shifted and scaled."""
    return b.add(shifted(b, h, module, "hidden_states"), shifted(b, x, module, "residual"))


def feed_forward(b: BlockBuilder, x: Value, state: Value | None, c: Config) -> tuple[Value, Value]:
    """One expert a token, or none, chosen by an MLP that adds the state of the layer before."""
    b.part, width = "router", c.size("router_hidden_size")
    e = checked(c, Experts(
        c.size("num_experts"), c.size("num_experts_per_tok"), c.size("moe_intermediate_size"),
        c.text("hidden_act", "silu"), "skip_expert", router="mlp.gate",
    ))  # fmt: skip
    h = b.linear(x, "mlp.gate.down_proj", width, bias=True, shard="replicated")
    if state is not None:
        scale = b.parameter("mlp.gate", "router_states_scale", (width,))
        h = b.add(h, b.unary(ScaledByWeight(), state, "mlp.gate", [scale]))
    handed_on = b.unary(Copied(), h)
    h = b.rms_norm(h, "mlp.gate.router_mlp.norm")
    for name in ("fc1", "fc2"):
        h = b.linear(h, f"mlp.gate.router_mlp.{name}", width, bias=True, shard="replicated")
        h = b.activation(h, "gelu", "mlp.gate.router_mlp")
    logits = b.linear(h, "mlp.gate.router_mlp.out_proj", e.num_experts + 1, shard="replicated")
    weights, indices = b.op(
        Router(style=e.routing, num_experts=e.num_experts + 1, experts_per_token=1), "mlp.gate", [logits], [1, 1]
    )
    return expert_mlps(b, x, weights, indices, e), handed_on


def layer(c: Config, index: int, kind: str) -> Block:
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    state = b.input("router", c.size("router_hidden_size")) if index else None
    h = attention(b, b.rms_norm(b.unary(ToParameterDtype(), x), "input_layernorm"), c, kind)
    x = summed(b, h, x, "post_attention_residual_scale")
    h = b.rms_norm(b.unary(ToParameterDtype(), x), "post_attention_layernorm")
    h, state = feed_forward(b, h, state, c)
    return b.build(hidden=summed(b, h, x, "post_mlp_residual_scale"), router=state)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    if c.size("num_experts_per_tok") != 1:
        raise c.error("num_experts_per_tok: the class sends a token to one expert")
    kinds = layer_kinds(c, ["hybrid"] * c.num_hidden_layers, allowed=("hybrid", "hybrid_sliding"))
    b = BlockBuilder("")
    x = shifted(b, b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size), "model", "input_hidden_states")
    first = b.build(hidden=b.unary(ToFp32(), x))
    b = BlockBuilder("")
    x = b.rms_norm(b.unary(ToParameterDtype(), b.input("hidden", c.hidden_size)), "model.norm")
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings", True) else None
    logits = b.linear(
        x, "lm_head", c.vocab_size, bias=c.flag("lm_head_bias"), shard="vocab", part="head", tied_to=tied_to
    )
    return (first, *(layer(c, i, kind) for i, kind in enumerate(kinds)), b.build(logits=logits))
