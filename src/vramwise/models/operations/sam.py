"""Segment Anything's encoder as transformers 5.23 runs it: patches on two axes, attention in windows, a neck."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor, channels_last_strides, is_channels_last
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.images import image_pixels, num_images
from vramwise.records import record


@record(kw_only=True, eq=False)
class GridEmbedding(Operation):
    image_size: int
    num_channels: int


@lowering(GridEmbedding)
def grid_embedding(run: Lowering, op: GridEmbedding) -> Tensor:
    """A convolution seen as (images, rows, columns, width), and a learned grid of positions where there is one."""
    tape, side = run.tape, op.image_size
    *positions, weight, bias = run.parameters_of(op)
    patches = tape.patch_conv2d(image_pixels(run, num_images(run), op.num_channels, side, side), weight, bias)
    x = tape.permute(patches, 0, 2, 3, 1)
    return tape.add(x, positions[0]) if positions else x


@record(kw_only=True, eq=False)
class IntoWindows(Operation):
    window: int


@lowering(IntoWindows)
def into_windows(run: Lowering, op: IntoWindows, x: Tensor) -> Tensor:
    """Padded to whole windows, then windows behind one another: copies."""
    tape, window = run.tape, op.window
    n, rows, _, width = x.shape
    assert isinstance(rows, int)
    extra, count = -rows % window, -(-rows // window)
    padded = tape.new((n, rows + extra, rows + extra, width), x.dtype, requires_grad=x.requires_grad, op="pad")
    tape.record("constant_pad_nd", [x], [padded])
    x = padded
    x = tape.reshape(x, n, count, window, count, window, width)
    x = tape.contiguous(tape.permute(x, 0, 1, 3, 2, 4, 5))
    return tape.reshape(x, n * count**2, window, window, width)


@record(kw_only=True, eq=False)
class OutOfWindows(Operation):
    window: int
    rows: int


@lowering(OutOfWindows)
def out_of_windows(run: Lowering, op: OutOfWindows, x: Tensor) -> Tensor:
    """Back to rows and columns, without the padding."""
    tape, rows, window = run.tape, op.rows, op.window
    count, width = -(-rows // window), x.shape[3]
    n = num_images(run)
    x = tape.reshape(x, n, count, count, window, window, width)
    x = tape.contiguous(tape.permute(x, 0, 1, 3, 2, 4, 5))
    x = tape.reshape(x, n, count * window, count * window, width)
    return tape.contiguous(tape.narrow(tape.narrow(x, 1, rows), 2, rows))


@record(kw_only=True, eq=False)
class GridAttention(HeadedAttention):
    eager_only: bool


@lowering(GridAttention)
def grid_attention(run: Lowering, op: GridAttention, qkv: Tensor) -> Tensor:
    """Queries, keys and values in one copy; scores plus what queries make of relative positions."""
    tape, heads = run.tape, op.num_heads
    n, rows, columns, width = qkv.shape
    d = width // (3 * heads)
    qkv = tape.permute(tape.reshape(qkv, n, rows * columns, 3, heads, d), 2, 0, 3, 1, 4)
    qkv = tape.reshape(qkv, 3, n * heads, rows * columns, d)
    q, k, v = (tape.select(qkv, 0) for _ in range(3))
    positions = _of_positions(run, op, q, rows, columns) if op.parameters else None
    written_out = run.execution.attention == "eager" or op.eager_only
    attend = _grid_eager if written_out else _grid_sdpa
    mixed = attend(run, q, k, v, positions, heads)
    mixed = tape.permute(tape.reshape(mixed, n, heads, rows, columns, d), 0, 2, 3, 1, 4)
    return tape.reshape(mixed, n, rows, columns, heads * d)


def _of_positions(run: Lowering, op: GridAttention, q: Tensor, rows: Dim, columns: Dim) -> Tensor:
    """Queries times the tables of rows and of columns, one beside the other: (n·heads, rows, columns, ...)."""
    tape = run.tape
    tables = [_by_distance(run, table) for table in run.parameters_of(op)]
    grid = tape.reshape(q, q.shape[0], rows, columns, q.shape[2])
    by_row = tape.einsum("bhwc,hkc->bhwk", grid, tables[0])
    by_column = tape.einsum("bhwc,wkc->bhwk", grid, tables[1])
    return tape.add(tape.unsqueeze(by_row, 4), tape.unsqueeze(by_column, 3))


def _by_distance(run: Lowering, table: Tensor) -> Tensor:
    """A table stretched to its own length, whose rows are picked by the distance of query and key."""
    tape, (length, d) = run.tape, table.shape
    side = (length + 1) // 2
    seen = tape.transpose(tape.reshape(table, 1, length, d), 1, 2)
    stretched = tape.new((1, d, length), table.dtype, requires_grad=table.requires_grad, op="upsample_linear1d")
    tape.record("upsample_linear1d", [seen], [stretched])
    turned = tape.permute(tape.reshape(stretched, d, length), 1, 0)
    found = tape.new((side, side, d), table.dtype, requires_grad=table.requires_grad, op="index")
    # The distances are worked out on the CPU, whatever the device.
    index = tape.new((side, side) if tape.device == "cpu" else (0,), "int64", op="_to_copy")
    tape.record("index", [turned, index], [found], [(index, "indices")])
    return found


def _grid_eager(run: Lowering, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, heads: int) -> Tensor:
    tape = run.tape
    scores = tape.matmul(tape.scale(q), tape.transpose(k, 1, 2))
    if positions is not None:
        scores = tape.add(scores, tape.reshape(positions, *scores.shape))
    return tape.matmul(tape.to(tape.softmax(scores, "fp32"), q.dtype), v)


def _grid_sdpa(run: Lowering, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, heads: int) -> Tensor:
    tape, (both, length, d) = run.tape, q.shape
    mask = None if positions is None else tape.reshape(positions, both // heads, heads, length, length)
    q, k, v = (tape.view(x, both // heads, heads, length, d) for x in (q, k, v))
    return tape.sdpa(q, k, v, mask=mask, backend=run.execution.sdpa_backend)


# -- convolutions around the layers ----------------------------------------------------------------------


class SamNeck(Operation):
    __slots__ = ()


@lowering(SamNeck)
def sam_neck(run: Lowering, op: SamNeck, x: Tensor) -> Tensor:
    """Two convolutions, a norm over channels after each."""
    return _neck(run, x, run.parameters_of(op))


def _neck(run: Lowering, x: Tensor, parameters: list[Tensor]) -> Tensor:
    tape, (first, weight, bias, second, *last) = run.tape, parameters
    x = tape.permute(x, 0, 3, 1, 2)
    x = _norm_of_channels(run, tape.conv2d(x, first), weight, bias)
    return _norm_of_channels(run, tape.conv2d(x, second), *last)


def _norm_of_channels(run: Lowering, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    normed = run.tape.layer_norm(run.tape.permute(x, 0, 2, 3, 1), weight, bias)
    return run.tape.permute(normed, 0, 3, 1, 2)


class HalvingConvolution(Operation):
    __slots__ = ()


@lowering(HalvingConvolution)
def halving_convolution(run: Lowering, op: HalvingConvolution, x: Tensor) -> Tensor:
    """A convolution that halves both sides."""
    (weight,) = run.parameters_of(op)
    return run.tape.conv2d(x, weight, stride=2)


class AsTokens(Operation):
    __slots__ = ()


@lowering(AsTokens)
def as_tokens(run: Lowering, op: AsTokens, x: Tensor) -> Tensor:
    """(images, width, rows, columns) seen as (images, tokens, width)."""
    n, width, rows, columns = x.shape
    return run.tape.permute(run.tape.reshape(x, n, width, rows * columns), 0, 2, 1)


@record(kw_only=True, eq=False)
class HighResolution(Operation):
    rows: int


@lowering(HighResolution)
def high_resolution(run: Lowering, op: HighResolution, x: Tensor, inner: Tensor) -> Tensor:
    """DeepSeek-VL: the result and a trained share of an inner one, both resized and halved twice."""
    tape, rows = run.tape, op.rows
    *neck, first, second, share = run.parameters_of(op)
    result, other = (_resized(run, y, 4 * rows, first, second) for y in (x, _neck(run, inner, neck)))
    x = tape.permute(tape.add(result, tape.mul(other, share)), 0, 2, 3, 1)
    return tape.reshape(x, x.shape[0], rows**2, x.shape[3])


def _resized(run: Lowering, x: Tensor, side: int, first: Tensor, second: Tensor) -> Tensor:
    tape, shape = run.tape, (x.shape[0], x.shape[1], side, side)
    strides = channels_last_strides(shape) if is_channels_last(x) else None
    out = tape.new(shape, x.dtype, requires_grad=x.requires_grad, strides=strides, op="upsample_bilinear2d")
    tape.record("upsample_bilinear2d", [x], [out])
    return tape.conv2d(tape.conv2d(out, first, stride=2), second, stride=2)


class JoinHalves(Operation):
    __slots__ = ()


@lowering(JoinHalves)
def join_halves(run: Lowering, op: JoinHalves, large: Tensor, small: Tensor) -> Tensor:
    """Side by side."""
    return run.tape.cat([large, small])
