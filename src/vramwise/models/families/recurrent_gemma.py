"""RecurrentGemma (Griffin, arXiv 2402.19427): two recurrent layers to one of attention in a window."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_attention import grouped_attention, rotary_columns
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 256_000, "hidden_size": 2560, "intermediate_size": 7680, "num_hidden_layers": 26,
    "num_attention_heads": 10, "attention_window_size": 2048, "conv1d_width": 4,
    "hidden_activation": "gelu_pytorch_tanh", "block_types": ["recurrent", "recurrent", "attention"],
    "tie_word_embeddings": True,
}  # fmt: skip
"""Defaults of `RecurrentGemmaConfig` (transformers 5.23)."""


def recurrence(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(act(y(x)) · lru(conv(x(x)))); the gates of the recurrence are a matrix for every head."""
    width, heads, module = c.size("lru_width", default=x.width), c.num_attention_heads, "temporal_block"
    if width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide lru_width ({width})")
    kernel, d = c.size("conv1d_width"), width // heads
    b.part = "mixer"
    y = b.activation(b.linear(x, f"{module}.linear_y", width, bias=True), c.text("hidden_activation"), module)
    h = b.unary(ChannelsFirst(), b.linear(x, f"{module}.linear_x", width, bias=True))
    taps = [b.parameter(f"{module}.conv_1d", "weight", (width, 1, kernel), shard="column")]
    taps.append(b.parameter(f"{module}.conv_1d", "bias", (width,), shard="column"))
    h = b.unary(ChannelsLast(), b.unary(PlainCausalConv1d(), h, f"{module}.conv_1d", taps))
    unit = f"{module}.rg_lru"
    parameters = [b.parameter(unit, "recurrent_param", (width,), shard="column")]
    for gate in ("input", "recurrent"):
        parameters.append(b.parameter(unit, f"{gate}_gate_weight", (heads, d, d), shard="column"))
        parameters.append(b.parameter(unit, f"{gate}_gate_bias", (heads, d), shard="column"))
    h = b.unary(RealGatedRecurrence(), h, unit, parameters)
    b.keep(LayerCache("recurrent", conv_state_elements=width * kernel, state_elements=width))
    return b.linear(b.multiply(h, y), f"{module}.linear_out", x.width, bias=True, shard="row")


