"""JetMoE: routed experts make the queries and the attention's output as well as the MLP."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_ends import lm_head, token_embedding

# Defaults of the configuration class (transformers 5.23).
_DEFAULTS = {
    "vocab_size": 32_000, "hidden_size": 2048, "num_hidden_layers": 12, "num_key_value_heads": 16,
    "intermediate_size": 5632, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def route(b: BlockBuilder, x: Value, c: Config, module: str) -> tuple[Value, Value, Value]:
    """Weights of the chosen experts sorted by expert, the order, and the token of each row."""
    count, chosen = c.size("num_local_experts"), c.size("num_experts_per_tok")
    if chosen > count:
        raise c.error(f"num_experts_per_tok ({chosen}) is more than the number of experts ({count})")
    router = [b.parameter(f"{module}.router.layer", "weight", (count, x.width), part="router", is_linear=True)]
    weights, order, tokens = b.op(
        "sorted_router", f"{module}.router", [x], [1, 1, 1], router, num_experts=count, experts_per_token=chosen
    )
    return weights, order, tokens


def experts(
    b: BlockBuilder, c: Config, module: str, style: str, inputs: list[Value], width: int,
    shapes: dict[str, tuple[int, int]],
) -> Value:  # fmt: skip
    """Products with each expert's own matrix, one after another."""
    count, chosen = c.size("num_local_experts"), c.size("num_experts_per_tok")
    parameters = [
        b.parameter(
            f"{module}.{name}", "weight", (count, *shape), part="experts",
            shard="expert_column" if name == "input_linear" else "expert_row",
        )
        for name, shape in shapes.items()
    ]  # fmt: skip
    return b.op(
        "experts", module, inputs, [width], parameters, num_experts=count, experts_per_token=chosen, style=style,
        function=c.text("activation_function", "silu"),
    )[0]  # fmt: skip


def with_bias(b: BlockBuilder, x: Value, module: str) -> Value:
    return b.unary("add_bias", x, module, [b.parameter(module, "bias", (x.width,), part="mlp")])


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Each of a token's experts makes queries for every key-value head."""
    b.part, module = "attention", "self_attention.experts"
    groups, d, chosen = (
        c.num_key_value_heads,
        c.size("kv_channels", "head_dim", default=128),
        c.size("num_experts_per_tok"),
    )
    width, heads = groups * d, groups * chosen
    weights, order, tokens = route(b, x, c, module)
    shapes = {"input_linear": (width, x.width)}
    q = experts(b, c, module, "queries", [x, weights, order, tokens], chosen * width, shapes)
    k, v = b.split(b.linear(x, "self_attention.kv_proj", 2 * width), [width, width])
    q, k, v = (b.heads_first(b.heads(piece, count)) for piece, count in ((q, heads), (k, groups), (v, groups)))
    q, k = b.rotary(q, k)
    k, v = (b.unary("repeat_heads", piece, times=chosen) for piece in (k, v))
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout"),
        cache=LayerCache("full", groups, d, d), module="self_attention",
    )  # fmt: skip
    shapes = {"output_linear": (x.width, width)}
    out = experts(b, c, module, "outputs", [mixed, weights, order, tokens], x.width, shapes)
    return with_bias(b, out, module)


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(x, attention(b, b.rms_norm(x, "input_layernorm"), c))
    h = b.rms_norm(x, "post_attention_layernorm")
    inner = c.intermediate_size
    shapes = {"input_linear": (2 * inner, x.width), "output_linear": (x.width, inner)}
    h = experts(b, c, "mlp", "sorted", [h, *route(b, h, c, "mlp")], x.width, shapes)
    return b.build(hidden=b.add(x, with_bias(b, h, "mlp")))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    heads = c.size("num_key_value_heads") * c.size("num_experts_per_tok")
    c = Config({**c.values, "num_attention_heads": heads}, c.model_id)
    layers = tuple(layer(c, i) for i in range(c.num_hidden_layers))
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings", True)))
