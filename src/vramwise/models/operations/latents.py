"""Operations of image and video pipelines as diffusers 0.42 runs them without gradients.

Maps are (batch, channels, rows, columns) or (batch, channels, frames, rows, columns), tokens (batch, tokens, width).
"""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


@record(kw_only=True, eq=False)
class MapConvolution(Operation):
    """`nn.Conv2d` or `nn.Conv3d`: a stride and a padding for each of its dimensions."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]


@lowering(MapConvolution)
def convolution(run: Lowering, op: MapConvolution, x: Tensor) -> Tensor:
    weight, *bias = run.parameters_of(op)
    return convolved(run.tape, x, weight, bias[0] if bias else None, op.stride, op.padding)


def convolved(
    tape: Tape, x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], padding: tuple[int, ...]
) -> Tensor:
    """⌊(length + 2 · padding − kernel) / stride⌋ + 1 places along each dimension."""
    sides = zip(x.shape[2:], weight.shape[2:], stride, padding, strict=True)
    places = tuple((whole(side) + 2 * pad - whole(kernel)) // step + 1 for side, kernel, step, pad in sides)
    out = tape.new((x.shape[0], weight.shape[0], *places), x.dtype, op="convolution")
    tape.record("convolution", [x, weight, *([bias] if bias is not None else [])], [out])
    return out


@record(kw_only=True, eq=False)
class GroupNorm(Operation):
    """`nn.GroupNorm`; its mean and 1/std stay until it returns."""

    is_norm = True
    groups: int


@lowering(GroupNorm)
def group_norm(run: Lowering, op: GroupNorm, x: Tensor) -> Tensor:
    tape, parameters = run.tape, run.parameters_of(op)
    x = tape.contiguous(x)
    out = tape.new(x.shape, x.dtype, op="native_group_norm")
    means = [tape.new((x.shape[0], op.groups), x.dtype, op="native_group_norm") for _ in range(2)]
    tape.record("native_group_norm", [x, *parameters], [out, *means])
    return out


class Doubled(Operation):
    """`F.interpolate(scale_factor=2, mode="nearest")` of rows and columns."""

    __slots__ = ()


@lowering(Doubled)
def doubled(run: Lowering, op: Doubled, x: Tensor) -> Tensor:
    shape = (*x.shape[:-2], 2 * x.shape[-2], 2 * x.shape[-1])
    out = run.tape.new(shape, x.dtype, op="upsample_nearest2d")
    run.tape.record("upsample_nearest2d", [x], [out])
    return out


@record(kw_only=True, eq=False)
class MapToTokens(Operation):
    """(batch, width, …) seen as (batch, places, width); `copies`: in rows, which is a copy."""

    copies: bool = False


@lowering(MapToTokens)
def map_to_tokens(run: Lowering, op: MapToTokens, x: Tensor) -> Tensor:
    tokens = run.tape.transpose(run.tape.reshape(x, *x.shape[:2], _places(x)), 1, 2)
    return run.tape.contiguous(tokens) if op.copies else tokens


class TokensToMap(Operation):
    """(batch, places, width) back to the shape of the map beside it: a copy where strides want one."""

    __slots__ = ()


@lowering(TokensToMap)
def tokens_to_map(run: Lowering, op: TokensToMap, x: Tensor, like: Tensor) -> Tensor:
    tape = run.tape
    shape = (like.shape[0], x.shape[-1], *like.shape[2:])
    return tape.contiguous(tape.reshape(tape.transpose(x, 1, 2), *shape))


class ToEveryPlace(Operation):
    """A map plus (batch, width), the same at every place."""

    __slots__ = ()


@lowering(ToEveryPlace)
def to_every_place(run: Lowering, op: ToEveryPlace, x: Tensor, each: Tensor) -> Tensor:
    tape = run.tape
    for _ in range(x.ndim - 2):
        each = tape.unsqueeze(each, -1)
    out = tape.add(x, each)
    tape.record("locals", [each], [])
    return out


def _places(x: Tensor) -> int:
    count = 1
    for side in x.shape[2:]:
        count *= whole(side)
    return count


@record(kw_only=True, eq=False)
class FusedRmsNorm(Operation):
    """`nn.RMSNorm`: one kernel."""

    is_norm = True


@lowering(FusedRmsNorm)
def fused_rms_norm(run: Lowering, op: FusedRmsNorm, x: Tensor) -> Tensor:
    tape, weights = run.tape, run.parameters_of(op)
    out, rstd = tape.new(x.shape, x.dtype, op="_fused_rms_norm"), tape.new((*x.shape[:-1], 1), "fp32", op="rstd")
    tape.record("_fused_rms_norm", [x, *weights], [out, rstd])
    return out


class Modulated(Operation):
    """x · (1 + scale) + shift, each of them (batch, width) or (batch, tokens, width)."""

    __slots__ = ()


@lowering(Modulated)
def modulated(run: Lowering, op: Modulated, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    tape = run.tape
    factor = tape.scale(over_tokens(tape, scale, x), "add_scalar")
    return tape.add(tape.mul(x, factor), over_tokens(tape, shift, x))


class GatedBy(Operation):
    """gate · x, the gate (batch, width)."""

    __slots__ = ()


@lowering(GatedBy)
def gated_by(run: Lowering, op: GatedBy, gate: Tensor, x: Tensor) -> Tensor:
    return run.tape.mul(over_tokens(run.tape, gate, x), x)


def over_tokens(tape: Tape, each: Tensor, x: Tensor) -> Tensor:
    """What a batch has one of, seen so that all tokens share it."""
    return tape.unsqueeze(each, 1) if each.ndim < x.ndim else each


@record(kw_only=True, eq=False)
class AlongSecond(Operation):
    """Token lists one behind the other, or the channels of maps."""


@lowering(AlongSecond)
def along_second(run: Lowering, op: AlongSecond, *pieces: Tensor) -> Tensor:
    return run.tape.cat(pieces, 1)


class PartedAsBefore(Operation):
    """Joined tokens seen as those of the first list and the rest; `first` says how many."""

    __slots__ = ()


@lowering(PartedAsBefore)
def parted_as_before(run: Lowering, op: PartedAsBefore, joined: Tensor, first: Tensor) -> tuple[Tensor, ...]:
    count = first.shape[1]
    return run.tape.split(joined, (count, joined.shape[1] - count), 1)


class PairsTurned(Operation):
    """`apply_rotary_emb` of pairs side by side: in fp32, from tables of cos and sin (tokens, width).

    Its frame names what it turns and the turned halves until it returns.
    """

    __slots__ = ()


def quarter_turned(tape: Tape, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs side by side as (−imaginary, real), and the real and imaginary halves that they came from."""
    pairs = tape.reshape(x, *x.shape[:-1], whole(x.shape[-1]) // 2, 2)
    real, imaginary = tape.select(pairs, -1), tape.select(pairs, -1)
    return tape.reshape(tape.stack([tape.scale(imaginary, "neg"), real]), *x.shape), real, imaginary


@lowering(PairsTurned)
def pairs_turned(run: Lowering, op: PairsTurned, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    tape = run.tape
    turned, *_ = quarter_turned(tape, x)
    cos, sin = (tape.unsqueeze(table, 1) for table in (cos, sin))
    first = tape.mul(tape.to(x, "fp32"), cos)
    second = tape.mul(tape.to(turned, "fp32"), sin)
    out = tape.to(tape.add(first, second), x.dtype)
    tape.record("locals", [x, turned], [])
    return out


@record(kw_only=True, eq=False)
class HeadedSdpa(Operation):
    """Scaled dot product attention of (batch, tokens, heads, d), seen heads first; heads side by side in the end.

    `named`: the queries, keys and values have names until it returns.
    """

    named: bool = True


@lowering(HeadedSdpa)
def headed_sdpa(run: Lowering, op: HeadedSdpa, q: Tensor, k: Tensor, v: Tensor, *mask: Tensor) -> Tensor:
    tape = run.tape
    heads_first = [tape.transpose(x, 1, 2) for x in (q, k, v)]
    mixed = tape.sdpa(*heads_first, mask=mask[0] if mask else None)
    out = tape.reshape(tape.transpose(mixed, 1, 2), q.shape[0], q.shape[1], q.shape[2] * v.shape[3])
    if op.named:
        tape.record("locals", [q, k, v], [])
    return out


@record(kw_only=True, eq=False)
class SplitHeads(Operation):
    """(batch, tokens, heads · d) seen as (batch, tokens, heads, d)."""

    num_heads: int


@lowering(SplitHeads)
def split_heads(run: Lowering, op: SplitHeads, x: Tensor) -> Tensor:
    return run.tape.reshape(x, *x.shape[:-1], op.num_heads, op.outputs[0].width)


@record(kw_only=True, eq=False)
class WaveTables(Operation):
    """cos and sin of positions (tokens, `width`), in fp32, made in fp64 axis by axis."""

    width: int


@lowering(WaveTables)
def wave_tables(run: Lowering, op: WaveTables, *lists: Tensor) -> tuple[Tensor, Tensor]:
    tape = run.tape
    tokens: Dim = 0
    for one in lists:
        tokens = tokens + one.shape[0]
    cos, sin = (tape.new((tokens, op.width), "fp32", op="cat") for _ in range(2))
    tape.record("cat", [], [cos, sin])
    return cos, sin


@record(kw_only=True, eq=False)
class Waves(Operation):
    """`Timesteps`: sines and cosines of a number for each row, in fp32, then in the dtype of the model."""

    width: int


@lowering(Waves)
def waves(run: Lowering, op: Waves, rows: Tensor) -> Tensor:
    tape = run.tape
    wide = tape.new((rows.numel, op.width), "fp32", op="cat")
    tape.record("cat", [rows], [wide])
    return tape.to(wide, run.execution.param_dtype)


class NumbersInRow(Operation):
    """A vector for each row, then the waves of its numbers one behind the other."""

    __slots__ = ()


@lowering(NumbersInRow)
def numbers_in_row(run: Lowering, op: NumbersInRow, vector: Tensor, waves_of_all: Tensor) -> Tensor:
    rows = vector.shape[0]
    return run.tape.cat([vector, run.tape.reshape(waves_of_all, rows, op.outputs[0].width - whole(vector.shape[1]))])


def whole(size: Dim) -> int:
    """A size that is a number."""
    assert isinstance(size, int)
    return size


class CroppedPositions(Operation):
    """Tokens plus a piece of a square table of positions, copied out of it, then row by row."""

    __slots__ = ()


@lowering(CroppedPositions)
def cropped_positions(run: Lowering, op: CroppedPositions, x: Tensor) -> Tensor:
    tape = run.tape
    piece = tape.new((1, *x.shape[1:]), x.dtype, op="clone")
    tape.record("clone", [], [piece])
    summed = tape.add(x, piece)
    tape.record("locals", [x, piece], [])
    return tape.contiguous(summed)


class PatchesToMap(Operation):
    """Tokens of patches put back in their places: (batch, channels, rows, columns) like the map beside it."""

    __slots__ = ()


@lowering(PatchesToMap)
def patches_to_map(run: Lowering, op: PatchesToMap, x: Tensor, like: Tensor) -> Tensor:
    tape = run.tape
    out = tape.new((x.shape[0], op.outputs[0].width, *like.shape[2:]), x.dtype, op="clone")
    tape.record("clone", [x], [out])
    tape.record("locals", [x], [])
    return out


class TokensBehind(Operation):
    """Heads' tokens (batch, heads, tokens, d) one behind the other."""

    __slots__ = ()


@lowering(TokensBehind)
def tokens_behind(run: Lowering, op: TokensBehind, *pieces: Tensor) -> Tensor:
    return run.tape.cat(pieces, 2)


class HeadsFirstSdpa(Operation):
    """Scaled dot product attention of (batch, heads, tokens, d); heads side by side in the end."""

    __slots__ = ()


@lowering(HeadsFirstSdpa)
def heads_first_sdpa(run: Lowering, op: HeadsFirstSdpa, q: Tensor, k: Tensor, v: Tensor, *mask: Tensor) -> Tensor:
    tape, (batch, heads, tokens, _) = run.tape, q.shape
    mixed = tape.sdpa(q, k, v, mask=mask[0] if mask else None)
    return tape.reshape(tape.transpose(mixed, 1, 2), batch, tokens, heads * v.shape[3])
