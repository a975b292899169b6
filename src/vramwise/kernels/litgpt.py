"""litgpt's own layers: its Block, CausalSelfAttention and dense MLPs, with its adapters and its loss.

litgpt 0.5.13 litgpt/model.py and litgpt/lora.py, the same since lit-gpt of October 2023 in what they keep:

    qkv         one product for queries, keys and values, of which all three are views, so that all of it stays
    norms       root mean squares on an fp32 copy, times the fp32 weight (Gemma's: 1 + weight); from 0.2.0 to 0.4.5
                the weight's own dtype
    rotations   by fp32 tables, joined with the rest of each head, which is a copy also where there is no rest
    attention   keys and values copied to every head of queries, SDPA, causal without a mask
    MLPs        an activation is one kernel of torch, and runs where its result is read
    adapters    those of qkv in one grouped convolution, whose result is scattered among zeros (`index_copy_`)
    logits      fp32 when the module hands them out (lightning 2.6 fabric/wrappers.py, plugins/precision)
    loss        128 positions at a time (litgpt/utils.py chunked_cross_entropy)

Dropouts of a config are left out, as litgpt has none. Not described, so transformers' operations run: Gemma 3, OLMo,
Qwen 3, mixtures of experts, latent attention; and what litgpt does not have (DoRA, tensor parallelism in training).
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.kernels.litgpt_blocks import (
    GateAndUp,
    OutputsToFp32,
    QueryKeyValue,
    in_the_order_of_reading,
    with_fp32_logits,
    with_gate_and_up,
    with_one_product,
)
from vramwise.models.adapters import low_rank_shapes
from vramwise.models.autograd.size import product
from vramwise.models.autograd.tensor import ITEM_BYTES, Tensor
from vramwise.models.blocks import Parameter
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.attention import Attention, Rotary
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.operations.simple import (
    Activation,
    AddInPlace,
    Dropout,
    Linear,
    ScaleByBuffer,
)  # fmt: skip

CHUNK = 128  # positions: finetune/*.py lm_head_chunk_size
LAYERS = "layers of the types that litgpt has classes for"


def query_key_value(
    run: Lowering, op: QueryKeyValue, x: Tensor, *, copies_indices: bool = False
) -> tuple[Tensor, ...]:  # fmt: skip
    """(batch, sequence, hidden) -> queries, keys and values, each (batch, heads, sequence, d).

    `copies_indices`: those of what has adapters are a copy each time (lora.py `lora_ind` since 0.5.13), else a buffer.
    """
    tape, weights = run.tape, [p for p in op.parameters if p.is_linear]
    biases = [p for p in op.parameters if not p.is_linear]
    total, inner = sum(op.widths), op.inputs[0].width
    weight = run.stand_in(weights[0], (total, inner))
    result = tape.linear(x, weight, run.stand_in(biases[0], (total,)) if biases else None)
    widths = _adapted_widths(run, op, weights)
    if widths:
        delta = _grouped_adapter(run, op, x, weights[0], widths)
        delta = delta if sum(widths) == total else _scattered(run, delta, sum(widths), total, copies_indices)
        result = tape.add(result, tape.scale(delta))
    heads = (op.num_heads, op.num_key_value_heads, op.num_key_value_heads)
    return tuple(
        tape.transpose(tape.view(part, run.batch, run.sequence, count, value.width), 1, 2)
        for part, count, value in zip(tape.split(result, op.widths), heads, op.outputs, strict=True)
    )


def _adapted_widths(run: Lowering, op: QueryKeyValue, weights: Sequence[Parameter]) -> list[int]:
    """Widths of those of queries, keys and values that have adapters."""
    lora = run.execution.lora
    if lora is None:
        return []
    if len(weights) == len(op.widths):
        return [width for weight, width in zip(weights, op.widths, strict=True) if lora.wraps(weight)]
    if not lora.wraps(weights[0]):
        return []
    queries, keys, values = op.widths
    return [queries, keys, values] if any(lora.wraps(weight) for weight in op.mlp) else [queries, values]


def _grouped_adapter(run: Lowering, op: QueryKeyValue, x: Tensor, like: Parameter, widths: list[int]) -> Tensor:
    """A for all parts in one product, B as one convolution in groups, or one for each part where widths differ."""
    tape, lora = run.tape, run.execution.lora
    assert lora is not None
    shapes = low_rank_shapes(lora.rank, op.inputs[0].width, sum(widths), groups=len(widths))
    down, up = (run.stand_in(like, shape, adapter=True) for shape in shapes)
    low = tape.transpose(tape.linear(tape.dropout(x, lora.dropout), down), 1, 2)
    if op.num_heads == op.num_key_value_heads:
        return tape.transpose(_convolved(run, low, up, sum(widths)), 1, 2)
    lows, ups = tape.chunk(low, len(widths), 1), tape.split(up, widths, 0)
    parts = [_convolved(run, *pair) for pair in zip(lows, ups, widths, strict=True)]
    return tape.transpose(tape.cat(parts, 1), 1, 2)


def _convolved(run: Lowering, low: Tensor, up: Tensor, width: int) -> Tensor:
    out = run.tape.new((run.batch, width, run.sequence), low.dtype, requires_grad=True, op="convolution")
    run.tape.record("convolution", [low, up], [out], [(low, "input"), (up, "weight")])
    return out


def _scattered(run: Lowering, x: Tensor, count: int, width: int, copies_indices: bool) -> Tensor:
    """`new_zeros(...).index_copy_(-1, indices, x)`: keeps x, of which backward asks the shape, and the indices."""
    tape = run.tape
    out = tape.new((run.batch, run.sequence, width), x.dtype, requires_grad=True, op="index_copy_")
    indices = tape.new((count,), "int64", op="clone")
    kept = [(x, "source"), *([(indices, "index")] if copies_indices else [])]
    tape.record("index_copy_", [x], [out], kept)
    return out


def query_key_value_by_copied_indices(run: Lowering, op: QueryKeyValue, x: Tensor) -> tuple[Tensor, ...]:
    return query_key_value(run, op, x, copies_indices=True)


def linear(run: Lowering, op: Linear, x: Tensor) -> Tensor:
    """`LoRALinear`."""
    weight, *bias = run.parameters_of(op)
    return _with_adapter(run, op.parameters[0], x, run.tape.linear(x, weight, *bias))


def gate_and_up(run: Lowering, op: GateAndUp, x: Tensor) -> tuple[Tensor, ...]:
    """A `LoRALinear` each."""
    like, shape = op.parameters[0], (op.outputs[0].width, op.inputs[0].width)
    return tuple(_with_adapter(run, like, x, run.tape.linear(x, run.stand_in(like, shape))) for _ in op.outputs)


def _with_adapter(run: Lowering, weight: Parameter, x: Tensor, result: Tensor) -> Tensor:
    """result + dropout(x) · A · B · scaling."""
    tape, lora = run.tape, run.execution.lora
    if lora is None or not lora.wraps(weight):
        return result
    inner, width = x.shape[-1], result.shape[-1]
    assert isinstance(inner, int)
    assert isinstance(width, int)
    down, up = (run.stand_in(weight, shape, adapter=True) for shape in low_rank_shapes(lora.rank, inner, width))
    low = tape.linear(tape.dropout(x, lora.dropout), down)
    return tape.add(result, tape.scale(tape.linear(low, up)))


def norm(run: Lowering, op: RmsNorm, x: Tensor) -> Tensor:
    """`RMSNorm`."""
    wide, weight = _normed(run, op, x)
    return run.tape.to(run.tape.mul(wide, run.tape.to(weight, "fp32")), x.dtype)


def narrow_norm(run: Lowering, op: RmsNorm, x: Tensor) -> Tensor:
    """`RMSNorm` until 0.4.5: what the weight scales, and so what its gradient needs, is in 16 bits again."""
    wide, weight = _normed(run, op, x)
    return run.tape.mul(run.tape.to(wide, x.dtype), weight)


def _normed(run: Lowering, op: RmsNorm, x: Tensor) -> tuple[Tensor, Tensor]:
    """`x` over its root mean square in fp32, and what scales it."""
    tape, weight = run.tape, run.parameters_of(op)[0]
    wide = tape.to(x, "fp32")
    scale = tape.unary("rsqrt", tape.scale(tape.reduce("mean", tape.mul(wide, wide)), "add_scalar"))
    weight = tape.scale(weight, "add_scalar") if op.style == "gemma" else weight
    return tape.mul(wide, scale), weight


def rotation(run: Lowering, op: Rotary, *turned: Tensor) -> tuple[Tensor, ...]:
    """`apply_rope` and `torch.cat`; the tables are the model's own buffers, made before the run."""
    width, tape = op.rotary_dim, run.tape
    key = f"litgpt/{width}"
    if key not in run.tables:
        shape = (1, 1, run.sequence, width)
        run.tables[key] = tuple(tape.parameter(shape, "fp32", requires_grad=False) for _ in range(2))
    cos, sin = run.tables[key]
    return tuple(_turned(run, x, width, cos, sin) for x in turned)


