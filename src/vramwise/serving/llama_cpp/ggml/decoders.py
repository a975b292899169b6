"""What llama.cpp runs for the operations of plain decoders (src/llama-graph.cpp build_norm, build_qkv, build_ffn)."""

from __future__ import annotations

from vramwise.errors import UndescribedOperationError
from vramwise.models import Block
from vramwise.models.operations.attention import AnyAttention, Attention, Rotary
from vramwise.models.operations.latent import RotaryComplex, RotaryHalves, SinkAttention
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.operations.simple import (
    Activation,
    Add,
    Clamp,
    Conv1dLinear,
    Dropout,
    Embedding,
    Heads,
    HeadsFirst,
    Linear,
    Multiply,
    Scale,
    ScaleByBuffer,
    Split,
)
from vramwise.serving.llama_cpp.ggml.attending import LEAST_TURN, attend, key_turn, store, turned
from vramwise.serving.llama_cpp.ggml.build import Build, ggml_lowering
from vramwise.serving.llama_cpp.ggml.latent import latent_attention
from vramwise.serving.llama_cpp.ggml.tensors import (
    BY_SEQUENCE,
    F32,
    GATE,
    HOST,
    I32,
    MIXED,
    OF_LAYER,
    RESIDUAL,
    SUM,
    Tensor,
    get_rows,
    leaf,
    like,
    matmul,
    reshape,
    shape,
    view,
)

_GATING = ("silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu")


@ggml_lowering(Embedding)
def embedding(b: Build, op: Embedding, *_: Tensor) -> Tensor:
    """Rows of the table on the host, beside an input for embeddings that come ready-made (build_inp_embd).

    Raises UndescribedOperationError.
    """
    if b.block is not None and b.block.inputs:
        return _layer_rows(b, op, b.block)
    if op.ids != "input_ids":
        raise UndescribedOperationError(f"embedding of {op.ids} has no ggml graph")
    rows, width = op.parameters[0].shape
    table = b.weight(width, rows, of=op.parameters[0], device=HOST)
    found = get_rows(table, b.input("tokens", (b.batch.tokens,), I32))
    ready = shape(width * (1 + b.graph_of.deep_inputs), b.batch.tokens)
    if b.graph_of.deep_inputs:
        found = Tensor("PAD", ready, sources=(found,))
    b.graph.expand(found)
    if b.batch.ready_embeddings:
        b.graph.expand(leaf(ready, F32))
    if b.graph_of.deep_inputs:
        found = b.embedded = view(found, shape(width, b.batch.tokens), found.nb)
    return found


