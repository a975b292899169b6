"""RWKV 4: every layer mixes each token with the one before and with a weighted sum of all, in place of attention."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.lowering import Lowering, lowering

CLASS_DEFAULTS: dict[str, object] = {"vocab_size": 50_277, "hidden_size": 4096, "num_hidden_layers": 32}
"""Defaults of `RwkvConfig` (transformers 5.23)."""


def mixed_with_past(b: BlockBuilder, x: Value, module: str, names: tuple[str, ...]) -> tuple[Value, ...]:
    """One mix of each token with the one before for every name."""
    weights = [b.parameter(module, f"time_mix_{name}", (1, 1, x.width)) for name in names]
    return b.op(MixedWithPast(), module, [x], [x.width] * len(names), weights)


def time_mixing(b: BlockBuilder, x: Value, inner: int) -> Value:
    """output(sigmoid(receptance) · weighted sum of values)."""
    module = "attention"
    b.part = "mixer"
    names = ("key", "value", "receptance")
    mixes = mixed_with_past(b, x, module, names)
    inputs = [b.linear(mix, f"{module}.{name}", inner) for mix, name in zip(mixes, names, strict=True)]
    weights = [b.parameter(module, name, (inner,), shard="column") for name in ("time_decay", "time_first")]
    key, value, receptance = inputs
    gate = b.activation(receptance, "sigmoid", module)
    h = b.multiply(gate, b.op(WeightedSum(), module, [key, value], [inner], weights)[0])
    return b.linear(h, f"{module}.output", x.width, shard="row")


def channel_mixing(b: BlockBuilder, x: Value, inner: int) -> Value:
    """sigmoid(receptance) · value(relu(key)²)."""
    module = "feed_forward"
    b.part = "mlp"
    mixed, gate = mixed_with_past(b, x, module, ("key", "receptance"))
    h = b.activation(b.linear(mixed, f"{module}.key", inner), "relu2", module)
    gate = b.activation(b.linear(gate, f"{module}.receptance", x.width, shard="replicated"), "sigmoid", module)
    return b.multiply(gate, b.linear(h, f"{module}.value", x.width, shard="row"))


def layer(c: Config, index: int) -> Block:
    """Two mixings, each after a norm; the first layer has a norm more."""
    b = BlockBuilder(f"rwkv.blocks.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.layer_norm(x, "pre_ln") if index == 0 else x
    inner = c.size("attention_hidden_size", default=c.hidden_size)
    # Of each sequence: the last token of both mixings, and numerator, denominator and exponent of the sum.
    b.keep(LayerCache("recurrent", conv_state_elements=2 * c.hidden_size, state_elements=3 * inner))
    x = b.add(x, time_mixing(b, b.layer_norm(x, "ln1"), inner))
    width = c.size("intermediate_size", default=4 * c.hidden_size)
    return b.build(hidden=b.add(x, channel_mixing(b, b.layer_norm(x, "ln2"), width)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(CLASS_DEFAULTS)
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("rwkv.embeddings", c.vocab_size, c.hidden_size))
    tied = c.flag("tie_word_embeddings")
    last = lm_head(c, "rwkv.ln_out", tied=tied, layer_norm=True, module="head", embedding="rwkv.embeddings")
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)


# -- as transformers 5.23 runs it -------------------------------------------------------------------------
# The weighted sum goes token by token, as `rwkv_linear_attention_cpu` does. On CUDA, where the packages kernels and
# ninja are installed, a fused kernel takes its place, which keeps its five operands instead of every step.


class MixedWithPast(Operation):
    __slots__ = ()


@lowering(MixedWithPast)
def mixed_with_past_lowered(run: Lowering, op: MixedWithPast, x: Tensor) -> tuple[Tensor, ...]:
    """x·m + shifted(x)·(1 − m) for each vector m; the shift is a padding by one row and −1."""
    tape = run.tape
    shifted = tape.like(x, requires_grad=x.requires_grad, op="constant_pad_nd")
    tape.record("constant_pad_nd", [x], [shifted])
    return tuple(
        tape.add(tape.mul(x, m), tape.mul(shifted, tape.scale(m, "sub_scalar"))) for m in run.parameters_of(op)
    )


class WeightedSum(Operation):
    __slots__ = ()
    package = "kernels"


@lowering(WeightedSum)
def weighted_sum(run: Lowering, op: WeightedSum, key: Tensor, value: Tensor) -> Tensor:
    """Numerator and denominator of a sum with decaying weights, scaled by a maximum, in a loop over tokens.

    Steps are alike, so that they are recorded once. For the output each keeps, in fp32, both operands of its
    maximum, two exponentials, both sums so far, numerator and denominator; for the next step's sums an operand of
    the maximum and two exponentials, besides the key. The sums after the last token are not read.
    """
    tape, (decay, first) = run.tape, run.parameters_of(op)
    batch, sequence, width = key.shape
    decay = tape.unary("exp", decay if sequence != 1 else tape.detached(decay))
    reads = ("maximum", "add", "exp", "exp", "numerator", "denominator", "add", "add")
    kept = [tape.new((sequence, batch, width), "fp32", op=made) for made in reads]
    if sequence != 1:
        kept += [tape.new((sequence - 1, batch, width), "fp32", op=made) for made in ("add", "exp", "exp")]
        widened = tape.new((sequence - 1, batch, width), "fp32", op="_to_copy")
        kept.append(key if key.dtype == "fp32" else widened)
    out = tape.like(key, requires_grad=True, op="zeros_like")
    tape.record("div", [key, value, decay, first], [out], [(x, "steps") for x in (*kept, value)])
    return out
