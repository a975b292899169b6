"""Llama 3.2 Vision and Llama 4 as transformers 5.23 runs them.

The former has tiles of an image in one row, and text that reads them by attention.
"""

from __future__ import annotations

from vramwise.models.autograd.size import exact_quotient
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyAttention, Attention, AttentionStyle, attention_dropout, repeat_kv
from vramwise.models.operations.images import image_pixels, num_images
from vramwise.models.operations.latent import turned_with_tables
from vramwise.models.operations.towers import EmbeddedImages, tower_patches
from vramwise.records import record


@record(kw_only=True, eq=False)
class TilesEmbedding(EmbeddedImages):
    tiles: int


@lowering(TilesEmbedding)
def tiles_embedding(run: Lowering, op: TilesEmbedding) -> Tensor:
    """Patches and tiles' positions, a class token, gated positions, a norm, padding: (images, tokens, width)."""
    tape, tiles = run.tape, op.tiles
    token, weight, gate, positions, by_tile, first_gate, first_table, *norm = run.parameters_of(op)
    patches = tower_patches(run, op, weight)
    count, (_, rows, width) = num_images(run) // tiles, patches.shape
    assert isinstance(rows, int)
    ids = tape.new((count, 1), "int64", kind="input", op="aspect_ratio_ids")
    run.tables["kinds of images"] = (ids,)
    x = _at_tiles(run, tape.reshape(patches, count, tiles, rows, width), first_table, first_gate)
    x = tape.reshape(x, count * tiles, rows, width)
    x = tape.cat([tape.expand(token, count * tiles, 1, width), x], 1)
    x = tape.reshape(x, count, tiles, rows + 1, width)
    own = tape.mul(tape.scale(tape.unary("tanh", gate), "add_scalar"), positions)
    x = tape.add(x, tape.view(own, 1, 1, rows + 1, width))
    spread = tape.reshape(tape.embedding(ids, by_tile), count, tiles, rows + 1, width)
    x = tape.layer_norm(tape.add(x, tape.mul(tape.unary("tanh", gate), spread)), *norm)
    x = tape.pad(x, 2, -(rows + 1) % 8)
    length = tiles * x.shape[2]
    dtype = run.execution.autocast or run.execution.param_dtype
    run.tables["mask of tiles"] = (tape.new((count, 1, length, length), dtype, op="mask"),)
    run.tables["tiles"] = (x,)
    return tape.view(x, count, length, width)


def _at_tiles(run: Lowering, x: Tensor, table: Tensor, gate: Tensor) -> Tensor:
    tape, (ids,) = run.tape, run.tables["kinds of images"]
    found = tape.reshape(tape.embedding(ids, table), x.shape[0], x.shape[1], 1, x.shape[3])
    return tape.add(x, tape.mul(found, tape.unary("tanh", gate)))


class TilesBetween(Operation):
    __slots__ = ()


@lowering(TilesBetween)
def tiles_between(run: Lowering, op: TilesBetween, x: Tensor) -> Tensor:
    """A norm, and the tiles' positions once more."""
    tape, (grid,) = run.tape, run.tables["tiles"]
    weight, bias, gate, table = run.parameters_of(op)
    x = tape.reshape(tape.layer_norm(x, weight, bias), *grid.shape)
    return tape.reshape(_at_tiles(run, x, table, gate), grid.shape[0], -1, grid.shape[3])


class JoinLayers(Operation):
    __slots__ = ()


@lowering(JoinLayers)
def join_layers(run: Lowering, op: JoinLayers, x: Tensor, *others: Tensor) -> Tensor:
    """The result and those of layers between side by side, without padding: copies that keep nothing."""
    tape, (grid,), images = run.tape, run.tables["tiles"], run.execution.images
    assert images is not None
    shape = (grid.shape[0] * grid.shape[1], images.patches + 1, op.outputs[0].width)
    grad = any(tensor.requires_grad for tensor in (x, *others))
    joined = tape.new(shape, x.dtype, requires_grad=grad, op="cat")
    tape.record("cat", [x, *others], [joined])
    return joined


class TanhGate(Operation):
    __slots__ = ()


@lowering(TanhGate)
def tanh_gate(run: Lowering, op: TanhGate, x: Tensor) -> Tensor:
    """A product with the tanh of one trained number."""
    (gate,) = run.parameters_of(op)
    return run.tape.mul(run.tape.unary("tanh", gate), x)


class RowsThatSee(Operation):
    __slots__ = ()
    joins_images = True


@lowering(RowsThatSee)
def rows_that_see(run: Lowering, op: RowsThatSee, x: Tensor) -> Tensor:
    """A product with ones, and zeros for tokens that see no image; all layers share them."""
    if "rows that see" not in run.tables:
        rows = run.tape.new((run.batch, 1, run.sequence, 1), run.execution.param_dtype, op="_to_copy")
        run.tables["rows that see"] = (rows,)
    (rows,) = run.tables["rows that see"]
    return run.tape.mul(run.tape.select(rows, 1), x)


