"""Towers of images inside models of text, as transformers 5.23 runs them."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, Variants, lowering
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.images import image_pixels, num_images
from vramwise.records import record

# -- embeddings ----------------------------------------------------------------------------------------


PATCH_ROTATIONS: Variants[Callable[[Lowering, Tensor], Tensor]] = Variants("positions of patches")


@record(kw_only=True, eq=False)
class EmbeddedImages(Operation):
    """Images of `image_size` pixels on a side cut into patches, each a vector."""

    image_size: int
    num_channels: int


class ClipEmbedding(EmbeddedImages):
    __slots__ = ()


@lowering(ClipEmbedding)
def clip_embedding(run: Lowering, op: ClipEmbedding) -> Tensor:
    """Patches behind a class token, positions by a buffer, a norm."""
    tape = run.tape
    token, weight, table, *norm = run.parameters_of(op)
    patches = tower_patches(run, op, weight)
    x = tape.cat([tape.expand(token, patches.shape[0], 1, token.shape[-1]), patches], 1)
    return tape.layer_norm(tape.add(x, _tower_positions(run, table)), *norm)


class SiglipEmbedding(EmbeddedImages):
    __slots__ = ()


@lowering(SiglipEmbedding)
def siglip_embedding(run: Lowering, op: SiglipEmbedding) -> Tensor:
    """Patches and positions by a buffer."""
    weight, bias, table = run.parameters_of(op)
    return run.tape.add(tower_patches(run, op, weight, bias), _tower_positions(run, table))


def siglip_embedding_by_image(run: Lowering, op: EmbeddedImages) -> Tensor:
    """As `siglip_embedding`, with positions worked out for each image (Idefics 3)."""
    weight, bias, table = run.parameters_of(op)
    patches = tower_patches(run, op, weight, bias, are_input=False)
    ids = run.tape.new(patches.shape[:2], "int64", op="where")
    return run.as_input(run.tape.add(patches, run.tape.embedding(ids, table)))


class InternvlEmbedding(EmbeddedImages):
    __slots__ = ()


@lowering(InternvlEmbedding)
def internvl_embedding(run: Lowering, op: InternvlEmbedding) -> Tensor:
    """Patches behind a class token; positions are a parameter, a mask token is not used."""
    tape = run.tape
    given = dict(zip((p.name.partition(".embeddings.")[2] for p in op.parameters), run.parameters_of(op),
                     strict=True))  # fmt: skip
    pieces = "patch_embeddings.projection.weight", "patch_embeddings.projection.bias"
    patches = tower_patches(run, op, *(given[name] for name in pieces))
    token = tape.expand(given["cls_token"], patches.shape[0], 1, patches.shape[2])
    x = tape.cat([token, patches], 1)
    return tape.add(x, given["position_embeddings"]) if "position_embeddings" in given else x


def tower_patches(
    run: Lowering, op: EmbeddedImages, weight: Tensor, bias: Tensor | None = None, *, are_input: bool = True
) -> Tensor:  # fmt: skip
    images, side = run.execution.images, op.image_size
    height, width = (images.pixels if images is not None else None) or (side, side)
    pixels = image_pixels(run, num_images(run), op.num_channels, height, width)
    patches = run.tape.patch_conv2d(pixels, weight, bias)
    patches = run.as_input(patches) if are_input else patches
    return run.tape.transpose(run.tape.reshape(patches, *patches.shape[:2], -1), 1, 2)


def _tower_positions(run: Lowering, table: Tensor) -> Tensor:
    ids = run.tape.new((1, table.shape[0]), "int64", kind="buffer", op="arange")
    return run.tape.embedding(ids, table)


class FramesEmbedding(Operation):
    __slots__ = ()


@lowering(FramesEmbedding)
def frames_embedding(run: Lowering, op: FramesEmbedding) -> Tensor:
    """Patches of all images in one row, each a convolution's only result (Qwen2-VL)."""
    return run.as_input(rows_of_frames(run, op))


def rows_of_frames(run: Lowering, op: FramesEmbedding) -> Tensor:
    """The same, of a class that names no input embeddings."""
    tape, (weight, *bias) = run.tape, run.parameters_of(op)
    patches = tower_rows(run)
    flat = image_pixels(run, patches, product(weight.shape[1:]))
    pixels = tape.view(flat, patches, *weight.shape[1:])
    return tape.view(tape.patch_conv3d(pixels, weight, bias[0] if bias else None), patches, weight.shape[0])


def tower_rows(run: Lowering) -> Dim:
    images = run.execution.images
    assert images is not None
    return num_images(run) * images.patches


class InterpolatedFramesEmbedding(Operation):
    __slots__ = ()


@lowering(InterpolatedFramesEmbedding)
def interpolated_frames_embedding(run: Lowering, op: InterpolatedFramesEmbedding) -> Tensor:
    """As `frames_embedding`, plus four weighted rows of a table for each patch (Qwen3-VL)."""
    tape, (*kernel, table) = run.tape, run.parameters_of(op)
    x = rows_of_frames(run, FramesEmbedding(parameters=op.parameters[: len(kernel)]))
    rows = tape.embedding(tape.new((x.shape[0], 4), "int64", op="add"), table)
    weights = tape.new((x.shape[0], 4, 1), "fp32", op="mul")
    positions = tape.reduce("sum", tape.mul(rows, weights), 1, keepdim=False)
    return tape.add(x, tape.to(positions, x.dtype))


@record(kw_only=True, eq=False)
class WindowedFramesEmbedding(Operation):
    merge: int
    window: int


