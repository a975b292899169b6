"""Inkling: biases by distance in place of rotary positions, short convolutions, shared experts that the router weighs.

The layers for multi-token prediction that checkpoints hold are not part of the class.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.inkling_attention import attention, convolution
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.routed_experts import Experts, checked, expert_mlps

# Defaults of InklingTextConfig (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 201_024, "hidden_size": 6144, "num_hidden_layers": 66, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16,
    "swa_head_dim": 128, "sliding_window_size": 512, "d_rel": 16, "rel_extent": 1024, "conv_kernel_size": 4,
    "intermediate_size": 24_576, "moe_intermediate_size": 3072, "n_routed_experts": 256, "num_experts_per_tok": 6,
    "n_shared_experts": 2, "hidden_act": "silu",
}  # fmt: skip
_OTHER_NAMES = {
    "sliding_window": "sliding_window_size", "num_local_experts": "n_routed_experts",
    "sconv_kernel_size": "conv_kernel_size",
}  # fmt: skip


def named(c: Config) -> Config:
    """The config under the class's own names, with its defaults."""
    values = {_OTHER_NAMES.get(name, name): value for name, value in c.values.items()}
    if c.has("dense_intermediate_size"):  # then `intermediate_size` is the experts'
        values["moe_intermediate_size"] = c.get("intermediate_size")
        values["intermediate_size"] = c.get("dense_intermediate_size")
    return Config(values, c.model_id).filled(_DEFAULTS)


def sliding_layers(c: Config) -> list[bool]:
    """Five layers of six have a window."""
    types, local = c.layer_types(), c.items("local_layer_ids")
    if types is not None:
        return [kind == "hybrid_sliding" for kind in types]
    return [i in local if local is not None else (i + 1) % 6 > 0 for i in range(c.num_hidden_layers)]


def sparse_layers(c: Config) -> list[bool]:
    types, dense = c.items("mlp_layer_types"), c.size("dense_mlp_idx", default=0, least=0)
    if types is not None and len(types) < c.num_hidden_layers:
        raise c.error(f"mlp_layer_types names {len(types)} layers, num_hidden_layers is {c.num_hidden_layers}")
    return [types[i] == "sparse" if types is not None else i >= dense for i in range(c.num_hidden_layers)]


def sparse_mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Routed experts and shared ones, weighed together."""
    e = checked(c, Experts(
        num_experts=c.size("n_routed_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.size("moe_intermediate_size"), function=c.text("hidden_act"), routing="",
    ))  # fmt: skip
    shared, chosen, inner = c.size("n_shared_experts"), e.experts_per_token, e.intermediate_size
    router = [
        b.parameter("mlp.gate", "weight", (e.num_experts + shared, x.width), part="router"),
        b.parameter("mlp.gate", "global_scale", (1,), part="router"),
    ]
    weights, indices, factors = b.op(
        "weighing_router", "mlp.gate", [x], [chosen, chosen, shared], router, num_experts=e.num_experts,
        experts_per_token=chosen, num_shared=shared,
    )  # fmt: skip
    routed = expert_mlps(b, x, weights, indices, e)
    shapes = {"gate_proj": (inner, x.width), "up_proj": (inner, x.width), "down_proj": (x.width, inner)}
    matrices = [b.parameter("mlp.shared_experts", name, (shared, *s), part="mlp") for name, s in shapes.items()]
    own = {"count": shared, "function": e.function}
    return b.add(routed, b.op("weighed_experts", "mlp.shared_experts", [x, factors], [x.width], matrices, **own)[0])


def layer(c: Config, index: int, slides: bool, sparse: bool) -> Block:
    """A pre-norm decoder layer with a convolution after attention and one after the MLP."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = attention(b, b.rms_norm(x, "input_layernorm"), c, slides)
    x = b.add(x, convolution(b, h, c, "attn_sconv"))
    h, b.part = b.rms_norm(x, "post_attention_layernorm"), "mlp"
    if sparse:
        h = sparse_mlp(b, h, c)
    else:
        h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act"))
        h = b.unary("scale_by", h, "mlp", [b.parameter("mlp", "global_scale", (1,))])
    return b.build(hidden=b.add(x, convolution(b, h, c, "mlp_sconv")))


def blocks(c: Config) -> tuple[Block, ...]:
    """Normed embedding, layers, head; logits of padding rows are dropped."""
    c, b = named(c), BlockBuilder("model")
    x = b.rms_norm(b.embedding("embed_tokens", c.vocab_size, c.hidden_size), "embed_tokens.embed_norm")
    first = b.build(hidden=x)
    kinds = enumerate(zip(sliding_layers(c), sparse_layers(c), strict=True))
    layers = [layer(c, i, slides, sparse) for i, (slides, sparse) in kinds]
    b = BlockBuilder("")
    x = b.scale(b.rms_norm(b.input("hidden", c.hidden_size), "model.norm"))
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head")
    kept = c.size("unpadded_vocab_size", default=c.vocab_size)
    if kept < c.vocab_size:
        logits = b.split(logits, [kept, c.vocab_size - kept])[0]
    return (first, *layers, b.build(logits=logits))
