"""Gemma 4's language model: wider heads in full layers, keys shared by the last layers, embeddings for each layer."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.layer_inputs import layer_input_gate, layer_input_width, layer_inputs
from vramwise.models.layers.parts import gated_mlp
from vramwise.models.layers.shared_keys import LayerSizes, attention, norm, sources

# Defaults of Gemma4TextConfig (transformers 5.23); the class of the unified models has no embeddings by layer.
_DEFAULTS = {
    "vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "vocab_size_per_layer_input": 262_144,
}  # fmt: skip


def class_defaults(model_type: str) -> dict[str, int]:
    """Those of the class; the unified models have a wider window."""
    return {**_DEFAULTS, "sliding_window": 1024 if model_type == "gemma4_unified_text" else 512}


def layer_types(c: Config) -> list[str]:
    """Every sixth layer is full unless the config says otherwise; the last always is."""
    layers = range(c.num_hidden_layers)
    types = c.layer_types() or ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in layers]
    return [*types[:-1], "full_attention"]


def overrides(c: Config, index: int, kind: str) -> Config:
    """What a layer has instead of the config's sizes: by its number, which is written with zeros before it, or kind."""
    own = c.of_layer(index)
    if own is not None:
        return own
    if kind != "full_attention":
        return Config({}, c.model_id)
    groups = c.get("num_global_key_value_heads") if c.flag("attention_k_eq_v") else None
    wide = {"head_dim": c.size("global_head_dim", default=512), "num_key_value_heads": groups}
    return Config(wide, c.model_id)


def layer_sizes(c: Config) -> list[LayerSizes]:
    """Heads, windows and the sharing of keys and values of each layer."""
    types, window = layer_types(c), c.size("sliding_window")
    if c.text("use_bidirectional_attention") == "all":
        window = window // 2 + 1
    sizes = []
    for i, (kind, source) in enumerate(zip(types, sources(c, types, shared=0), strict=True)):
        full, other = kind == "full_attention", overrides(c, i, kind)
        wider = 2 if source == "shared" and c.flag("use_double_wide_mlp") else 1
        sizes.append(LayerSizes(
            full, other.size("num_key_value_heads", default=c.num_key_value_heads),
            other.size("head_dim", default=c.head_dim), None if full else window, source, wider * c.intermediate_size,
        ))  # fmt: skip
    return sizes


def with_experts(b: BlockBuilder, dense: Value, x: Value, c: Config, function: str) -> Value:
    """The dense MLP's result plus that of routed experts, which read the stream themselves."""
    width, inner = x.width, c.size("moe_intermediate_size")
    count, chosen = c.size("num_experts"), c.size("top_k_experts")
    if chosen > count:
        raise c.error(f"top_k_experts ({chosen}) is more than num_experts ({count})")
    router = [
        b.parameter("router.proj", "weight", (count, width), part="router", is_linear=True),
        b.parameter("router", "scale", (width,), part="router"),
        b.parameter("router", "per_expert_scale", (count,), part="router"),
    ]
    fused = [
        b.parameter("experts", "gate_up_proj", (count, 2 * inner, width), part="experts", shard="expert_column"),
        b.parameter("experts", "down_proj", (count, width, inner), part="experts", shard="expert_row"),
    ]
    dense = norm(b, dense, "post_feedforward_layernorm_1")
    sizes = {"num_experts": count, "experts_per_token": chosen}
    weights, indices = b.op("router", "router", [x], [chosen] * 2, router, style="gemma4", normalized=True, **sizes)
    read = [norm(b, x, "pre_feedforward_layernorm_2"), weights, indices]
    routed = b.op(
        "experts", "experts", read, [width], fused, function=function, gating="halves", transposed=False,
        fused_branches=2, **sizes,
    )[0]  # fmt: skip
    return b.add(dense, norm(b, routed, "post_feedforward_layernorm_2"))


def layer(c: Config, name: str, index: int, s: LayerSizes) -> Block:
    """A decoder layer; where there are embeddings for each layer, a gate lets them in at its end."""
    b = BlockBuilder(f"{name}.layers.{index}", layer=index)
    x, function = b.input("hidden", c.hidden_size), c.text("hidden_activation", "gelu_pytorch_tanh")
    h, kept = attention(b, norm(b, x, "input_layernorm"), c, s)
    x = b.add(x, norm(b, h, "post_attention_layernorm"))
    h = gated_mlp(b, norm(b, x, "pre_feedforward_layernorm"), s.inner, function)
    if c.flag("enable_moe_block"):
        h = with_experts(b, h, x, c, function)
    x = b.add(x, norm(b, h, "post_feedforward_layernorm"))
    if layer_input_width(c):
        x = b.add(x, layer_input_gate(b, x, c, function))
    return b.build(hidden=b.unary("scale_by_buffer_", x), **kept)


def embeddings(c: Config, name: str) -> tuple[Block, ...]:
    """Token embedding, and one for each layer where there are such, which read images in the places of tokens."""
    b, module = BlockBuilder(""), f"{name}.embed_tokens"
    first = b.build(hidden=b.scale_by_buffer(b.embedding(module, c.vocab_size, c.hidden_size), module))
    if not layer_input_width(c):
        return (first,)
    b = BlockBuilder("")
    return first, b.build(layer_inputs=layer_inputs(b, b.input("hidden", c.hidden_size), c, name))


def text_blocks(c: Config, name: str = "model", *, tied: bool) -> tuple[Block, ...]:
    """Embeddings, layers and head of the language model named `name`."""
    c = Config({**class_defaults(c.model_type), **c.values}, c.model_id)
    layers = (layer(c, name, index, s) for index, s in enumerate(layer_sizes(c)))
    b = BlockBuilder("")
    x = norm(b, b.input("hidden", c.hidden_size), f"{name}.norm")
    tied_to = f"{name}.embed_tokens.weight" if tied else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    last = b.build(logits=b.softcap(logits) if c.has("final_logit_softcapping") else logits)
    return (*embeddings(c, name), *layers, last)


def blocks(c: Config) -> tuple[Block, ...]:
    return text_blocks(c, tied=c.flag("tie_word_embeddings", True))
