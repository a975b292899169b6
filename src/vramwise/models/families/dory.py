"""Dory (Nemotron Labs): layers on the unit sphere, of which those in the middle run in loops with the same weights.

The stream is normed to length one before each half of a layer and moves towards the half's normed result at a rate of
its own for each column. Each loop begins at the input section's output. transformers 5.24, modeling_dory.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention
from vramwise.records import record

# Defaults of DoryConfig (transformers 5.24).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 131_072, "hidden_size": 2560, "intermediate_size": 7168, "num_hidden_layers": 36,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024,
    "n_input_layers": 8, "n_output_layers": 8, "n_recurrent_loops": 2,
}  # fmt: skip
_SECTIONS = ("num_hidden_layers", "n_input_layers", "n_recurrent_layers", "n_output_layers")
_MOST_RUNS = 4096
# Divides by the root of the sum of squares where the root mean square's norm takes the mean: the same tensors.
_UNIT = "unweighted"


class SquaredScale(Operation):
    """A product with the square of a parameter that is scaled itself, by head where the values are heads first."""

    __slots__ = ()


@lowering(SquaredScale)
def squared_scale(run: Lowering, op: SquaredScale, x: Tensor) -> Tensor:
    tape = run.tape
    scale = tape.scale(run.parameters_of(op)[0])
    if len(x.shape) > len(op.parameters[0].shape) + 2:
        scale = tape.view(scale, -1, 1, op.outputs[0].width)
    return tape.mul(x, tape.unary("pow", scale))


class ScaledParameter(Operation):
    """A product with a parameter that is scaled itself."""

    __slots__ = ()


@lowering(ScaledParameter)
def scaled_parameter(run: Lowering, op: ScaledParameter, x: Tensor) -> Tensor:
    return run.tape.mul(x, run.tape.scale(run.parameters_of(op)[0]))


class TowardsResult(Operation):
    """stream + |rate| · (result - stream)."""

    __slots__ = ()


@lowering(TowardsResult)
def towards_result(run: Lowering, op: TowardsResult, x: Tensor, result: Tensor) -> Tensor:
    tape = run.tape
    rate = tape.unary("abs", tape.scale(run.parameters_of(op)[0]))
    return tape.add(x, tape.mul(rate, tape.add(result, x)))


class Fp32ScaledLogits(Operation):
    """Logits in fp32 times a learned number for each token of the vocabulary."""

    __slots__ = ()


@lowering(Fp32ScaledLogits)
def fp32_scaled_logits(run: Lowering, op: Fp32ScaledLogits, x: Tensor) -> Tensor:
    tape = run.tape
    (scale,) = run.parameters_of(op)
    return tape.mul(tape.to(x, "fp32"), tape.scale(tape.to(scale, "fp32")))


@record
class Sections:
    """Layers before the loops, in them, after them, how often the loops run, and the kinds of all layers."""

    first: int
    looped: int
    last: int
    loops: int
    kinds: tuple[str, ...]
    keeps_every_loop: bool


def sections(c: Config) -> tuple[Config, Sections]:
    """The config with its class's defaults, and how its layers are divided.

    Published configs list attention and MLP as layers of their own, which `layer_types` shows by "mlp". Raises
    SourceError.
    """
    kinds = c.layer_types()
    c = c.filled(_DEFAULTS)
    if kinds is not None and "mlp" in kinds:
        halves = {name: c.size(name, least=0) // 2 for name in _SECTIONS if c.has(name)}
        kinds, c = kinds[::2], Config({**c.values, **halves, "layer_types": kinds[::2]}, c.model_id)
    count = c.num_hidden_layers
    if kinds is None:
        kinds = ["full_attention" if (i + 1) % 4 == 0 else "sliding_attention" for i in range(count)]
    first, last = c.size("n_input_layers", least=0), c.size("n_output_layers", least=0)
    looped = c.size("n_recurrent_layers", default=count - first - last, least=0)
    if looped < 0 or first + looped + last != count or len(kinds) != count:
        raise c.error("n_input_layers, n_recurrent_layers and n_output_layers do not add up to num_hidden_layers")
    loops = c.size("n_recurrent_loops")
    if first + last + looped * loops > _MOST_RUNS:
        raise c.error(f"its loops run more than {_MOST_RUNS:,} layers")
    every = c.text("recurrent_kv_cache_mode", "per_loop") == "per_loop"
    return c, Sections(first, looped, last, loops, tuple(kinds), every)


def attention(b: BlockBuilder, x: Value, c: Config, kind: str, *, keeps: bool) -> Value:
    """Queries and keys of length one, queries scaled by channel after they are turned, a gate, a norm."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    bias = c.flag("attention_bias")
    q, k, v = (
        b.heads(b.linear(x, f"self_attn.{n}_proj", count * d, bias=bias), count)
        for n, count in zip("qkv", (heads, groups, groups), strict=True)
    )
    gate = b.linear(x, "self_attn.gate_proj", heads * d)
    q, k = (b.heads_first(b.rms_norm(y, f"self_attn.{n}_norm", style=_UNIT)) for n, y in (("q", q), ("k", k)))
    v = b.heads_first(v)
    q, k = b.rotary(q, k, table=kind)
    sqk, s_gate = (b.parameter("self_attn", name, (heads * d,), shard="column") for name in ("sqk", "s_gate"))
    q = b.unary(SquaredScale(), q, "self_attn", [sqk])
    window = c.size("sliding_window") if kind == "sliding_attention" else None
    cache = LayerCache("sliding" if window else "full", groups, d, d, window=window) if keeps else None
    own = Attention(num_heads=heads, num_key_value_heads=groups, window=window, dropout=c.number("attention_dropout"))
    mixed = b.attention(own, q, k, v, cache=cache)
    gate = b.activation(b.unary(SquaredScale(), gate, "self_attn", [s_gate]), "sigmoid", "self_attn")
    mixed = b.rms_norm(b.multiply(mixed, gate), "self_attn.attn_sub_norm", style=_UNIT)
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """A gated MLP whose two sides are scaled by column, with a norm before the last product."""
    b.part, width, bias = "mlp", c.intermediate_size, c.flag("mlp_bias")
    sides = []
    for name in ("gate", "up"):
        scale = b.parameter("mlp", f"suv_{name}", (width,), shard="column")
        sides.append(b.unary(ScaledParameter(), b.linear(x, f"mlp.{name}_proj", width, bias=bias), "mlp", [scale]))
    h = b.multiply(b.activation(sides[0], c.text("hidden_act", "silu"), "mlp.act_fn"), sides[1])
    h = b.rms_norm(h, "mlp.ffn_sub_norm", style=_UNIT)
    return b.linear(h, "mlp.down_proj", x.width, bias=bias, shard="row")


