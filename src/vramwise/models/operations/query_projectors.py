"""Learned queries that read an image's patches by attention, as transformers 5.23 runs them: Aria, Idefics 2."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyAttention, HeadedAttention, sdpa_attention
from vramwise.models.operations.tiles import eager_masked_attention, sdpa_masked_attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries(Operation):
    by_patches: tuple[tuple[int, int], ...] = ()


@lowering(Queries)
def queries(run: Lowering, op: Queries, x: Tensor) -> Tensor:
    """As many queries as that many patches have, a copy for each image; else all of them, not copied."""
    tape, (table,) = run.tape, run.parameters_of(op)
    if not op.by_patches:
        return tape.expand(tape.unsqueeze(table, 0), x.shape[0], *table.shape)
    counts = dict(op.by_patches)
    patches = x.shape[1]
    assert isinstance(patches, int)
    if patches not in counts:
        said = ", ".join(str(count) for count in counts)
        raise UnsupportedModelError(f"images of {patches} patches: projector_patch_to_query_dict has {said}")
    return tape.repeat_rows(tape.unsqueeze(tape.narrow(table, 0, counts[patches]), 0), x.shape[0])


class JoinedTokens(Operation):
    __slots__ = ()


@lowering(JoinedTokens)
def joined_tokens(run: Lowering, op: JoinedTokens, *parts: Tensor) -> Tensor:
    """One behind the other."""
    return run.tape.cat(list(parts), 1)


class Resampling(AnyAttention):
    __slots__ = ()


@lowering(Resampling)
def resampling(run: Lowering, op: Resampling, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries read patches and themselves, with a mask where patches are padding (Idefics 2)."""
    tape, images = run.tape, run.execution.images
    heads, groups = op.num_heads, op.num_key_value_heads
    pieces = ((q, heads), (k, groups), (v, groups))
    q, k, v = (tape.transpose(tape.view(x, *x.shape[:2], n, x.shape[-1] // n), 1, 2) for x, n in pieces)
    eager, key = run.execution.attention == "eager", "mask of queries"
    if images is not None and images.padded_to and key not in run.tables:
        dtype = run.hidden_dtype if eager else "bool"
        run.tables[key] = (tape.new((q.shape[0], 1, q.shape[2], k.shape[2]), dtype, op="mask"),)
    (mask,) = run.tables.get(key, (None,))
    if eager:
        out = eager_masked_attention(run, op, q, k, v, mask)
    else:
        out = sdpa_attention(run, op, q, k, v) if mask is None else sdpa_masked_attention(run, op, q, k, v, mask)
    return tape.reshape(out, *out.shape[:2], -1)


class MultiheadAttention(HeadedAttention):
    __slots__ = ()


@lowering(MultiheadAttention)
def multihead_attention(run: Lowering, op: MultiheadAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`nn.MultiheadAttention`, batch first, which hands back its weights too, so that no kernel fuses it."""
    tape, heads = run.tape, op.num_heads
    weight, bias, out_weight, out_bias = run.parameters_of(op)
    n, length, width = q.shape
    weights_of, biases = (tape.split(tape.unleafed(p), [width] * 3, 0) for p in (weight, bias))
    pieces = zip((q, k, v), weights_of, biases, strict=True)
    q, k, v = (tape.linear(tape.transpose(x, 0, 1), w, b) for x, w, b in pieces)
    q, k, v = (tape.transpose(tape.view(x, x.shape[0], n * heads, width // heads), 0, 1) for x in (q, k, v))
    weights = tape.softmax(tape.matmul(tape.scale(q), tape.transpose(k, 1, 2)))
    mixed = tape.reshape(tape.transpose(tape.matmul(weights, v), 0, 1), length * n, width)
    out = tape.view(tape.linear(mixed, out_weight, out_bias), length, n, width)
    return tape.transpose(out, 0, 1)
