"""JetMoE: routed experts make the queries and the attention's output as well as the MLP."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.sorted_experts import experts, route, with_bias
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.experts import RepeatHeads

# Defaults of the configuration class (transformers 5.23).
_DEFAULTS = {
    "vocab_size": 32_000, "hidden_size": 2048, "num_hidden_layers": 12, "num_key_value_heads": 16,
    "intermediate_size": 5632, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Each of a token's experts makes queries for every key-value head."""
    b.part, module = "attention", "self_attention.experts"
    groups, d = c.num_key_value_heads, c.size("kv_channels", "head_dim", default=128)
    chosen = c.size("num_experts_per_tok")
    width, heads = groups * d, groups * chosen
    ways = route(b, x, c, module)
    shapes = {"input_linear": (width, x.width)}
    q = experts(b, c, module, "queries", [x, *ways], chosen * width, shapes)
    k, v = b.split(b.linear(x, "self_attention.kv_proj", 2 * width), [width, width])
    q, k, v = (b.heads_first(b.heads(piece, count)) for piece, count in ((q, heads), (k, groups), (v, groups)))
    q, k = b.rotary(q, k)
    k, v = (b.unary(RepeatHeads(times=chosen), piece) for piece in (k, v))
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout")),
        q,
        k,
        v,
        cache=LayerCache("full", groups, d, d),
        module="self_attention",
    )
    shapes = {"output_linear": (x.width, width)}
    out = experts(b, c, module, "outputs", [mixed, *ways], x.width, shapes)
    return with_bias(b, out, module)


def mlp(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """The experts of the MLP's own router."""
    inner = c.intermediate_size
    shapes = {"input_linear": (2 * inner, x.width), "output_linear": (x.width, inner)}
    h = experts(b, c, "mlp", "sorted", [x, *route(b, x, c, "mlp")], x.width, shapes)
    return with_bias(b, h, "mlp")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    heads = c.size("num_key_value_heads") * c.size("num_experts_per_tok")
    c = Config({**c.values, "num_attention_heads": heads}, c.model_id)
    return alike(c, Design(tied=True), LayerKind(attention=partial(attention, c=c), mlp=partial(mlp, c=c)))
