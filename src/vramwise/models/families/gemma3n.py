"""Gemma 3n's language model: four streams that a layer predicts and corrects, low-rank detours, sparse activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.layer_inputs import layer_input_gate, layer_inputs
from vramwise.models.layers.shared_keys import LayerSizes, attention, norm, sources

# Defaults of Gemma3nTextConfig (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_400, "hidden_size": 2048, "intermediate_size": 16_384, "num_hidden_layers": 35,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256, "altup_num_inputs": 4,
    "altup_coef_clip": 120.0, "laurel_rank": 64, "final_logit_softcapping": 30.0,
}  # fmt: skip


def per_layer(c: Config, name: str, default: list[Any]) -> list[Any]:
    """A setting with a value for each layer."""
    values = c.items(name) or default
    if len(values) != c.num_hidden_layers:
        raise c.error(f"{name} names {len(values)} layers, num_hidden_layers is {c.num_hidden_layers}")
    return values


def layer_sizes(c: Config) -> list[LayerSizes]:
    """Windows, the sharing of keys and the MLP's width of each layer; every fifth is full by default."""
    layers, window = range(c.num_hidden_layers), c.size("sliding_window")
    types = c.layer_types() or ["full_attention" if (i + 1) % 5 == 0 else "sliding_attention" for i in layers]
    widths = c.get("intermediate_size")
    inner = per_layer(c, "intermediate_size", []) if isinstance(widths, (list, tuple)) else [widths for _ in layers]
    own = sources(c, types, shared=15)
    sizes = []
    for kind, source, width in zip(types, own, inner, strict=True):
        full, size = kind == "full_attention", Config({"intermediate_size": width}, c.model_id).intermediate_size
        sizes.append(LayerSizes(full, c.num_key_value_heads, c.head_dim, None if full else window, source, size))
    return sizes


def sparsities(c: Config) -> list[bool]:
    """Whether the MLP of each layer keeps only the largest of its gates."""
    layers = c.num_hidden_layers
    default = [0.95] * 10 + [0.0] * (layers - 10) if layers > 10 else [0.0] * layers
    return [share > 0 for share in per_layer(c, "activation_sparsity_pattern", default)]


def modalities(b: BlockBuilder, x: Value, scale: Value, streams: int) -> Value:
    """A number for each stream, from one of them; `norm` and `scale` are the same before and after the layer."""
    h = b.multiply(norm(b, x, "altup.router_norm"), scale)
    return b.unary("tanh_fp32", b.linear(h, "altup.modality_router", streams, part="mixer", shard="replicated"))


def mlp(b: BlockBuilder, x: Value, s: LayerSizes, function: str, sparse: bool) -> Value:
    b.part = "mlp"
    gate = b.linear(x, "mlp.gate_proj", s.inner)
    gate = b.activation(b.unary("gaussian_top", gate, "mlp") if sparse else gate, function, "mlp.act_fn")
    h = b.multiply(gate, b.linear(x, "mlp.up_proj", s.inner))
    return b.linear(h, "mlp.down_proj", x.width, shard="row")


def layer(c: Config, index: int, s: LayerSizes, sparse: bool) -> Block:
    """The active stream passes attention and MLP; all streams are predicted before and corrected after."""
    b = BlockBuilder(f"model.layers.{index}", layer=index, part="mixer")
    n, function = c.size("altup_num_inputs", least=2), c.text("hidden_activation", "gelu_pytorch_tanh")
    streams = b.input("hidden", c.hidden_size)
    scale = b.op("buffer", "altup", [], [1])[0]
    chosen = modalities(b, b.unary("one_stream", streams), scale, n)
    coefficients = b.linear(chosen, "altup.prediction_coefs", n * n, shard="replicated")
    predictions = b.op("predict_streams", "altup", [streams, coefficients], [streams.width])[0]
    active = b.unary("one_stream", predictions)
    read = norm(b, active, "input_layernorm")
    detour = b.linear(read, "laurel.linear_left", c.size("laurel_rank"), shard="replicated")
    detour = b.linear(detour, "laurel.linear_right", read.width, shard="replicated")
    detour = b.add(read, norm(b, detour, "laurel.post_laurel_norm"))
    mixed, kept = attention(b, read, c, s)
    x = b.scale(b.add(b.add(active, norm(b, mixed, "post_attention_layernorm")), detour))
    h = mlp(b, norm(b, x, "pre_feedforward_layernorm"), s, function, sparse)
    x = b.add(x, norm(b, h, "post_feedforward_layernorm"))
    b.part = "mixer"
    weight = b.parameter("altup.correction_coefs", "weight", (n, n), is_linear=True)
    corrected = b.op(
        "correct_streams", "altup", [predictions, x, modalities(b, x, scale, n)], [x.width], [weight],
        clipped=c.has("altup_coef_clip"),
    )[0]  # fmt: skip
    first = b.unary("clone", b.unary("one_stream", corrected))
    weight = b.parameter("altup", "correct_output_scale", (x.width,))
    first = b.unary("scale_by_weight" if c.flag("altup_correct_scale", True) else "hold", first, "altup", [weight])
    first = layer_input_gate(b, first, c, function)
    return b.build(hidden=b.op("add_to_streams", "", [corrected, first], [x.width])[0], **kept)


def projected(b: BlockBuilder, values: list[Value], name: str) -> list[Value]:
    return [b.linear(x, f"model.{name}.{i}", x.width, shard="replicated", part="mixer") for i, x in enumerate(values)]


def with_defaults(c: Config) -> Config:
    return Config({**_DEFAULTS, **c.values}, c.model_id)


def other_streams(c: Config) -> int:
    return c.size("altup_num_inputs", least=2) - 1


def embedding(c: Config, merge: Callable[[BlockBuilder, Value], Value] = lambda b, x: x) -> Block:
    """Tokens' embeddings, those for each layer, and the streams; `merge` puts images' and sounds' among the first."""
    b = BlockBuilder("")
    x = b.scale_by_buffer(b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size), "model.embed_tokens")
    x = merge(b, x)
    inputs = layer_inputs(b, x, c, "model")
    others = projected(b, [x] * other_streams(c), "altup_projections")
    streams = b.op("stack_streams", "model", [x, *others], [x.width])[0]
    return b.build(hidden=streams, layer_inputs=inputs)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embeddings and streams, layers, the streams' mean and head."""
    c = with_defaults(c)
    pairs = zip(layer_sizes(c), sparsities(c), strict=True)
    layers = [layer(c, index, s, sparse) for index, (s, sparse) in enumerate(pairs)]
    b = BlockBuilder("")
    streams = b.input("hidden", c.hidden_size)
    x, *rest = (b.unary("one_stream", streams) for _ in range(other_streams(c) + 1))
    x = b.op("average_streams", "model", [x, *projected(b, rest, "altup_unembed_projections")], [x.width])[0]
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings", True) else None
    x = norm(b, x, "model.norm")
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    logits = b.softcap(logits) if c.has("final_logit_softcapping") else logits
    return (embedding(c), *layers, b.build(logits=logits))