def _layer_rows(b: Build, op: Embedding, block: Block) -> Tensor:
    """Of a table for each layer, by ids of its own, layer by layer (gemma4.cpp build_inp_per_layer)."""
    rows, width = op.parameters[0].shape
    layers = next(one.num_heads for one in block.operations(Heads))
    found = get_rows(
        b.weight(width, rows, of=op.parameters[0], device=HOST), b.input("layer tokens", (b.batch.tokens,), I32)
    )
    return reshape(found, width // layers, layers, b.batch.tokens)


@ggml_lowering(RmsNorm)
def rms_norm(b: Build, op: RmsNorm, x: Tensor) -> Tensor:
    """The norm, its weight and its bias are nodes of their own."""
    return _weighted(b, op, like("RMS_NORM", x))


@ggml_lowering(LayerNorm)
def layer_norm(b: Build, op: LayerNorm, x: Tensor) -> Tensor:
    return _weighted(b, op, like("NORM", x))


def _weighted(b: Build, op: RmsNorm | LayerNorm, made: Tensor) -> Tensor:
    if b.batch.keeps_norms and op.parameters and b.block is not None and b.block.layer is not None:
        made.told = b.device
    for place, parameter in enumerate(op.parameters):
        ne = (parameter.shape[-1], *reversed(parameter.shape[:-1]))
        made = like("ADD" if place else "MUL", made, b.weight(*ne, of=parameter))
    return made


@ggml_lowering(Linear, Conv1dLinear)
def linear(b: Build, op: Linear, x: Tensor) -> Tensor:
    first, *biases = op.parameters
    rows, columns = reversed(first.shape) if isinstance(op, Conv1dLinear) else first.shape
    made = matmul(b.weight(columns, rows, of=first), x)
    for bias in biases:
        made = like("ADD", made, b.weight(*bias.shape, of=bias))
    if x.mark == BY_SEQUENCE:
        return reshape(made, rows, x.ne[1] * x.ne[2])
    return b.keep_outputs(made)[0] if x.mark == MIXED else made


@ggml_lowering(Split)
def split(b: Build, op: Split, x: Tensor) -> tuple[Tensor, ...]:
    """Views of one product; of queries, keys and values that a class has head by head the file has each apart."""
    by_head = x.ne[2] > 1 and len(op.pieces) == 3
    return tuple(
        view(x, (width, *x.ne[1:]), (x.nb[0], x.nb[0] * width, *x.nb[2:]) if by_head else x.nb) for width in op.pieces
    )


@ggml_lowering(Heads)
def heads(b: Build, op: Heads, x: Tensor) -> Tensor:
    if x.ne[1:3] == (op.num_heads, b.batch.tokens):  # a layer's rows are apart already, and enter the graph first
        b.graph.expand(x)
        return x
    width = x.ne[0] // op.num_heads
    if x.op == "VIEW":
        return view(x.sources[0], shape(width, op.num_heads, x.ne[1]), (x.nb[0], x.nb[0] * width, x.nb[1], x.nb[2]))
    return reshape(x, width, op.num_heads, x.ne[1])


@ggml_lowering(HeadsFirst, Dropout)
def same(b: Build, op: HeadsFirst, x: Tensor) -> Tensor:
    """Attention turns the axes itself."""
    return x


@ggml_lowering(Scale, ScaleByBuffer, Clamp)
def scale(b: Build, op: Scale, x: Tensor) -> Tensor:
    return like("SCALE", x)


@ggml_lowering(Rotary, RotaryComplex, RotaryHalves)
def rotary(b: Build, op: Rotary, *turned: Tensor) -> tuple[Tensor, ...]:
    return tuple(like("ROPE", x, b.positions_input(), *b.rotary_factors()) for x in turned)


@ggml_lowering(Add)
def add(b: Build, op: Add, x: Tensor, y: Tensor) -> Tensor:
    """What a layer's part gave comes before the residual that it is added to; of parts that read the same norm one sum
    is made of three."""
    if x.mark not in (RESIDUAL, SUM):
        return like("ADD", x, y)
    if b.graph_of.sum_order and x.mark == SUM:
        attended, residual = x.sources
        one, other, last = {"ffn+residual": (y, residual, attended), "attn+ffn": (attended, y, residual),
                            "ffn+attn": (y, attended, residual)}[b.graph_of.sum_order]  # fmt: skip
        return like("ADD", like("ADD", one, other), last)
    which = "first" if x.mark == RESIDUAL else "second"
    made = like("ADD", x, y) if b.graph_of.residual_first in (which, "both") else like("ADD", y, x)
    made.mark = SUM if x.mark == RESIDUAL else ""  # a third part comes behind what it is added to
    return made


@ggml_lowering(Activation)
def activation(b: Build, op: Activation, x: Tensor) -> Tensor:
    made = like("UNARY", x)
    if op.function == "relu2":
        return like("SQR", made)
    made.mark = GATE if op.function in _GATING else ""
    return made


@ggml_lowering(Multiply)
def multiply(b: Build, op: Multiply, x: Tensor, y: Tensor) -> Tensor:
    """An activated gate times the rest is one operation with an output of its own; of one product both are halves."""
    for gate, other in ((x, y), (y, x)):
        if gate.mark == GATE and other.mark != OF_LAYER:
            raw = gate.sources[0]
            halves = raw.op == other.op == "VIEW" and raw.sources[0] is other.sources[0]
            return Tensor("GLU", raw.ne, sources=(raw.sources[0],) if halves else (raw, other))
    made = like("MUL", x, y)
    made.mark = MIXED if MIXED in (x.mark, y.mark) else ""
    return made


@ggml_lowering(Attention, SinkAttention)
def attention(b: Build, op: AnyAttention, q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> Tensor:
    """Keys and values go to the cache, and all cells of a stream come back (build_attn, build_attn_mha).

    Raises UndescribedOperationError.
    """
    if op.latent:
        return latent_attention(b, q, k, v)
    if not op.causal:
        raise UndescribedOperationError("attention without a cache has no ggml graph here")
    windowed = b.batch.windows and op.window is not None
    made_of = id(k)
    kept = b.cached.get(made_of)  # keys of an earlier layer
    g, batch = b.graph, b.batch
    if b.graph_of.scales_queries:
        q = like("SCALE", q)
    if batch.turned_keys and k.ne[0] % LEAST_TURN == 0:
        q, k = (turned(b, one, key_turn(k.ne[0])) for one in (q, k))
    turns_values = batch.turned_values and v.ne[0] % LEAST_TURN == 0
    if turns_values:
        v = turned(b, v, LEAST_TURN)
    if kept is not None:
        g.expand(q)
        keys, values = kept
    else:
        for one in (q, k, v) if batch.windows else (q, v, k):
            g.expand(one)
        keys = store(b, k, op.num_key_value_heads, windowed, "k")
        values = store(b, v, op.num_key_value_heads, windowed, "v")
        b.cached[made_of] = keys, values
    sinks = [b.weight(*parameter.shape, of=parameter) for parameter in op.parameters]
    found = attend(b, q, keys, values, b.mask(windowed), sinks)
    if turns_values:
        found = turned(b, found, LEAST_TURN)
    found.mark = MIXED
    return found
