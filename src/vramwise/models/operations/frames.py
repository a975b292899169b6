"""GLM-4V's, Kimi K2.5's and MiniMax M3's towers as transformers 5.23 runs them, where they differ from Qwen2-VL's."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.images import image_pixels
from vramwise.models.operations.norms import RmsNorm, rms_norm
from vramwise.models.operations.towers import PATCH_ROTATIONS, FramesEmbedding, rows_of_frames, tower_rows
from vramwise.records import record


@record(kw_only=True, eq=False)
class SampledFramesEmbedding(Operation):
    side: int


@lowering(SampledFramesEmbedding)
def sampled_frames_embedding(run: Lowering, op: SampledFramesEmbedding) -> Tensor:
    """As `frames_embedding`, a norm, plus a table sampled by `F.grid_sample` in fp32, which keeps both operands."""
    tape, (table, *_) = run.tape, run.parameters_of(op)
    x = rows_of_frames(run, FramesEmbedding(parameters=op.parameters[1:3]))
    x = rms_norm(run, RmsNorm(module=op.module, parameters=op.parameters[3:]), x)
    rows, side = x.shape[0], op.side
    grid = tape.new((1, rows, 1, 2), "fp32", op="stack")
    whole = tape.permute(tape.view(table, side, side, x.shape[1]), 2, 0, 1)
    whole = tape.to(tape.unsqueeze(whole, 0), "fp32")
    sampled = tape.new((1, x.shape[1], rows, 1), "fp32", requires_grad=whole.requires_grad, op="grid_sampler_2d")
    tape.record("grid_sampler_2d", [whole, grid], [sampled], [(whole, "input"), (grid, "grid")])
    positions = tape.permute(tape.squeeze(tape.squeeze(sampled, 0), -1), 1, 0)
    return tape.add(x, tape.to(positions, table.dtype))


class NormedFramesEmbedding(Operation):
    __slots__ = ()


@lowering(NormedFramesEmbedding)
def normed_frames_embedding(run: Lowering, op: NormedFramesEmbedding) -> Tensor:
    """As `frames_embedding`, then a norm; tables for all layers have the dtype of what it reads (MiniMax M3)."""
    norm = run.parameters_of(op)[1:]
    x = run.tape.to(rows_of_frames(run, FramesEmbedding(parameters=op.parameters[:1])), norm[0].dtype)
    run.tables["dtype of patches"] = (x,)
    return run.tape.layer_norm(x, *norm)


@PATCH_ROTATIONS.named("turned_by_thirds")
def turned_by_thirds(run: Lowering, x: Tensor) -> Tensor:
    """A third of a head's pairs turned by the position on each axis, what is left of them passed on: a copy."""
    tape, (rows, _, d), key = run.tape, x.shape, f"thirds of patches/{x.shape[-1]}"
    width = 3 * 2 * (d // 3 // 2)
    if key not in run.tables:
        dtype = run.tables["dtype of patches"][0].dtype
        run.tables[key] = tuple(tape.new((rows, width), dtype, op=fn) for fn in ("cos", "sin"))
    cos, sin = (tape.unsqueeze(table, 1) for table in run.tables[key])
    part, rest = tape.split(x, [width, d - width])
    first, second = tape.chunk(part, 2)
    turned = tape.cat([tape.unary("neg", second), first])
    return tape.cat([tape.add(tape.mul(part, cos), tape.mul(turned, sin)), rest])


@record(kw_only=True, eq=False)
class Downsampled(Operation):
    side: int


@lowering(Downsampled)
def downsampled(run: Lowering, op: Downsampled, x: Tensor) -> Tensor:
    """A norm, then a convolution as wide as the squares whose patches lie behind one another."""
    tape, (_, weight, bias) = run.tape, run.parameters_of(op)
    x = rms_norm(run, RmsNorm(module=op.module, parameters=op.parameters[:1]), x)
    side = op.side
    squares = tape.view(x, x.shape[0] // side**2, side, side, x.shape[1])
    joined = tape.patch_conv2d(tape.permute(squares, 0, 3, 1, 2), weight, bias)
    return tape.view(joined, joined.shape[0], weight.shape[0])


class StretchedGrid(Operation):
    __slots__ = ()


@lowering(StretchedGrid)
def stretched_grid(run: Lowering, op: StretchedGrid) -> Tensor:
    """A convolution a patch, plus 16 weighted entries of a learned grid, which `embedding_bag` sums (Kimi K2.5)."""
    tape, (weight, bias, grid) = run.tape, run.parameters_of(op)
    rows, taps = tower_rows(run), 16  # bicubic
    x = tape.patch_conv2d(image_pixels(run, rows, *weight.shape[1:]), weight, bias)
    x = tape.view(x, rows, weight.shape[0])
    table = tape.view(grid, grid.shape[0] * grid.shape[1], grid.shape[2])
    positions = tape.new((rows, grid.shape[2]), grid.dtype, requires_grad=grid.requires_grad, op="embedding_bag")
    indices, shares = (tape.new((rows * taps,), dtype, op="_to_copy") for dtype in ("int64", grid.dtype))
    # aten/src/ATen/native/EmbeddingBag.cpp, cuda/EmbeddingBag.cu: whose bag an index is, and how large bags are.
    kept = {"indices": indices, "offsets": tape.new((rows,), "int64", op="arange"), "per_sample_weights": shares}
    sizes = {"offset2bag": (0, rows * taps), "bag_size": (rows, rows), "max_indices": (rows, 0)}
    kept |= {
        name: tape.new((length[tape.device != "cpu"],), "int64", op="embedding_bag") for name, length in sizes.items()
    }
    tape.record("embedding_bag", [table, indices, shares], [positions], [(x, name) for name, x in kept.items()])
    return tape.add(x, tape.to(positions, x.dtype))


@record(kw_only=True, eq=False)
class GatheredSquares(Operation):
    tokens: int


@lowering(GatheredSquares)
def gathered_squares(run: Lowering, op: GatheredSquares, x: Tensor) -> Tensor:
    """Patches of each square behind one another, by an index that is kept; the mean of one frame."""
    tape, (rows, width), tokens = run.tape, x.shape, op.tokens
    squares = rows // tokens
    index = tape.new((squares, 1, tokens), "int64", op="cat")
    found = tape.new((squares, 1, tokens, width), x.dtype, requires_grad=x.requires_grad, op="index")
    tape.record("index", [x, index], [found], [(index, "indices")])
    return tape.reduce("mean", found, 1, keepdim=False)


class JoinGathered(Operation):
    __slots__ = ()


@lowering(JoinGathered)
def join_gathered(run: Lowering, op: JoinGathered, x: Tensor) -> Tensor:
    """The patches of a square side by side: a view."""
    return run.tape.view(x, x.shape[0], 1, op.outputs[0].width)