def _turned(run: Lowering, x: Tensor, width: int, cos: Tensor, sin: Tensor) -> Tensor:
    tape, rest = run.tape, x.shape[-1] - width
    part = tape.narrow(x, -1, width)
    first, second = tape.narrow(part, -1, width // 2), tape.narrow(part, -1, width // 2)
    other = tape.cat([tape.unary("neg", second), first])
    roped = tape.to(tape.add(tape.mul(part, cos), tape.mul(other, sin)), x.dtype)
    return tape.cat([roped, tape.narrow(x, -1, rest)] if rest else [roped])


def attention(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
    """`CausalSelfAttention` behind the rotation, up to its output product: `repeat_interleave` always copies."""
    return _mixed(run, op, q, _repeated(run, k, op.num_heads), _repeated(run, v, op.num_heads))


def attention_of_one_group(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
    """The same with `expand` and `reshape`, which only look at keys and values of one group."""
    tape, groups = run.tape, k.shape[1]
    assert isinstance(groups, int)
    times = op.num_heads // groups
    return _mixed(run, op, q, tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times))


def _repeated(run: Lowering, x: Tensor, heads: int) -> Tensor:
    batch, groups, tokens, d = x.shape
    assert isinstance(groups, int)
    if groups == heads:
        return x
    wide = run.tape.expand(run.tape.unsqueeze(x, 2), batch, groups, heads // groups, tokens, d)
    return run.tape.view(run.tape.clone_contiguous(wide), batch, heads, tokens, d)


def _mixed(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tape, d = run.tape, q.shape[-1]
    if op.softcap:
        y = _capped_attention(run, q, k, v)
    else:
        y = tape.sdpa(q, k, v, causal=True, backend=run.execution.sdpa_backend)
        y = tape.narrow(y, -1, d) if y.shape[-1] != d else y  # the kernel's padding
    return tape.reshape(tape.transpose(y, 1, 2), run.batch, run.sequence, -1)


def _capped_attention(run: Lowering, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores written out, with a mask that every layer makes."""
    tape = run.tape
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    capped = tape.scale(tape.unary("tanh", tape.scale(scores)))
    mask = tape.new((1, 1, run.sequence, run.sequence), q.dtype, op="mask")
    weights = tape.to(tape.softmax(tape.add(capped, mask), "fp32"), q.dtype)
    return tape.matmul(weights, v)


def activation(run: Lowering, op: Activation, x: Tensor) -> Tensor:
    """`F.silu`, or `F.gelu` whatever its approximation; the cap on logits is a hyperbolic tangent."""
    of_mlp = {"silu": "silu", "swish": "silu", "tanh": "tanh"}
    return run.tape.unary(of_mlp.get(op.function, "gelu"), x)


def activation_without_cap(run: Lowering, op: Activation, x: Tensor) -> Tensor:
    """The same, but that lora.py did not cap chunks of logits."""
    return x if op.function == "tanh" and run.execution.lora is not None else activation(run, op, x)


def as_it_is(run: Lowering, op: Dropout, x: Tensor) -> Tensor:
    return x


def scaled(run: Lowering, op: ScaleByBuffer, x: Tensor) -> Tensor:
    """A product with a number on the host."""
    return run.tape.scale(x)


def added(run: Lowering, op: AddInPlace, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.add(a, b)


def outputs_to_fp32(run: Lowering, op: OutputsToFp32, logits: Tensor) -> Tensor:
    wide = run.tape.new(logits.shape, "fp32", requires_grad=logits.requires_grad, op="outputs_to_fp32")
    run.tape.record("outputs_to_fp32", [logits], [wide])
    return wide


def loss(run: Lowering, logits: Tensor) -> Tensor:
    """Log-probabilities of chunks of 128 positions, which their gradients replace.

    In backward a chunk has gradients of the loss and of log-softmax beside its log-probabilities.
    """
    tape = run.tape
    with tape.inside("loss"):
        kept = tape.new(logits.shape, "fp32", op="log-probabilities")
        made = tape.new((), "fp32", requires_grad=logits.requires_grad, op="loss")
        saved = [(kept, "log-probabilities")]
        chunk = product((run.batch, CHUNK, logits.shape[-1])) * ITEM_BYTES["fp32"]
        tape.record("fused_cross_entropy", [logits], [made, kept], saved, workspace_bytes=2 * chunk)
        return made


RECORD = Kernels(
    name="litgpt",
    overrides=(
        Override(QueryKeyValue, query_key_value_by_copied_indices, LAYERS, "copied_indices", with_one_product),
        Override(QueryKeyValue, query_key_value, LAYERS, fact="layers", rewrite=with_one_product),
        Override(GateAndUp, gate_and_up, LAYERS, fact="layers", rewrite=with_gate_and_up),
        Override(Linear, linear, LAYERS, fact="layers"),
        Override(RmsNorm, narrow_norm, LAYERS, fact="narrow_norms"),
        Override(RmsNorm, norm, LAYERS, fact="layers"),
        Override(Rotary, rotation, LAYERS, fact="layers"),
        Override(Attention, attention, LAYERS, fact="repeated_heads"),
        Override(Attention, attention_of_one_group, LAYERS, fact="layers"),
        Override(Activation, activation_without_cap, LAYERS, fact="uncapped", rewrite=in_the_order_of_reading),
        Override(Activation, activation, LAYERS, fact="layers", rewrite=in_the_order_of_reading),
        Override(Dropout, as_it_is, LAYERS, fact="layers"),
        Override(ScaleByBuffer, scaled, LAYERS, fact="layers"),
        Override(AddInPlace, added, LAYERS, fact="layers"),
        Override(OutputsToFp32, outputs_to_fp32, LAYERS, fact="layers", rewrite=with_fp32_logits),
    ),
    order=0,
    source="litgpt 0.5.13 litgpt/model.py, litgpt/lora.py, litgpt/utils.py",
    loss=loss,
    is_alone=True,
)
