"""Step 3.7's tower: rotary positions besides learned ones, layer scales, two convolutions that join patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import LARGEST_SIZE, Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.images import image_pixels
from vramwise.models.operations.simple import Hold
from vramwise.models.towers.tower_design import Tower, layer_norm, num_patches, with_bias
from vramwise.models.towers.vision_tower import tower_blocks
from vramwise.records import record

TILES = "tiles of them"
"""The stream of what tiles of images hold."""
DEFAULTS: dict[str, object] = {
    "hidden_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 16, "num_channels": 3, "image_size": 728,
    "patch_size": 14, "hidden_act": "quick_gelu", "mlp_ratio": 8960 / 1536,
}  # fmt: skip
"""Defaults of Step3p7VisionConfig (transformers 5.23)."""


def tower(v: Config, *, tiles: bool = False) -> Tower:
    """Rotary positions besides learned ones; two convolutions make one patch of sixteen, four times as wide.

    `tiles`: run over tiles of images, not over the whole.
    """
    width, patch = v.hidden_size, v.size("patch_size")
    ratio = v.number("mlp_ratio")
    if not 0 < ratio <= LARGEST_SIZE:
        raise v.error(f"mlp_ratio: expected a positive number, got {ratio}")
    return Tower(
        width, int(width * ratio), v.num_hidden_layers, v.num_attention_heads, v.text("hidden_act"), layers="layers",
        before=(
            ("embeddings.patch_embedding.weight", (width, v.size("num_channels"), patch, patch)),
            ("embeddings.position_embedding.weight", (num_patches(v), width)),
            *layer_norm("pre_layernorm", width),
        ),
        after=(
            *with_bias("downsampler1", 2 * width, width, 3, 3), *with_bias("downsampler2", 4 * width, 2 * width, 3, 3)
        ),
        norms=("layernorm_before", "layernorm_after"), scales=("lambda_1", "lambda_2"), scale_width=width,
        embedding=ResizedPositionsEmbedding(tiles=tiles), turned_by_row=TurnedByGrid(),
        closing=HalvedTwice(tiles=tiles),
    )  # fmt: skip


def whole_and_tiles(v: Config, width: int, *, bias: bool) -> tuple[Block, ...]:
    """Tower and projector over whole images and, where a batch has them, over tiles, whose tokens come before."""
    whole, tiles = (image_blocks(v, width, bias=bias, tiles=flag) for flag in (False, True))
    b = BlockBuilder("", modality="image")
    results = [b.input(name, width) for name in ("image", TILES)]
    joined = b.build(image=b.op(TilesAndWhole(), "", results, [width])[0])
    return (*whole, *map(of_tiles, tiles), replace(joined, tiled=True))


def image_blocks(v: Config, width: int, *, bias: bool, tiles: bool) -> tuple[Block, ...]:
    """Tower and projector over whole images or over tiles."""
    b = BlockBuilder("model", part="projector", modality="image")
    x = b.unary(Hold(), b.input("image", v.hidden_size), width=4 * v.hidden_size)
    projected = b.linear(x, "multi_modal_projector", width, bias=bias)
    return (*tower_blocks(v, tower(v, tiles=tiles), "model.vision_model"), b.build(image=projected))


def of_tiles(block: Block) -> Block:
    """The block on a stream of its own, which only batches with tiles have."""

    def renamed_streams(streams: Mapping[str, Value]) -> dict[str, Value]:
        return {name.replace("image", TILES): value for name, value in streams.items()}

    inputs, outputs = renamed_streams(block.inputs), renamed_streams(block.outputs)
    return replace(block, inputs=inputs, outputs=outputs, tiled=True)


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


def _inputs(run: Lowering, tiles: bool) -> tuple[Dim, int, int]:
    """How many inputs a run has, their rows and columns."""
    images = run.execution.images
    assert images is not None
    rows, columns = images.grids[0 if tiles else -1]
    return run.batch * (images.per_sequence * (images.tiles - 1 if tiles else 1)), rows, columns


@record(kw_only=True, eq=False)
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


@record(kw_only=True, eq=False)
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