def layer(c: Config, index: int, run: int, kind: str, *, keeps: bool) -> Block:
    """One run of a layer, the `run`th of the model's."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.rms_norm(b.input("hidden", c.hidden_size), "input_layernorm", style=_UNIT)
    rates = [b.parameter("", f"lambda_{n}", (c.hidden_size,), part="norm") for n in (1, 2)]
    h = b.rms_norm(attention(b, x, c, kind, keeps=keeps), "post_attention_layernorm", style=_UNIT)
    x = b.op(TowardsResult(), "", [x, h], [x.width], rates[:1])[0]
    x = b.rms_norm(x, "pre_feedforward_layernorm", style=_UNIT)
    h = b.rms_norm(mlp(b, x, c), "post_feedforward_layernorm", style=_UNIT)
    x = b.op(TowardsResult(), "", [x, h], [x.width], rates[1:])[0]
    return replace(b.build(hidden=x), layer=run)


def body(c: Config, s: Sections) -> Iterator[Block]:
    """The input section, the loops, the output section."""
    width, run = c.hidden_size, s.first
    for i in range(s.first):
        yield layer(c, i, i, s.kinds[i], keeps=True)
    b = BlockBuilder("model")
    x = b.input("hidden", width)
    yield b.build(hidden=x, start=b.rms_norm(x, "norm", style=_UNIT))
    for loop in range(s.loops):
        b = BlockBuilder("model")
        x = b.rms_norm(b.input("hidden", width), "norm", style=_UNIT)
        yield b.build(hidden=b.add(x, b.input("start", width)))
        for i in range(s.first, s.first + s.looped):
            yield layer(c, i, run, s.kinds[i], keeps=s.keeps_every_loop or loop == s.loops - 1)
            run += 1
    for i in range(s.first + s.looped, c.num_hidden_layers):
        yield layer(c, i, run, s.kinds[i], keeps=True)
        run += 1


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, sections, head with a scale for each token of the vocabulary."""
    c, s = sections(config)
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size))
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "model.norm", style=_UNIT)
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    scale = b.parameter("lm_head", "logit_scale", (c.vocab_size,), part="head", shard="vocab")
    return (first, *body(c, s), b.build(logits=b.unary(Fp32ScaledLogits(), logits, "lm_head", [scale])))
