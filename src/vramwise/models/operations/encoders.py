"""Operations of single encoder and encoder-decoder families as transformers 5.23 runs them."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Aside, Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import ROTATIONS, Attention, AttentionStyle, attention_dropout, rotate_half
from vramwise.records import record


class MasksTakeDtype(Operation):
    __slots__ = ()


@lowering(MasksTakeDtype)
def masks_take_dtype(run: Lowering, op: MasksTakeDtype, x: Tensor) -> Tensor:
    """The classes make their mask from this tensor: autocast may have narrowed it."""
    run.hidden_dtype = x.dtype
    return x


class Contiguous(Operation):
    __slots__ = ()


@lowering(Contiguous)
def contiguous(run: Lowering, op: Contiguous, x: Tensor) -> Tensor:
    return run.tape.contiguous(x)


class BoundFp16(Operation):
    __slots__ = ()


@lowering(BoundFp16)
def bound_fp16(run: Lowering, op: BoundFp16, x: Tensor) -> Tensor:
    """fp16 hidden states are clamped between two numbers; other dtypes pass."""
    if x.dtype != "fp16":
        return x
    out = run.tape.like(x, requires_grad=x.requires_grad, op="clamp")
    run.tape.record("clamp", [x], [out], [(x, "self")])
    return out


class TimesWholeMask(Operation):
    __slots__ = ()


@lowering(TimesWholeMask)
def times_whole_mask(run: Lowering, op: TimesWholeMask, x: Tensor) -> Tensor:
    """A product with a mask of whole numbers, cast anew at each place; backward keeps the copy (XLM)."""
    return run.tape.mul(x, run.tape.new((*x.shape[:-1], 1), x.dtype, op="_to_copy"))


class AddBuffer(Operation):
    __slots__ = ()


@lowering(AddBuffer)
def add_buffer(run: Lowering, op: AddBuffer, x: Tensor) -> Tensor:
    """A row of numbers that the module holds as a buffer in the parameters' dtype (`final_logits_bias`)."""
    return run.tape.add(x, run.tape.new((1, x.shape[-1]), run.execution.param_dtype, kind="buffer", op="buffer"))


class AddFrozen(Operation):
    __slots__ = ()


@lowering(AddFrozen)
def add_frozen(run: Lowering, op: AddFrozen, x: Tensor) -> Tensor:
    """A parameter that is never trained."""
    return run.tape.add(x, *run.parameters_of(op))


@record(kw_only=True, eq=False)
class Sound(Operation):
    frames: int = 0


@lowering(Sound)
def sound(run: Lowering, op: Sound) -> Tensor:
    """Spectrograms: (batch, mel bins, frames) in the parameters' dtype."""
    shape = (run.batch, op.outputs[0].width, op.frames)
    return run.tape.new(shape, run.execution.param_dtype, kind="input", op="input_features")


@record(kw_only=True, eq=False)
class Convolution(Operation):
    """`embeds`: the class names it as its input embeddings (`_input_embed_layer`)."""

    stride: int = 1
    embeds: bool = False

    @property
    def embeds_inputs(self) -> bool:
        return self.embeds


@lowering(Convolution)
def convolution(run: Lowering, op: Convolution, x: Tensor) -> Tensor:
    weight, bias = run.parameters_of(op)
    return run.tape.conv1d(x, weight, bias, op.stride)


@record(kw_only=True, eq=False)
class UnboundQkv(Operation):
    num_heads: int


@lowering(UnboundQkv)
def unbound_qkv(run: Lowering, op: UnboundQkv, fused: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values as views of one product (ModernBERT)."""
    tape, width = run.tape, op.outputs[0].width
    stacked = tape.view(fused, *fused.shape[:-1], 3, op.num_heads, width)
    return tuple(tape.squeeze(tape.narrow(stacked, 2, 1), 2) for _ in range(3))


BIASED = AttentionStyle("biased")


@BIASED.path("eager")
def _eager_biased(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Biases added to the scores in place, then the mask (MPNet)."""
    tape = run.tape
    scores = tape.add_(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
    if run.execution.padding:
        scores = tape.add(scores, tape.new((run.batch, 1, 1, k.shape[2]), run.hidden_dtype, op="mask"))
    weights = tape.dropout(tape.softmax(scores), attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


@ROTATIONS.named("half_widened")
def _rotate_half_widened(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x·cos + rotate_half(x)·sin on an fp32 copy, cast back (ModernBERT)."""
    return run.tape.to(rotate_half(run, run.tape.to(x, "fp32"), cos, sin), x.dtype)


XLM = AttentionStyle("xlm")


@XLM.path("eager")
def _eager_xlm(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores filled in place where the mask says so, softmax in fp32 (XLM)."""
    tape = run.tape
    rows = q.shape[2] if op.causal else 1
    scores = tape.matmul(q, tape.transpose(k, 2, 3))
    hidden = tape.new((run.batch, 1, rows, k.shape[2]), "bool", op="eq")
    weights = tape.to(tape.softmax(tape.to(tape.masked_fill(scores, hidden), "fp32")), scores.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


class PoolAside(Aside):
    __slots__ = ()


@lowering(PoolAside)
def pool_aside(run: Lowering, op: PoolAside, x: Tensor) -> tuple[()]:
    """tanh of a projection of the first token, which the loss does not read: no gradient flows through it."""
    first, weight, bias = (run.tape.detached(part) for part in (run.tape.select(x, 1), *run.parameters_of(op)))
    run.tape.unary("tanh", run.tape.linear(first, weight, bias))
    return ()


FOLDED = AttentionStyle("folded")


@FOLDED.path("eager")
def _eager_folded(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads folded into the batch, the mask added in between (MVP, TrOCR, LED)."""
    tape = run.tape
    batch, heads, s, d = q.shape
    q, k, v = (tape.reshape(x, batch * heads, x.shape[2], d) for x in (q, k, v))
    scores = tape.matmul(q, tape.transpose(k, 1, 2))
    causal = op.causal and (s != 1 or op.masks_one_token)
    if causal or run.execution.padding:
        mask = tape.new((batch, 1, s, k.shape[1]), run.hidden_dtype, op="mask")
        scores = tape.add(tape.view(scores, batch, heads, s, k.shape[1]), mask)
        scores = tape.view(scores, batch * heads, s, k.shape[1])
    weights = tape.dropout(tape.softmax(scores), attention_dropout(run, op.dropout))
    return tape.transpose(tape.view(tape.matmul(weights, v), batch, heads, s, d), 1, 2)


@record(kw_only=True, eq=False)
class RowsOfLanguage(Operation):
    num_languages: int


@lowering(RowsOfLanguage)
def rows_of_language(run: Lowering, op: RowsOfLanguage, x: Tensor) -> Tensor:
    """X-MOD's sequences of one language: a copy, and a mask over the batch that backward keeps per language."""
    tape = run.tape
    rows = tape.like(x, requires_grad=x.requires_grad, op="index")
    masks = [tape.new((run.batch,), "bool", op="eq") for _ in range(op.num_languages)]
    tape.record("index", [x], [rows], [(mask, "indices") for mask in masks])
    return rows