def _mask_of_rows(run: Lowering, k: Tensor) -> Tensor:
    if "mask of rows" not in run.tables:
        shape = (run.batch, 1, run.sequence, k.shape[2])
        run.tables["mask of rows"] = (run.tape.new(shape, run.execution.param_dtype, op="mask"),)
    return run.tables["mask of rows"][0]


# -- Llama 4 -------------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class UnfoldedPatches(Operation):
    image_size: int
    num_channels: int


@lowering(UnfoldedPatches)
def unfolded_patches(run: Lowering, op: UnfoldedPatches) -> Tensor:
    """`nn.Unfold` of each tile, turned round for a product; a class token at the end, positions, a norm."""
    tape, side, channels = run.tape, op.image_size, op.num_channels
    token, positions, weight, *norm = run.parameters_of(op)
    pixels = image_pixels(run, num_images(run), channels, side, side)
    patches = positions.shape[0] + -1
    unfolded = tape.new((pixels.shape[0], weight.shape[1], patches), pixels.dtype, op="im2col")
    tape.record("im2col", [pixels], [unfolded])
    x = run.as_input(tape.linear(tape.permute(unfolded, 0, 2, 1), weight))
    x = tape.cat([x, tape.expand(token, x.shape[0], 1, x.shape[2])], 1)
    x = tape.reshape(x, x.shape[0], 1, *x.shape[1:])
    x = tape.layer_norm(tape.add(x, tape.to(positions, x.dtype)), *norm)
    return tape.squeeze(x, 1)


class TurnedAsComplex(Operation):
    __slots__ = ()


@lowering(TurnedAsComplex)
def turned_as_complex(run: Lowering, op: TurnedAsComplex, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of (tiles, patches, heads, d) times the tower's buffer of complex numbers."""
    tape, rows, half = run.tape, q.shape[1], op.inputs[0].width // 2
    if "turns of patches" not in run.tables:
        buffer = tape.new((rows, 1, half), "complex64", kind="buffer", op="buffer")
        run.tables["turns of patches"] = (buffer,)
    turns = tape.unsqueeze(run.tables["turns of patches"][0], 0)
    return turned_with_tables(run, q, turns), turned_with_tables(run, k, turns)


class WithoutLast(Operation):
    __slots__ = ()


@lowering(WithoutLast)
def without_last(run: Lowering, op: WithoutLast, x: Tensor) -> Tensor:
    """Without the class token at the end: a view."""
    return run.tape.narrow(x, 1, x.shape[1] - 1)


class AllRows(Operation):
    __slots__ = ()


@lowering(AllRows)
def all_rows(run: Lowering, op: AllRows, x: Tensor) -> Tensor:
    """Tokens of all images in one row."""
    return run.tape.view(x, -1, x.shape[-1])


# -- attention -----------------------------------------------------------------------------------------


TILES = AttentionStyle("tiles")


@TILES.path("eager")
def _eager_tiles(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return eager_masked_attention(run, op, q, k, v, run.tables["mask of tiles"][0])


@TILES.path("sdpa")
def _sdpa_tiles(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return sdpa_masked_attention(run, op, q, k, v, run.tables["mask of tiles"][0])


ROWS_OF_TILES = AttentionStyle("rows_of_tiles")


@ROWS_OF_TILES.path("eager")
def _eager_rows_of_tiles(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = _of_rows(run, k), _of_rows(run, v)
    return eager_masked_attention(run, op, q, k, v, _mask_of_rows(run, k))


@ROWS_OF_TILES.path("sdpa")
def _sdpa_rows_of_tiles(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = _of_rows(run, k), _of_rows(run, v)
    return sdpa_masked_attention(run, op, q, k, v, _mask_of_rows(run, k))


def _of_rows(run: Lowering, x: Tensor) -> Tensor:
    """Keys or values of all of a sequence's tiles: (tiles, groups, tokens, d) seen by sequence."""
    tape, (tiles, groups, tokens, d) = run.tape, x.shape
    rows = tape.view(tape.transpose(x, 1, 2), run.batch, exact_quotient(tiles * tokens, run.batch), groups, d)
    return tape.transpose(rows, 1, 2)


def eager_masked_attention(
    run: Lowering, op: AnyAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> Tensor:
    tape, (k, v) = run.tape, repeat_kv(run, op, k, v)
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    scores = tape.add(scores, mask) if mask is not None else scores
    weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


def sdpa_masked_attention(run: Lowering, op: AnyAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    tape, (k, v) = run.tape, repeat_kv(run, op, k, v)
    dropout = attention_dropout(run, op.dropout)
    mixed = tape.sdpa(q, k, v, mask=mask, dropout=dropout, backend=run.execution.sdpa_backend)
    return tape.contiguous(tape.transpose(mixed, 1, 2))
