"""Gemma 4's and Phi-4's images as transformers 5.23 runs them: patches padded to one number, pooled."""

from __future__ import annotations

import math
from collections.abc import Callable

from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import Dim, exact_quotient
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor, channels_last_strides
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class PaddedImagePaths:
    """Every image has as many patches as any may have; masks say which of them are padding."""

    tape: Tape
    batch: Dim
    execution: Execution
    tables: dict[str, tuple[Tensor, ...]]
    parameters_of: Callable[[Op], list[Tensor]]
    num_images: Callable[[], Dim]
    pixels: Callable[..., Tensor]
    raw_pixels: Callable[..., Tensor]
    siglip_embedding_by_image: Callable[[Op], Tensor]
    _eager_masked: Callable[..., Tensor]
    _sdpa_masked: Callable[..., Tensor]
    _sdpa: Callable[..., Tensor]

    def _slots(self) -> int:
        images = self.execution.images
        assert images is not None
        return images.padded_to or images.patches

    def padded_patches(self, op: Op) -> Tensor:
        """Scaled pixels times a matrix, plus a row for each axis, nothing at places of padding; tables for all layers.

        Masks are made where some patch is padding.
        """
        tape, images, (weight, table) = self.tape, self.execution.images, self.parameters_of(op)
        assert images is not None
        n, slots = self.num_images(), self._slots()
        pixels = tape.scale(tape.scale(self.raw_pixels(n, slots, weight.shape[1]), "add_scalar"))
        x = tape.linear(tape.to(pixels, weight.dtype), weight)
        clamped, padding = tape.new((n, slots, 2), "int64", op="clamp"), tape.new((n, slots), "bool", op="all")
        of_axes = (tape.embedding(tape.select(clamped, 2), tape.select(table, 0)) for _ in range(2))
        positions = tape.where(tape.unsqueeze(padding, 2), tape.new((), table.dtype, op="zero"), tape.add(*of_axes))
        x = tape.add(x, positions)
        self.tables["padding of patches"] = (padding,)
        self.tables["dtype of patches"] = (x,)
        if slots > images.patches:
            self._mask_patches(x)
        return x

    def _mask_patches(self, x: Tensor) -> None:
        """The mask of x (inputs, patches, width) for all layers."""
        dtype = x.dtype if self.execution.attention == "eager" else "bool"
        self.tables["mask of patches"] = (self.tape.new((x.shape[0], 1, x.shape[1], x.shape[1]), dtype, op="mask"),)

    def clamp_by_buffers(self, op: Op, x: Tensor) -> Tensor:
        """`torch.clamp` between two buffers of one number, which it keeps beside its operand."""
        tape = self.tape
        ends = [tape.new((), self.execution.param_dtype, kind="buffer", op="buffer") for _ in range(2)]
        out = tape.like(x, requires_grad=x.requires_grad, op="clamp")
        tape.record("clamp", [x, *ends], [out], [(x, "self"), (ends[0], "min"), (ends[1], "max")])
        return out

    def rotary_by_axis(self, op: Op, x: Tensor) -> Tensor:
        """Each half of a head turned by the positions of one axis, with tables in the dtype of the first layer's input.

        x: (images, patches, heads, d).
        """
        tape, key = self.tape, f"axes of patches/{x.shape[-1]}"
        if key not in self.tables:
            shape, dtype = (*x.shape[:2], x.shape[-1]), self.tables["dtype of patches"][0].dtype
            self.tables[key] = tuple(tape.new(shape, dtype, op=fn) for fn in ("cos", "sin"))
        pieces = zip(*(tape.chunk(y, 2) for y in (x, *self.tables[key])), strict=True)
        found = []
        for half, *tables in pieces:
            cos, sin = (tape.unsqueeze(table, 2) for table in tables)
            first, second = tape.chunk(half, 2)
            turned = tape.cat([tape.unary("neg", second), first])
            found.append(tape.add(tape.mul(half, cos), tape.mul(turned, sin)))
        return tape.cat(found)

    def _eager_padded_images(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (mask,) = self.tables.get("mask of patches", (None,))
        return self._eager_masked(op, q, k, v, mask)

    def _sdpa_padded_images(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """With a mask where there is padding."""
        if "mask of patches" not in self.tables:
            return self._sdpa(op, q, k, v)
        return self._sdpa_masked(op, q, k, v, self.tables["mask of patches"][0])

    def pool_valid(self, op: Op, x: Tensor) -> Tensor:
        """Means of squares as a product with their weights in fp32, padding left out, times a root, standardized."""
        tape, images, kernel, (n, slots, width) = self.tape, self.execution.images, op.settings["kernel"], x.shape
        assert images is not None
        (padding,), (first,) = self.tables["padding of patches"], self.tables["dtype of patches"]
        squares = exact_quotient(slots, kernel**2)
        x = tape.masked_fill(x, tape.unsqueeze(padding, 2))
        ones = tape.to(tape.new((n, slots, squares), "int64", op="one_hot"), "fp32")
        weights = tape.transpose(tape.scale(ones), 1, 2)
        x = tape.to(tape.matmul(weights, tape.to(x, "fp32")), x.dtype)
        x = tape.scale(tape.to(x, "fp32"))
        x = self._valid_rows(x, tape.new((n, squares), "bool", op="logical_not"))
        if op.settings["standardized"]:
            buffers = (tape.new((width,), self.execution.param_dtype, kind="buffer", op="buffer") for _ in range(2))
            shift, scale = (tape.to(buffer, "fp32") for buffer in buffers)
            x = tape.mul(tape.add(x, shift), scale)
        return tape.to(x, first.dtype)

    def _valid_rows(self, x: Tensor, valid: Tensor) -> Tensor:
        """`x[valid]`: one row for each token of the prompt; keeps the mask."""
        images = self.execution.images
        assert images is not None
        rows = self.batch * (images.per_sequence * images.tokens)
        out = self.tape.new((rows, x.shape[-1]), x.dtype, requires_grad=x.requires_grad, op="index")
        self.tape.record("index", [x, valid], [out], [(valid, "indices")])
        return out

    # -- Phi-4 -----------------------------------------------------------------------------------------------

    def siglip_embedding_with_padding(self, op: Op) -> Tensor:
        """As `siglip_embedding_by_image`; tiles that an image does not fill have a mask."""
        images, x = self.execution.images, self.siglip_embedding_by_image(op)
        if images is not None and images.padded_to:
            self._mask_patches(x)
        return x

    def pool_pairs(self, op: Op, x: Tensor) -> Tensor:
        """`AvgPool2d` of 2 × 2 patches over a view with channels last, which it keeps; an odd side is padded first."""
        tape, (n, patches, width) = self.tape, x.shape
        assert isinstance(patches, int)
        side = math.isqrt(patches)
        grid = tape.permute(tape.view(x, n, side, side, width), 0, 3, 1, 2)
        if side % 2:
            side += 1
            padded = self._channels_last(grid, side, "reflection_pad2d")
            tape.record("reflection_pad2d", [grid], [padded], [(grid, "self")])
            grid = padded
        pooled = self._channels_last(grid, side // 2, "avg_pool2d")
        tape.record("avg_pool2d", [grid], [pooled], [(grid, "self")])
        return tape.view(tape.permute(pooled, 0, 2, 3, 1), n, (side // 2) ** 2, width)

    def _channels_last(self, x: Tensor, side: int, op: str) -> Tensor:
        shape = (*x.shape[:2], side, side)
        strides = channels_last_strides(shape)
        return self.tape.new(shape, x.dtype, requires_grad=x.requires_grad, strides=strides, op=op)

    def separators(self, op: Op, x: Tensor) -> Tensor:
        """Tiles laid side by side without padding, learned ends of lines and one between tiles and whole image."""
        tape, images, ends = self.tape, self.execution.images, self.parameters_of(op)
        assert images is not None
        rows = self.batch * (images.per_sequence * images.tokens)
        grad = any(tensor.requires_grad for tensor in (x, *ends))
        joined = tape.new((rows, x.shape[-1]), promote(x.dtype, ends[0].dtype), requires_grad=grad, op="cat")
        tape.record("cat", [x, *ends], [joined])
        return tape.to(joined, ends[0].dtype)

    def image_rows(self, op: Op, x: Tensor, image: Tensor) -> Tensor:
        """`index_put` at places that `nonzero` found: keeps both numbers of every place."""
        tape = self.tape
        image = tape.to(tape.cat([image], 0), x.dtype)
        places = tape.new((image.shape[0], 2), "int64", op="nonzero")
        out = tape.like(x, requires_grad=x.requires_grad or image.requires_grad, op="index_put")
        tape.record("index_put", [x, places, image], [out], [(places, "indices")])
        return out

    # -- the unified models ----------------------------------------------------------------------------------

    def padded_pixels(self, op: Op) -> Tensor:
        """Pixels of every patch, as they are."""
        return self.pixels(self.num_images(), self._slots(), op.outputs[0].width)

    def add_axes(self, op: Op, x: Tensor) -> Tensor:
        """A row for each axis, picked from one table, times nought for padding, added up."""
        tape, (table,), (n, slots, width) = self.tape, self.parameters_of(op), x.shape
        clamped, axes = tape.new((n, slots, 2), "int64", op="clamp"), tape.new((2,), "int64", op="arange")
        picked = tape.new((n, slots, 2, width), table.dtype, requires_grad=table.requires_grad, op="index")
        tape.record("index", [table, clamped, axes], [picked], [(clamped, "indices"), (axes, "indices")])
        valid = tape.new((n, slots, 2, 1), table.dtype, op="_to_copy")
        return tape.add(x, tape.reduce("sum", tape.mul(picked, valid), -2, keepdim=False))

    def valid_only(self, op: Op, x: Tensor) -> Tensor:
        """Tokens of patches that are no padding."""
        return self._valid_rows(x, self.tape.new(x.shape[:2], "bool", op="all"))
