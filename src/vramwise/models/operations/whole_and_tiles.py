"""Step 3.7's tower as transformers 5.23 runs it: once over whole images, and once over tiles of another size."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.images import image_pixels


def _inputs(run: Lowering, tiles: bool) -> tuple[Dim, int, int]:
    """How many inputs a run has, their rows and columns."""
    images = run.execution.images
    assert images is not None
    rows, columns = images.grids[0 if tiles else -1]
    return run.batch * (images.per_sequence * (images.tiles - 1 if tiles else 1)), rows, columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedPositionsEmbedding(Operation):
    tiles: bool


@lowering(ResizedPositionsEmbedding)
def resized_positions_embedding(run: Lowering, op: ResizedPositionsEmbedding) -> Tensor:
    """Patches, positions stretched to their grid, a norm."""
    tape, (weight, table, *norm) = run.tape, run.parameters_of(op)
    count, rows, columns = _inputs(run, op.tiles)
    side, channels = weight.shape[2], weight.shape[1]
    patches = tape.patch_conv2d(image_pixels(run, count, channels, rows * side, columns * side), weight, None)
    x = tape.transpose(tape.reshape(patches, *patches.shape[:2], rows * columns), 1, 2)
    positions = tape.unsqueeze(table, 0)
    if rows * columns != table.shape[0]:
        shape = (1, rows * columns, table.shape[1])
        stretched = tape.new(shape, table.dtype, requires_grad=table.requires_grad, op="upsample_bilinear2d")
        tape.record("upsample_bilinear2d", [positions], [stretched])
        positions = stretched
    return tape.layer_norm(tape.add(x, positions), *norm)


class TurnedByGrid(Operation):
    __slots__ = ()


@lowering(TurnedByGrid)
def turned_by_grid(run: Lowering, op: TurnedByGrid, *turned: Tensor) -> tuple[Tensor, ...]:
    """x·cos + rotate_half(x)·sin in fp32 on (images, patches, heads, d), cast back; one table for all images."""
    tape, (_, patches, _, d) = run.tape, turned[0].shape
    key = f"positions of {patches} patches"
    if key not in run.tables:
        run.tables[key] = tuple(tape.new((patches, d), "fp32", op=fn) for fn in ("cos", "sin"))
    cos, sin = (tape.unsqueeze(table, 1) for table in run.tables[key])
    found = []
    for x in turned:
        wide = tape.to(x, "fp32")
        first, second = tape.chunk(wide, 2)
        half = tape.cat([tape.unary("neg", second), first])
        found.append(tape.to(tape.add(tape.mul(wide, cos), tape.mul(half, sin)), x.dtype))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvedTwice(Operation):
    tiles: bool


@lowering(HalvedTwice)
def halved_twice(run: Lowering, op: HalvedTwice, x: Tensor) -> Tensor:
    """Two convolutions that halve the sides of the grid each: (images, tokens, width)."""
    tape, (first, first_bias, second, second_bias) = run.tape, run.parameters_of(op)
    _, rows, columns = _inputs(run, op.tiles)
    x = tape.view(tape.permute(x, 0, 2, 1), x.shape[0], x.shape[2], rows, columns)
    x = tape.conv2d(tape.conv2d(x, first, 2, first_bias), second, 2, second_bias)
    return tape.permute(tape.reshape(x, *x.shape[:2], x.shape[2] * x.shape[3]), 0, 2, 1)


class TilesAndWhole(Operation):
    __slots__ = ()


@lowering(TilesAndWhole)
def tiles_and_whole(run: Lowering, op: TilesAndWhole, whole: Tensor, tiles: Tensor) -> Tensor:
    """Tokens of an image's tiles, then those of the whole: copies that keep nothing."""
    tape = run.tape
    rows = whole.shape[0] * whole.shape[1] + tiles.shape[0] * tiles.shape[1]
    grad = whole.requires_grad or tiles.requires_grad
    joined = tape.new((rows, whole.shape[2]), whole.dtype, requires_grad=grad, op="cat")
    tape.record("cat", [tiles, whole], [joined])
    return joined
