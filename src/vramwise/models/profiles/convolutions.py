"""MobileNet-V5 as timm 1.0.31 runs it in Gemma 3n: (images, channels, height, width) throughout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class ConvolutionPaths:
    """Convolutions whose results are as large as their stride lets them, norms over channels, shared keys."""

    tape: Tape
    execution: Execution
    parameters_of: Callable[[Op], list[Tensor]]
    num_images: Callable[[], Dim]
    pixels: Callable[..., Tensor]

    def square_pixels(self, op: Op) -> Tensor:
        """Pixels of images whose places of the coarsest stage are counted as patches."""
        images = self.execution.images
        assert images is not None
        side = op.settings["side"]
        return self.pixels(self.num_images(), op.outputs[0].width, images.rows * side, images.columns * side)

    def same_convolution(self, op: Op, x: Tensor) -> Tensor:
        """`Conv2dSame`: with a stride the input is padded by a copy first, else by the convolution itself."""
        tape, stride, (weight, *bias) = self.tape, op.settings["stride"], self.parameters_of(op)
        kernel, sides = weight.shape[-1], x.shape[2:]
        assert isinstance(kernel, int)
        made = tuple(-(-_whole(side) // stride) for side in sides)
        missing = [
            max((count - 1) * stride + kernel - _whole(side), 0) for count, side in zip(made, sides, strict=True)
        ]
        if stride > 1 and any(missing):
            shape = (*x.shape[:2], *(side + extra for side, extra in zip(sides, missing, strict=True)))
            padded = tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="constant_pad_nd")
            tape.record("constant_pad_nd", [x], [padded])
            x = padded
        return tape.conv2d_to(x, weight, bias[0] if bias else None, *made)

    def channel_norm(self, op: Op, x: Tensor) -> Tensor:
        """`rms_norm2d`: a root-mean-square norm over channels in the input's dtype."""
        tape, (weight,) = self.tape, self.parameters_of(op)
        variance = tape.scale(tape.reduce("mean", tape.unary("pow", x), 1), "add_scalar")
        x = tape.mul(x, tape.unary("rsqrt", variance))
        return tape.mul(x, tape.view(weight, 1, weight.shape[0], 1, 1))

    def channel_scale(self, op: Op, x: Tensor) -> Tensor:
        """A learned factor for each channel."""
        (factor,) = self.parameters_of(op)
        return self.tape.mul(x, self.tape.view(factor, 1, factor.shape[0], 1, 1))

    def shared_key_attention(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`scaled_dot_product_attention` of many heads to one, which no kernel but the plain products takes."""
        tape, heads, (n, width, rows, columns) = self.tape, op.settings["num_heads"], q.shape
        d = width // heads
        q = tape.contiguous(tape.transpose(tape.reshape(q, n, heads, d, rows * columns), 2, 3))
        k, v = (
            tape.contiguous(tape.unsqueeze(tape.transpose(tape.reshape(x, n, d, x.shape[2] * x.shape[3]), 1, 2), 1))
            for x in (k, v)
        )
        mixed = tape.sdpa(q, k, v, backend="math")
        places = tape.reshape(tape.transpose(mixed, 1, 2), n, rows, columns, width)
        return tape.contiguous(tape.permute(places, 0, 3, 1, 2))

    def joined_scales(self, op: Op, finer: Tensor, coarser: Tensor) -> Tensor:
        """The coarser stage enlarged by copies of its nearest places, channels side by side."""
        tape = self.tape
        shape = (*coarser.shape[:2], *finer.shape[2:])
        enlarged = tape.new(shape, coarser.dtype, requires_grad=coarser.requires_grad, op="upsample_nearest2d")
        tape.record("upsample_nearest2d", [coarser], [enlarged])
        return tape.cat([finer, enlarged], 1)

    def pool_to_grid(self, op: Op, x: Tensor) -> Tensor:
        """`avg_pool2d` to so many places on a side, which keeps its operand; nothing where there are as many."""
        side = op.settings["grid"]
        if x.shape[2:] == (side, side):
            return x
        out = self.tape.new((*x.shape[:2], side, side), x.dtype, requires_grad=x.requires_grad, op="avg_pool2d")
        self.tape.record("avg_pool2d", [x], [out], [(x, "self")])
        return out

    def places_as_tokens(self, op: Op, x: Tensor) -> Tensor:
        """(images, places, channels), a view, times a root in place."""
        tape, (n, width, rows, columns) = self.tape, x.shape
        x = tape.permute(tape.reshape(x, n, width, rows * columns), 0, 2, 1)
        out = replace(x)
        tape.record("mul_", [x], [out])
        return out


def _whole(size: Dim) -> int:
    assert isinstance(size, int)
    return size
