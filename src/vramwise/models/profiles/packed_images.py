"""Pixtral's tower as transformers 5.23 runs it: all images in one row, a mask keeps them apart."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class PackedImagePaths:
    """Attention over the patches of the whole batch, however many images there are."""

    tape: Tape
    execution: Execution
    tables: dict[str, tuple[Tensor, ...]]
    parameters_of: Callable[[Op], list[Tensor]]
    num_images: Callable[[], Dim]
    pixels: Callable[..., Tensor]
    attention_dropout: Callable[[Op], float]

    def pixtral_embedding(self, op: Op) -> Tensor:
        """A convolution, the images' patches joined to one row by a copy, a norm; tables and mask for all layers."""
        tape, images, (weight, norm) = self.tape, self.execution.images, self.parameters_of(op)
        assert images is not None
        side = weight.shape[2]
        pixels = self.pixels(self.num_images(), op.settings["num_channels"], images.rows * side, images.columns * side)
        patches = tape.patch_conv2d(pixels, weight, None)
        rows, width = self.num_images() * images.patches, weight.shape[0]
        joined = tape.new((rows, width), patches.dtype, requires_grad=patches.requires_grad, op="cat")
        tape.record("cat", [patches], [joined])
        x = tape.unsqueeze(joined, 0)
        wide = tape.to(x, "fp32")
        root = tape.unary("rsqrt", tape.scale(tape.reduce("mean", tape.unary("pow", wide)), "add_scalar"))
        x = tape.mul(norm, tape.to(tape.mul(wide, root), x.dtype))
        self.tables["mask of images"] = (tape.new((1, 1, rows, rows), x.dtype, op="mask"),)
        self.tables["dtype of patches"] = (x,)
        return x

    def turned_patches(self, op: Op, *turned: Tensor) -> tuple[Tensor, ...]:
        """x·cos + rotate_half(x)·sin with tables in the dtype of the first layer's input."""
        tape, width, rows = self.tape, turned[0].shape[-1], turned[0].shape[2]
        if "positions of patches" not in self.tables:
            dtype = self.tables["dtype of patches"][0].dtype
            self.tables["positions of patches"] = tuple(tape.new((rows, width), dtype, op=fn) for fn in ("cos", "sin"))
        cos, sin = (tape.unsqueeze(table, 0) for table in self.tables["positions of patches"])
        found = []
        for x in turned:
            first, second = tape.chunk(x, 2)
            half = tape.cat([tape.unary("neg", second), first])
            found.append(tape.add(tape.mul(x, cos), tape.mul(half, sin)))
        return tuple(found)

    def _eager_rows_of_images(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tape, (mask,) = self.tape, self.tables["mask of images"]
        scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), mask)
        weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    def _sdpa_rows_of_images(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """With the mask; flash attention is told the images' lengths instead."""
        tape, (mask,), backend = self.tape, self.tables["mask of images"], self.execution.sdpa_backend
        masked = None if backend == "flash" else mask
        mixed = tape.sdpa(q, k, v, mask=masked, dropout=self.attention_dropout(op), backend=backend)
        return tape.contiguous(tape.transpose(mixed, 1, 2))

    def join_unfolded(self, op: Op, x: Tensor) -> Tensor:
        """`F.unfold` of each image's grid, turned and joined by a copy."""
        tape = self.tape
        rows = tape.reshape(x, x.shape[-2], x.shape[-1])
        shape = (rows.shape[0] // op.settings["tokens"], op.outputs[0].width)
        joined = tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="im2col")
        tape.record("im2col", [rows], [joined])
        return joined
