"""Towers whose inputs are padded to one number of patches as transformers 5.23 runs them: SigLIP 2 in LFM2-VL."""

from __future__ import annotations

import math

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.image_tokens import JoinedTokens
from vramwise.models.operations.images import image_pixels, num_images
from vramwise.models.operations.padded_images import mask_patches


class FlatPatches(Operation):
    __slots__ = ()


@lowering(FlatPatches)
def flat_patches(run: Lowering, op: FlatPatches) -> Tensor:
    """A product of flat pixels, plus positions stretched to each input's grid: copies that keep nothing."""
    tape, images, (weight, bias, table) = run.tape, run.execution.images, run.parameters_of(op)
    assert images is not None
    n, slots = num_images(run), images.padded_to or images.patches
    x = tape.linear(image_pixels(run, n, slots, weight.shape[1]), weight, bias)
    shape = (n, slots, table.shape[1])
    positions = tape.new(shape, table.dtype, requires_grad=table.requires_grad, op="_upsample_bilinear2d_aa")
    tape.record("_upsample_bilinear2d_aa", [table], [positions])
    x = tape.add(x, positions)
    if slots > min(rows * columns for rows, columns in images.grids):
        mask_patches(run, x)
    return x


class JoinUnpadded(JoinedTokens):
    __slots__ = ()


@lowering(JoinUnpadded)
def join_unpadded(run: Lowering, op: JoinUnpadded, x: Tensor) -> Tensor:
    """Squares of neighbours of every input's own grid side by side, by a copy for each: (images, tokens, width).

    Raises UnsupportedModelError.
    """
    tape, images, joined = run.tape, run.execution.images, op.tokens
    assert images is not None
    side = math.isqrt(joined)
    narrow = {columns // side == 1 for _, columns in images.grids}
    if joined == 1 or len(narrow) > 1:
        raise UnsupportedModelError("images: neighbours that are not joined are not described")
    tokens = sum((rows // side) * (columns // side) for rows, columns in images.grids)
    shape = (run.batch * images.per_sequence, tokens, x.shape[-1] * joined)
    if narrow == {True}:  # neighbours of a column lie behind one another already
        steps = (images.tiles * x.strides[0], shape[2], 1)
        return tape.as_strided(x, shape, steps)
    out = tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="clone")
    tape.record("clone", [x], [out])
    return out