def layer(c: Config, index: int, kind: str) -> Block:
    """A pre-norm layer; half of the config's width goes into each branch of the MLP."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(x, "temporal_pre_norm", style="gemma")
    if kind == "recurrent":
        h = recurrence(b, h, c)
    else:
        own = Config({**c.values, "head_dim": None}, c.model_id)
        h = grouped_attention(
            b, h, own, "temporal_block", bias=c.flag("attention_bias"), output_bias=True,
            columns=rotary_columns(own, Design(rotary_share=0.5)), table="own", window=c.size("attention_window_size"),
        )  # fmt: skip
    x = b.add(x, h)
    h = b.rms_norm(x, "channel_pre_norm", style="gemma")
    h = gated_mlp(b, h, c.intermediate_size // 2, c.text("hidden_activation"), module="mlp_block", bias=True)
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(CLASS_DEFAULTS)
    pattern = [str(kind) for kind in c.items("block_types") or []]
    for kind in pattern:
        if kind not in ("recurrent", "attention"):
            raise c.error(f'block_types: "{kind:.40}" is no kind of layer; known are recurrent, attention')
    b = BlockBuilder("")
    x = b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.scale_by_buffer(x, "model"))
    layers = tuple(layer(c, i, pattern[i % len(pattern)]) for i in range(c.num_hidden_layers))
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "model.final_norm", style="gemma")
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *layers, b.build(logits=b.softcap_in_one(logits)))


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


class PlainCausalConv1d(Operation):
    __slots__ = ()


@lowering(PlainCausalConv1d)
def plain_causal_conv1d(run: Lowering, op: PlainCausalConv1d, x: Tensor) -> Tensor:
    """`nn.Conv1d` of every channel for itself, padded on both sides and cut to the sequence."""
    weight, bias = run.parameters_of(op)
    wide = run.tape.depthwise_conv1d(x, weight, bias, op.parameters[0].shape[-1] - 1)
    return run.tape.narrow(wide, -1, x.shape[-1])


class RealGatedRecurrence(Operation):
    __slots__ = ()


@lowering(RealGatedRecurrence)
def real_gated_recurrence(run: Lowering, op: RealGatedRecurrence, x: Tensor) -> Tensor:
    """`RecurrentGemmaRglru`: h_t = a_t·h_(t-1) + sqrt(1 − a_t²)·i_t·x_t with gates a, i by head.

    Documents begin at position 0 only; every use of that mask makes one of its own.
    """
    tape = run.tape
    rate, input_weight, input_bias, gate_weight, gate_bias = run.parameters_of(op)
    heads = input_weight.shape[0]
    rows = tape.permute(tape.reshape(x, x.shape[0] * x.shape[1], heads, -1), 1, 0, 2)
    input_gate = _gate_by_head(run, rows, input_weight, input_bias, x)
    gate = _gate_by_head(run, rows, gate_weight, gate_bias, x)
    logarithm = tape.mul(tape.scale(gate), tape.unary("softplus", rate))
    # A sequence of one token reads no state: what leads there alone is dropped.
    decay = tape.unary("exp", logarithm if run.sequence != 1 else tape.detached(logarithm))
    square = tape.unary("exp", tape.scale(logarithm))
    gated = tape.mul(x, input_gate)
    rest = tape.scale(square, "sub_scalar")
    root = tape.like(rest, requires_grad=rest.requires_grad, op="sqrt")
    tape.record("SqrtBoundDerivative", [rest], [root], [(rest, "x")])
    root = tape.scale(tape.mul(_no_start(run), root), "add_mask")
    inputs = tape.mul(gated, tape.to(root, x.dtype))
    decay = tape.mul(decay, _no_start(run))
    return inputs if run.sequence == 1 else _recurrent_states(run, inputs, decay)


def _gate_by_head(run: Lowering, rows: Tensor, weight: Tensor, bias: Tensor, like: Tensor) -> Tensor:
    """sigmoid of a product for every head, (h, b·s, d) -> (b, s, w)."""
    tape = run.tape
    product = tape.baddbmm(tape.unsqueeze(bias, 1), rows, weight)
    return tape.unary("sigmoid", tape.reshape(tape.transpose(product, 0, 1), *like.shape))


def _no_start(run: Lowering) -> Tensor:
    return run.tape.new((1, run.sequence, 1), "bool", op="bitwise_not")


def _recurrent_states(run: Lowering, inputs: Tensor, decay: Tensor) -> Tensor:
    """The loop over positions in fp32: its steps are alike, so that they are recorded once.

    The first state is zeros without a gradient, for which no decay is kept; the last is read by no step, but the
    module names it until it runs again (`self.recurrent_states`, transformers 4.40 to 5.23). A decay of 16 bit is cast
    at every step.
    """
    tape = run.tape
    batch, sequence, width = inputs.shape
    shape, grad = (batch, width), inputs.requires_grad or decay.requires_grad
    zeros = tape.new(shape, "fp32", op="zeros")
    steps = decay
    if decay.dtype != "fp32":
        steps = tape.new((sequence - 1, *shape), "fp32", requires_grad=decay.requires_grad, op="_to_copy")
        tape.record("_to_copy", [decay], [steps])
    earlier = tape.new((sequence - 1, *shape), "fp32", requires_grad=grad, op="add")
    last = tape.new(shape, "fp32", requires_grad=grad, op="add")
    saves = [(zeros, "other"), (earlier, "other")] * decay.requires_grad + [(steps, "self")] * grad
    tape.record("mul", [steps, inputs, zeros], [earlier, last], saves)
    tape.named_by_modules.append(last)
    out = tape.like(inputs, requires_grad=grad, op="zeros_like")
    tape.record("copy_", [earlier, last], [out])
    return out