@lowering(WindowedFramesEmbedding)
def windowed_frames_embedding(run: Lowering, op: WindowedFramesEmbedding) -> Tensor:
    """As `frames_embedding`, then gathered by windows (Qwen2.5-VL)."""
    images, (merge, window) = run.execution.images, (op.merge, op.window)
    assert images is not None
    run.windows = chunks_of_grid(images.rows // merge, images.columns // merge, window, merge**2)
    x = frames_embedding(run, FramesEmbedding(parameters=op.parameters))
    squares = run.tape.reshape(x, tower_rows(run) // merge**2, merge**2, x.shape[-1])
    return run.tape.reshape(_rows_picked(run, squares, "window_index"), *x.shape)


def _rows_picked(run: Lowering, x: Tensor, made: str) -> Tensor:
    """`x[index]` along the first axis: keeps the index."""
    index = run.tape.new((x.shape[0],), "int64", op=made)
    out = run.tape.new(x.shape, x.dtype, requires_grad=x.requires_grad, op="index")
    run.tape.record("index", [x, index], [out], [(index, "indices")])
    return out


# -- packed attention ----------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class PackedAttention(HeadedAttention):
    windowed: bool
    turned: str


@lowering(PackedAttention)
def packed_attention(run: Lowering, op: PackedAttention, *projected: Tensor) -> Tensor:
    """q, k and v of all patches in one row; each image or window for itself, results joined by a copy."""
    images, heads = run.execution.images, op.num_heads
    assert images is not None
    q, k, v = _packed_heads(run, projected, heads)
    turn = PATCH_ROTATIONS[op.turned]
    q, k = (turn(run, x) for x in (q, k))
    chunks = run.windows if op.windowed else ((1, images.patches),)
    attend = _packed_eager if run.execution.attention == "eager" else _packed_sdpa
    pieces = [attend(run, q, k, v, num_images(run) * count, length) for count, length in chunks]
    rows, width = projected[0].shape[0], op.outputs[0].width
    return run.tape.view(run.tape.cat(pieces, 1), rows, width)


def _packed_heads(run: Lowering, projected: tuple[Tensor, ...], heads: int) -> tuple[Tensor, ...]:
    tape, rows = run.tape, projected[0].shape[0]
    if len(projected) == 3:
        return tuple(tape.view(x, rows, heads, -1) for x in projected)
    stacked = tape.permute(tape.view(projected[0], rows, 3, heads, -1), 1, 0, 2, 3)
    return tuple(tape.select(stacked, 0) for _ in range(3))


@PATCH_ROTATIONS.named("turned_in_fp32")
def turned_in_fp32(run: Lowering, x: Tensor) -> Tensor:
    """x·cos + rotate_half(x)·sin in fp32, cast back; both tables are made once, in fp32."""
    tape, width = run.tape, x.shape[-1]
    key = f"patches/{width}"
    if key not in run.tables:
        run.tables[key] = tuple(tape.new((x.shape[0], width), "fp32", op=fn) for fn in ("cos", "sin"))
    cos, sin = (tape.unsqueeze(table, 1) for table in run.tables[key])
    wide = tape.to(x, "fp32")
    first, second = tape.chunk(wide, 2)
    turned = tape.cat([tape.unary("neg", second), first])
    return tape.to(tape.add(tape.mul(wide, cos), tape.mul(turned, sin)), x.dtype)


def _packed_eager(run: Lowering, q: Tensor, k: Tensor, v: Tensor, count: Dim, length: int) -> Tensor:
    """Products over views of one image's rows, which need no copy."""
    tape, (_, heads, d) = run.tape, q.shape
    a, b, c = (tape.as_strided(x, (count * heads, length, d), (x.strides[1], x.strides[0], 1)) for x in (q, k, v))
    scores = tape.scale(tape.matmul(a, tape.transpose(b, 1, 2)))
    weights = tape.to(tape.softmax(scores, "fp32"), q.dtype)
    mixed = tape.view(tape.matmul(weights, c), count, heads, length, d)
    return tape.view(tape.contiguous(tape.transpose(mixed, 1, 2)), 1, count * length, heads, d)


def _packed_sdpa(run: Lowering, q: Tensor, k: Tensor, v: Tensor, count: Dim, length: int) -> Tensor:
    tape, (_, heads, d) = run.tape, q.shape
    q, k, v = (
        tape.as_strided(x, (count, heads, length, d), (length * x.strides[0], x.strides[1], x.strides[0], 1))
        for x in (q, k, v)
    )
    mixed = tape.sdpa(q, k, v, backend=run.execution.sdpa_backend, calls=count)
    return tape.view(tape.contiguous(tape.transpose(mixed, 1, 2)), 1, count * length, heads, d)


@record(kw_only=True, eq=False)
class OrderRestored(Operation):
    tokens: int


@lowering(OrderRestored)
def order_restored(run: Lowering, op: OrderRestored, x: Tensor) -> Tensor:
    """Tokens gathered back from the order of windows."""
    return _rows_picked(run, x, "argsort")


class LayerScale(Operation):
    __slots__ = ()


@lowering(LayerScale)
def layer_scale(run: Lowering, op: LayerScale, x: Tensor) -> Tensor:
    """A learned factor for each column; of a single one its tanh."""
    (factor,) = run.parameters_of(op)
    return run.tape.mul(run.tape.unary("tanh", factor) if factor.shape == (1,) else factor, x)


def chunks_of_grid(rows: int, columns: int, side: int, unit: int) -> tuple[tuple[int, int], ...]:
    """Windows of at most `side` × `side` tokens of `unit` patches on a grid: how many there are of each length."""
    counts: dict[int, int] = {}
    for high in _cuts(rows, side):
        for wide in _cuts(columns, side):
            counts[high * wide * unit] = counts.get(high * wide * unit, 0) + 1
    return tuple((count, length) for length, count in counts.items())


def _cuts(length: int, side: int) -> list[int]:
    return [side] * (length // side) + ([length % side] if length % side else [])
