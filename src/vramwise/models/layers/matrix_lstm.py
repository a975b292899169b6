"""xLSTM's norm and its memory: a matrix for every head, gated by exponentials."""

from __future__ import annotations

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import Dim, behind_chunks_of, exact_quotient, whole_chunks_of
from vramwise.models.autograd.tensor import Tensor, contiguous_strides
from vramwise.models.blocks import Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.simple import AddBias
from vramwise.records import record

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def norm(b: BlockBuilder, x: Value, module: str, *, bias: bool, widened: bool = True) -> Value:
    """A root-mean-square norm, with a bias where the model has biases."""
    x = b.rms_norm(x, module, style="llama" if widened else "own-dtype")
    return b.unary(AddBias(), x, module, [b.parameter(module, "bias", (x.width,), part="norm")]) if bias else x


def cell(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(sigmoid(o) · norm(mLSTM(q, k, v, i, f))); one product for several where the weights are fused."""
    heads, bias, module = c.size("num_heads"), c.flag("use_bias"), "mlstm_layer"
    keys, values = (int(x.width * c.number(f"{name}_dim_factor")) for name in ("qk", "v"))
    if keys % heads or values % heads:
        raise c.error(f"num_heads ({heads}) does not divide the widths of keys ({keys}) and values ({values})")
    b.part = "mixer"
    if c.text("weight_mode") == "fused":
        joined = b.linear(x, f"{module}.qkv_opreact", 2 * keys + 2 * values, bias=bias)
        *pieces, out = b.split(joined, [keys, keys, values, values])
        pieces += b.split(b.softcap(b.linear(x, f"{module}.ifgate_preact", 2 * heads, bias=True)), [heads, heads])
    else:
        widths = {"q": keys, "k": keys, "v": values, "ogate_preact": values}
        *pieces, out = (b.linear(x, f"{module}.{name}", width, bias=bias) for name, width in widths.items())
        gates = (b.linear(x, f"{module}.{name}gate_preact", heads, bias=True) for name in "if")
        pieces += [b.softcap(gate) for gate in gates]
    length, dtype = c.size("chunk_size"), _DTYPES.get(c.text("inference_state_dtype"), "fp32")
    (h,) = b.op(
        MatrixLstm(
            num_heads=heads,
            chunk_size=length,
            two_chunks=2 * length,
            state_dtype=dtype,
            trains="train" in c.text("mode"),
        ),
        module,
        pieces,
        [values // heads],
    )
    leaves = ("weight", "bias")[: 1 + bias]
    parameters = [b.parameter(f"{module}.multihead_norm", leaf, (values,), part="norm") for leaf in leaves]
    widened = c.flag("norm_reduction_force_float32", True)
    h = b.unary(HeadsLayerNorm(widened=widened), h, module, parameters, width=values)
    state = keys // heads * values + keys + heads
    b.keep(LayerCache("recurrent", state_elements=state, model_dtype_state=True))
    h = b.multiply(b.activation(out, "sigmoid", module), h)
    return b.linear(h, f"{module}.out_proj", x.width, bias=bias, shard="row")


# -- as transformers 5.23 runs it -------------------------------------------------------------------------
# Whole chunks of a sequence at once, then its last tokens one after another. Steps are alike, so that they are
# recorded once with an axis for them. Shapes: b batch, h heads, n chunks, c positions of a chunk, k and v widths of a
# head.


Pieces = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@record(kw_only=True, eq=False)
class MatrixLstm(Operation):
    package = "xlstm"

    num_heads: int
    chunk_size: int
    two_chunks: int
    state_dtype: str
    trains: bool


@lowering(MatrixLstm)
def matrix_lstm(run: Lowering, op: MatrixLstm, *projected: Tensor) -> Tensor:
    """(b, tokens, h·width) five times -> (b, tokens, h, v). Raises UnsupportedModelError."""
    tape, heads, length, dtype = run.tape, op.num_heads, op.chunk_size, op.state_dtype
    split = (tape.view(x, *x.shape[:2], heads, x.shape[-1] // heads) for x in projected[:3])
    q, k, v = (tape.transpose(x, 1, 2) for x in split)
    i, f = (tape.transpose(x, 1, 2) for x in projected[3:])
    whole = _whole_chunks(run, length)
    filled = length in run.chunks_filled
    if op.trains:
        if not filled:
            raise UnsupportedModelError(f"mode train: the class takes whole chunks of {length} tokens only")
        pieces = tuple(_renamed(run, x, whole * length) for x in (q, k, v, i, f))
        h = _whole(run, pieces, whole, q.dtype)  # type: ignore[arg-type]
    elif run.sequence == 1:
        h = _steps(run, (q, k, v, i, f), dtype)
    else:
        parts = []
        if whole != 0:
            pieces = tuple(_part(run, x, whole * length, filled) for x in (q, k, v, i, f))
            parts.append(_whole(run, pieces, whole, "fp32"))  # type: ignore[arg-type]
        if not filled:
            pieces = tuple(_part(run, x, _tokens_behind(run, length), False) for x in (q, k, v, i, f))
            parts.append(_steps(run, pieces, dtype))  # type: ignore[arg-type]
        h = tape.cat(parts, 2)
    shape = (*h.shape[:2], run.sequence, h.shape[3])
    return tape.transpose(tape.as_strided(h, shape, contiguous_strides(shape)), 1, 2)


def _whole_chunks(run: Lowering, length: int) -> Dim:
    """How many there are: an axis where there may be several."""
    if length not in run.windows_reached | run.chunks_filled:
        return 0
    several = 2 * length in run.windows_reached | run.chunks_filled
    return whole_chunks_of(run.sequence, length) if several else 1


def _tokens_behind(run: Lowering, length: int) -> Dim:
    """What is left behind whole chunks."""
    if length not in run.windows_reached:
        return run.sequence
    return 1 if length in run.one_behind_chunks else behind_chunks_of(run.sequence, length)


def _part(run: Lowering, x: Tensor, tokens: Dim, everything: bool) -> Tensor:
    """`x[:, :, first:last].contiguous()`."""
    if everything and x.is_contiguous():
        return _renamed(run, x, tokens)
    return run.tape.contiguous(run.tape.narrow(x, 2, tokens))


def _renamed(run: Lowering, x: Tensor, tokens: Dim) -> Tensor:
    """The whole sequence, its length written in chunks."""
    per_row = x.strides[2] if x.strides[2] != 1 or x.ndim == 3 else x.shape[-1]
    heads = x.shape[1]
    shape = (x.shape[0], heads, tokens, *x.shape[3:])
    if x.is_contiguous():
        return run.tape.as_strided(x, shape, contiguous_strides(shape))
    return run.tape.as_strided(x, shape, (tokens * per_row, x.strides[1], per_row, *x.strides[3:]))


# -- whole chunks --------------------------------------------------------------------------------------


def _whole(run: Lowering, pieces: Pieces, n: Dim, state_dtype: str) -> Tensor:
    """`mlstm_chunkwise_native_autograd`: states between chunks, then everything within them."""
    tape = run.tape
    q, k, v, i, f = (tape.view(x, *x.shape[:2], n, exact_quotient(x.shape[2], n), *x.shape[3:]) for x in pieces)
    total = tape.cumsum(tape.log_sigmoid(f))
    states = _states_between(run, k, v, i, total, pieces[2], state_dtype)
    h = _within(run, q, k, v, i, total, *states)
    return tape.view(h, *h.shape[:2], n * q.shape[3], v.shape[-1])


def _states_between(
    run: Lowering, k: Tensor, v: Tensor, i: Tensor, total: Tensor, values: Tensor, dtype: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Memory, its normalizer and its scale before each chunk, as views of tensors with one state more.

    Each step keeps the state before it, of which the first is zeros, for the product with its decay.
    """
    tape, (b, h, n, *_) = run.tape, k.shape
    last = tape.select(total, -1)
    inward = tape.add(tape.add(tape.narrow(total, -1, 1), total), i)
    largest = tape.squeeze(tape.largest(inward), -1)
    before = tape.add(last, tape.new((b, h, n), dtype, op="zeros"))
    scale = tape.maximum(before, largest)
    gated = tape.mul(k, tape.unsqueeze(tape.unary("exp", tape.add(inward, tape.unsqueeze(scale, -1))), -1))
    decay = tape.unary("exp", tape.add(before, scale))
    added = tape.matmul(tape.transpose(gated, -2, -1), _values_by_chunk(run, values, v))
    later = tape.new((n - 1, b, h), decay.dtype, op="exp") if n != 1 else None
    states = [_walked(run, decay, later, x, dtype) for x in (added, tape.reduce("sum", gated, 3, keepdim=False))]
    found = []
    for state in (*states, scale):
        rows = state.shape[3:4] or (1,)
        stored = tape.new(
            (b, h, (n + 1) * rows[0], *state.shape[4:]), k.dtype, requires_grad=state.requires_grad, op="zeros"
        )
        tape.record("copy_", [state], [stored])
        found.append(tape.view(tape.narrow(stored, 2, n * rows[0]), b, h, n, *state.shape[3:]))
    return found[0], found[1], found[2]


def _values_by_chunk(run: Lowering, values: Tensor, v: Tensor) -> Tensor:
    """As each chunk's own product sees its values: a view wherever one chunk's rows allow it."""
    tape, (b, h, _, c, width) = run.tape, v.shape
    flat = tape.reshape(tape.narrow(values, 2, c), b * h, c, width)
    if flat.storage is values.storage:
        return tape.as_strided(v, v.shape, contiguous_strides(v.shape))
    return tape.contiguous(v)


def _walked(run: Lowering, decay: Tensor, later: Tensor | None, added: Tensor, dtype: str) -> Tensor:
    """state = decay · state + added, from chunk to chunk.

    Decays keep the states before them; those without a gradient are kept themselves, the `later` ones, for states.
    """
    tape, n = run.tape, decay.shape[2]
    one = (*added.shape[:2], *added.shape[3:])
    wide = promote(decay.dtype, dtype, added.dtype)
    grad = decay.requires_grad or added.requires_grad
    kept = [] if later is None else [(later, "self")]
    if decay.requires_grad:
        kept = [(decay, "self"), (tape.new(one, dtype, op="zeros"), "other")]
        if n != 1:
            kept.append((tape.new((n - 1, *one), wide, requires_grad=grad, op="add"), "other"))
    out = tape.new(added.shape, wide, requires_grad=grad, op="add")
    tape.record("mul", [decay, added], [out], kept)
    return out


def _within(
    run: Lowering, q: Tensor, k: Tensor, v: Tensor, i: Tensor, total: Tensor, memory: Tensor, normalizer: Tensor,
    scale: Tensor,
) -> Tensor:  # fmt: skip
    """`mlstm_chunkwise_parallel_fw_H`: attention within a chunk, and what the memory before it answers."""
    tape, length = run.tape, q.shape[3]
    mask = tape.new((length, length), "bool", op="tril")
    pairs = tape.add(tape.unsqueeze(total, 4), tape.unsqueeze(total, 3))
    pairs = tape.where(mask, pairs, tape.new((), pairs.dtype, op="scalar"))
    pairs = tape.add(pairs, tape.unsqueeze(i, 3))
    inner = tape.squeeze(tape.largest(pairs), -1)
    outer = tape.add(total, tape.unsqueeze(scale, -1))
    combined = tape.unsqueeze(tape.maximum(outer, inner), -1)
    decay = tape.unary("exp", tape.add(pairs, combined))
    weights = tape.mul(tape.scale(tape.matmul(q, tape.transpose(k, -2, -1))), decay)
    asked = tape.mul(q, tape.unary("exp", tape.add(tape.unsqueeze(outer, -1), combined)))
    asked = tape.scale(asked)
    answer = tape.add(tape.matmul(asked, memory), tape.matmul(weights, v))
    size = tape.add(tape.matmul(asked, tape.unsqueeze(normalizer, -1)), tape.reduce("sum", weights))
    least = tape.unary("exp", tape.unary("neg", combined))
    return tape.div(answer, tape.scale(tape.maximum(tape.unary("abs", size), least), "add_scalar"))


# -- one token after another ---------------------------------------------------------------------------


def _steps(run: Lowering, pieces: Pieces, dtype: str) -> Tensor:
    """`mlstm_recurrent_step_native` for each token, with the steps in the place of the tokens."""
    tape, (q, k, v, i, f) = run.tape, pieces
    before = tape.add(tape.log_sigmoid(f), tape.new(f.shape, dtype, op="zeros"))
    scale = tape.maximum(before, i)
    forget, take = (tape.unary("exp", tape.add(x, scale)) for x in (before, i))
    asked = tape.scale(q)
    outer = tape.matmul(tape.unsqueeze(k, -1), tape.unsqueeze(v, -2))
    memory = _step(run, tape.unsqueeze(forget, -1), tape.unsqueeze(take, -1), outer, dtype)
    normalizer = _step(run, forget, take, k, dtype)
    asked = tape.unsqueeze(asked, -2)
    answer = tape.to(tape.squeeze(tape.matmul(asked, tape.to(memory, q.dtype)), -2), dtype)
    size = tape.matmul(asked, tape.unsqueeze(tape.to(normalizer, q.dtype), -1))
    least = tape.unary("exp", tape.unary("neg", scale))
    size = tape.maximum(tape.unary("abs", tape.squeeze(size, -2)), tape.unsqueeze(least, -1))
    size = tape.to(tape.scale(size, "add_scalar"), dtype)
    return tape.to(tape.div(answer, size), q.dtype)


def _step(run: Lowering, forget: Tensor, take: Tensor, added: Tensor, dtype: str) -> Tensor:
    """forget · state + take · added, on a copy of the state before."""
    tape, forget, take = run.tape, run.tape.unsqueeze(forget, -1), run.tape.unsqueeze(take, -1)
    state = tape.new(added.shape, dtype, requires_grad=added.requires_grad, op="clone")
    return tape.add(tape.mul(forget, state), tape.mul(take, added))


@record(kw_only=True, eq=False)
class HeadsLayerNorm(Operation):
    is_norm = True

    widened: bool


@lowering(HeadsLayerNorm)
def heads_layer_norm(run: Lowering, op: HeadsLayerNorm, x: Tensor) -> Tensor:
    """A layer norm of each head, written in Python, weighted over all of them: (b, tokens, h·v)."""
    tape, (weight, *bias) = run.tape, run.parameters_of(op)
    h = tape.to(x, "fp32") if op.widened else x
    centered = tape.add(h, tape.reduce("mean", h))
    variance = tape.new((*h.shape[:-1], 1), h.dtype, requires_grad=h.requires_grad, op="var")
    tape.record("var", [h], [variance], [(h, "self")])
    h = tape.mul(centered, tape.unary("rsqrt", tape.scale(variance, "add_scalar")))
    h = tape.mul(tape.reshape(tape.to(h, x.dtype), *x.shape[:2], -1), weight)
    return tape.add(h, *bias) if bias else h
