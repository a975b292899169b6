"""T5's kin: LongT5, whose encoder attends to a neighbourhood, and Switch, whose feed-forwards are partly experts."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.families import t5

HEAD = "seq2seq-lm"
# Defaults of LongT5Config and SwitchTransformersConfig (transformers 5.23).
_DEFAULTS: dict[str, dict[str, Any]] = {
    "longt5": {**t5.CLASS_DEFAULTS, "encoder_attention_type": "local", "local_radius": 127, "global_block_size": 16},
    "switch_transformers": {
        **t5.CLASS_DEFAULTS, "d_model": 768, "num_layers": 12, "num_heads": 12, "num_decoder_layers": 12,
        "num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 3, "num_experts": 8,
    },
}  # fmt: skip
_KINDS = {"local": "LocalSelfAttention", "transient-global": "TransientGlobalSelfAttention"}
MOST_EXPERTS = 4096
NEAR_BIAS = "near_bias"
"""The stream of position biases of LongT5's encoder, made by its first layer."""


def near_attention(b: BlockBuilder, c: Config, x: Value, index: int) -> Value:
    """Attention to a neighbourhood, and in the transient-global kind to means of blocks."""
    kind = c.text("encoder_attention_type")
    if kind not in _KINDS:
        raise c.error(f"encoder_attention_type: expected {' or '.join(_KINDS)}, got {kind!r:.40}")
    b.part, module = "attention", f"layer.0.{_KINDS[kind]}"
    heads, inner = c.num_attention_heads, c.num_attention_heads * c.size("d_kv")
    sizes: dict[str, Any] = {"chunk_size": c.size("local_radius") + 1, "means_of": c.size("global_block_size")}
    pieces = [b.linear(x, f"{module}.{name}", inner) for name in "qkv"]
    if kind != "local":
        means = b.unary("block_means", x, module, means_of=sizes["means_of"])
        means = b.rms_norm(means, f"{module}.global_input_layer_norm", style="t5")
        pieces += [b.linear(means, f"{module}.{name}", inner) for name in "kv"]
    if index == 0:
        names = ("relative_attention_bias", "global_relative_attention_bias")
        shape = (c.size("relative_attention_num_buckets"), heads)
        tables = [b.parameter(f"{module}.{n}", "weight", shape) for n in names[: 1 if kind == "local" else 2]]
        bias = b.op("near_bias", module, [], [heads], tables, **sizes)[0]
        b.hand_on(NEAR_BIAS, bias)
    else:
        bias = b.input(NEAR_BIAS, heads)
    mixed = b.op(
        "near_attention", module, [*pieces, bias], [inner], num_heads=heads, dropout=c.number("dropout_rate"), **sizes
    )[0]
    return b.dropout(b.linear(mixed, f"{module}.o", x.width, shard="row"), c.number("dropout_rate"))


def is_sparse(c: Config, stack: t5.Stack, index: int) -> bool:
    """Every n-th layer of a stack, as the configuration class works n out of the number of sparse layers."""
    if c.model_type != "switch_transformers":
        return False
    count = c.size(f"num_sparse_{stack.name}_layers", least=0)
    step = stack.num_layers // count if count else stack.num_layers
    return step > 0 and (step == 1 or index % step == 1)


def experts(b: BlockBuilder, c: Config, x: Value, module: str) -> Value:
    """One expert of two products for each token, as far as its capacity goes."""
    count, width = c.size("num_experts"), c.size("d_ff")
    if count > MOST_EXPERTS:
        raise c.error(f"num_experts: at most {MOST_EXPERTS}, got {count}")
    router = f"{module}.router.classifier"
    gate = [b.parameter(router, "weight", (count, x.width), part="router")]
    if c.flag("router_bias"):
        gate.append(b.parameter(router, "bias", (count,), part="router"))
    noisy = c.number("router_jitter_noise", 0.01) > 0
    x, chosen = b.op("capped_router", router, [x], [x.width, 1], gate, jitters=noisy)
    weights = []
    for i in range(count):
        name = f"{module}.experts.expert_{i}"
        weights += [
            b.parameter(f"{name}.wi", "weight", (width, x.width), part="experts", shard="expert_column"),
            b.parameter(f"{name}.wo", "weight", (x.width, width), part="experts", shard="expert_row"),
        ]
    return b.op(
        "experts", f"{module}.experts", [x, chosen], [x.width], weights, num_experts=count, experts_per_token=1,
        style="capped", chunk_size=c.size("expert_capacity", default=64), dropout=c.number("dropout_rate"),
        function=c.text("dense_act_fn", "relu"),
    )[0]  # fmt: skip


def feed_forward(b: BlockBuilder, c: Config, x: Value, last: str, *, sparse: bool) -> Value:
    if c.model_type == "longt5":
        return t5.feed_forward(b, c, x, last)
    module, dropout = f"{last}.mlp", c.number("dropout_rate")
    if sparse:
        return b.dropout(experts(b, c, x, module), dropout)
    b.part = "mlp"
    h = b.activation(b.linear(x, f"{module}.wi", c.size("d_ff")), c.text("dense_act_fn", "relu"), f"{module}.act")
    return b.dropout(b.linear(b.dropout(h, dropout), f"{module}.wo", x.width, shard="row"), dropout)


def layer(c: Config, stack: t5.Stack, index: int) -> Block:
    """As T5's layer, with the family's own attention or feed-forward."""
    b = BlockBuilder(f"{stack.name}.block.{index}", layer=stack.first_layer + index)
    x, made, heads = b.input("hidden", c.hidden_size), {}, c.num_attention_heads
    h = b.rms_norm(x, "layer.0.layer_norm", style="t5")
    if c.model_type == "longt5" and not stack.is_decoder:
        x = b.add(x, near_attention(b, c, h, index))
    else:
        bias = t5.relative_bias(b, c, stack) if index == 0 else b.input("position_bias", heads)
        made["position_bias"] = bias
        x = b.add(x, t5.attention(b, c, stack, h, h, bias, "layer.0.SelfAttention"))
    if stack.is_decoder:
        encoder = b.input("encoder", c.hidden_size)
        h = b.rms_norm(x, "layer.1.layer_norm", style="t5")
        bias = b.unary("zero_position_bias", h, width=heads) if index == 0 else b.input("cross_bias", heads)
        made["cross_bias"] = bias
        x = b.add(x, t5.attention(b, c, stack, h, encoder, bias, "layer.1.EncDecAttention"))
    last = f"layer.{2 if stack.is_decoder else 1}"
    h = b.rms_norm(x, f"{last}.layer_norm", style="t5")
    h = feed_forward(b, c, h, last, sparse=is_sparse(c, stack, index))
    return b.build(hidden=b.add(x, h), **(made if index == 0 else {}))


def counted_as(c: Config) -> str:
    """What depends on the data."""
    if c.model_type != "switch_transformers":
        return ""
    most = c.size("expert_capacity", default=64)
    return (
        f"experts take at most {most} tokens of a sequence each: counted as if they dropped none, which is the most; "
        "what they keep for backward is less the more they drop"
    )


def blocks(config: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head; layers are numbered through both stacks."""
    c = config.filled(_DEFAULTS[config.model_type])
    encoder = t5.Stack("encoder", c.num_hidden_layers)
    decoder = t5.Stack("decoder", c.size("num_decoder_layers", default=encoder.num_layers), encoder.num_layers)
    stacks = [
        (t5.embedding(c, stack), *(layer(c, stack, i) for i in range(stack.num_layers))) for stack in (encoder, decoder)
    ]
    return (*stacks[0], t5.encoder_end(c, encoder), *stacks[1], t5.head(c, decoder))
