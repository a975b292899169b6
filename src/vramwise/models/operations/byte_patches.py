"""Byte Latent Transformer as transformers 5.23 runs it: bytes gathered into patches, and attention between both.

Where patches end depends on the text: an entropy model, or the caller, says it.
"""

from __future__ import annotations

from vramwise.models.autograd.size import Dim, chunks_of
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout
from vramwise.records import record

FEWEST_PATCHES = 2
"""`patch_lengths_from_entropies`: the first two bytes begin one each, whatever the text."""


@record(kw_only=True, eq=False)
class HashedEmbedding(Operation):
    lookups: int


@lowering(HashedEmbedding)
def hashed_embedding(run: Lowering, op: HashedEmbedding, x: Tensor) -> Tensor:
    """Rows of one table for the hash of every group of bytes, added in place."""
    tape, (table,) = run.tape, run.parameters_of(op)
    for _ in range(op.lookups):
        x = tape.add_(x, tape.embedding(tape.new((run.batch, run.sequence), "int64", op="add"), table))
    return x


@record(kw_only=True, eq=False)
class PatchMaxima(Operation):
    chunk_size: int | None


@lowering(PatchMaxima)
def patch_maxima(run: Lowering, op: PatchMaxima, x: Tensor) -> Tensor:
    """`scatter_reduce` by the largest: keeps all that it reads and its result."""
    tape, patches = run.tape, _num_patches(run, op.chunk_size)
    if "bytes to patches" not in run.tables:
        run.tables["bytes to patches"] = (tape.new((run.batch, run.sequence), "int64", op="sub"),)
    (index,) = run.tables["bytes to patches"]
    zeros = tape.new((run.batch, patches, x.shape[-1]), x.dtype, op="zeros")
    out = tape.new(zeros.shape, x.dtype, requires_grad=x.requires_grad, op="scatter_reduce")
    saves = [(zeros, "self"), (x, "src"), (index, "index"), (out, "result")]
    tape.record("scatter_reduce", [zeros, index, x], [out], saves)
    return out


def _num_patches(run: Lowering, bytes_each: int | None) -> Dim:
    """One a byte and one more where nothing decides; what is expected, or the fewest, where the text does."""
    if bytes_each is None:
        return run.sequence + 1
    if run.execution.fewest_routed:
        return FEWEST_PATCHES
    return chunks_of(run.sequence, bytes_each) if bytes_each in run.windows_reached else 1


class VectorsOfPatches(Operation):
    __slots__ = ()


@lowering(VectorsOfPatches)
def vectors_of_patches(run: Lowering, op: VectorsOfPatches, x: Tensor) -> Tensor:
    """(batch, patches, several · width) -> (batch, several · patches, width), a view."""
    times = op.inputs[0].width // op.outputs[0].width
    return run.tape.view(x, x.shape[0], x.shape[1] * times, op.outputs[0].width)


class PatchesOfVectors(Operation):
    __slots__ = ()


@lowering(PatchesOfVectors)
def patches_of_vectors(run: Lowering, op: PatchesOfVectors, x: Tensor) -> Tensor:
    """The way back."""
    times = op.outputs[0].width // op.inputs[0].width
    return run.tape.view(x, x.shape[0], x.shape[1] // times, op.outputs[0].width)


@record(kw_only=True, eq=False)
class PatchPositions(Operation):
    table: str
    head_dim: int


@lowering(PatchPositions)
def patch_positions(run: Lowering, op: PatchPositions, x: Tensor) -> Tensor:
    """Rotary tables of the patches' own length, in the dtype of what reads them."""
    name, width = op.table, op.head_dim
    shape = (1, x.shape[1], width)
    run.tables[f"{name}/{width}"] = tuple(run.tape.new(shape, x.dtype, op=fn) for fn in ("cos", "sin"))
    return x


def _bytes_and_patches_mask(run: Lowering, q: Tensor, k: Tensor, name: str) -> Tensor:
    """Zeros where a byte is of a patch, made once for all layers of one direction."""
    if name not in run.tables:
        shape = (run.batch, 1, q.shape[2], k.shape[2])
        run.tables[name] = (run.tape.new(shape, run.hidden_dtype, op="masked_fill"),)
    return run.tables[name][0]


PATCHES = AttentionStyle("patches", has_float_mask=True)


@PATCHES.path("eager")
def _eager_patches(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tape, times = run.tape, op.num_heads // op.num_key_value_heads
    k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    scores = tape.add(scores, _bytes_and_patches_mask(run, q, k, op.mask))
    weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


@PATCHES.path("sdpa")
def _sdpa_patches(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tape, times = run.tape, op.num_heads // op.num_key_value_heads
    mask, (batch, _, rows, width) = _bytes_and_patches_mask(run, q, k, op.mask), q.shape
    packed = times > 1 and rows == 1
    if packed:  # `pack_gqa`: the heads of a group stand in for tokens
        q = tape.reshape(q, batch, k.shape[1], times, width)
    else:
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
    out = tape.sdpa(q, k, v, mask=mask, dropout=attention_dropout(run, op.dropout), backend=run.execution.sdpa_backend)
    out = tape.reshape(out, batch, -1, 1, width) if packed else out
    return tape.contiguous(tape.transpose(out, 1, 2))
