"""Matrix products, embeddings, convolutions.

`torch.einsum` of two operands as the batched product that it becomes.
"""

from __future__ import annotations

from vramwise.models.autograd.pointwise import Pointwise
from vramwise.models.autograd.size import Dim, exact_quotient, product
from vramwise.models.autograd.tensor import Tensor, channels_last_strides, is_channels_last
from vramwise.records import replace


class Products(Pointwise):
    """Operations whose work is counted in FLOPs: 2·rows·inner·columns for each product."""

    def mm(self, op: str, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        """2-D or batched product: keeps a if b needs a gradient, b if a does."""
        shape = (*a.shape[:-1], b.shape[-1])
        inputs = [a, b] if bias is None else [a, b, bias]
        grad = any(tensor.requires_grad for tensor in inputs)
        out = self.new(shape, a.dtype, requires_grad=grad, op=op)
        flops = 2 * product(shape) * a.shape[-1]
        saves = [(a, "self")] * b.requires_grad + [(b, "mat2")] * a.requires_grad
        self.record(op, inputs, [out], saves, flops=flops, backward_flops=flops * (a.requires_grad + b.requires_grad))
        return out

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`F.linear`: the input seen as rows (a copy if it is not contiguous) times the transposed weight."""
        x, weight = self.autocast_low(x, weight)
        if bias is not None:
            (bias,) = self.autocast_low(bias)
        return self._rows_times(x, self.transpose(weight, 0, 1), bias)

    def conv1d_linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """GPT-2's `Conv1D`: a linear layer whose weight is stored as (in, out)."""
        x, weight, bias = self.autocast_low(x, weight, bias)
        return self._rows_times(x, weight, bias)

    def rows_times(self, x: Tensor, matrix: Tensor) -> Tensor:
        """`x @ matrix` of a flat matrix, which autocast casts as what it is: a view of a parameter is no leaf."""
        x, matrix = self.autocast_low(x, matrix)
        return self._rows_times(x, matrix, None)

    def _rows_times(self, x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        rows = self.reshape(x, -1, x.shape[-1]) if x.ndim > 2 else x
        flat = self.mm("addmm" if bias is not None else "mm", rows, matrix, bias)
        return self.view(flat, *x.shape[:-1], matrix.shape[-1]) if x.ndim > 2 else flat

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """`torch.matmul` of batched matrices: batch dimensions are folded, which copies what is not dense."""
        a, b = self.autocast_low(a, b)
        if a.ndim == 3 and b.ndim == 3:
            return self.mm("bmm", a, b)
        batch = tuple(x if x != 1 else y for x, y in zip(a.shape[:-2], b.shape[:-2], strict=True))
        left = self.reshape(self.expand(a, *batch, *a.shape[-2:]), product(batch), *a.shape[-2:])
        right = self.reshape(self.expand(b, *batch, *b.shape[-2:]), product(batch), *b.shape[-2:])
        return self.view(self.mm("bmm", left, right), *batch, a.shape[-2], b.shape[-1])

    def baddbmm(self, bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """`torch.baddbmm(bias, a, b)`: keeps its two factors as a product does."""
        bias, a, b = self.autocast_low(bias, a, b)
        return self.mm("baddbmm", a, b, bias)

    def embedding(self, ids: Tensor, weight: Tensor) -> Tensor:
        """`F.embedding`: keeps the ids."""
        out = self.new((*ids.shape, weight.shape[-1]), weight.dtype, requires_grad=weight.requires_grad, op="embedding")
        self.record("embedding", [ids, weight], [out], [(ids, "indices")])
        return out

    def wanted(self, x: Tensor) -> Tensor:
        """`x.requires_grad_(True)`: a leaf from here on, which the node that adds up its gradient keeps."""
        out = replace(x, requires_grad=True)
        self.record("requires_grad_", [x], [out], [(out, "variable")])
        return out

    def take(self, x: Tensor, dim: int) -> Tensor:
        """`x[..., [i]]` along one dimension: a copy, which keeps the list as a tensor."""
        out = self.new((*x.shape[:dim], 1, *x.shape[dim + 1 :]), x.dtype, requires_grad=x.requires_grad, op="index")
        index = self.new((1,), "int64", op="index")
        self.record("index", [x, index], [out], [(index, "indices")])
        return out

    def short_conv2d(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """`F.conv2d` with a kernel of two rows, padded by one: (batch, channels, rows, 1) gets a row more."""
        return self._convolution(x, weight, bias, (x.shape[0], weight.shape[0], x.shape[2] + 1, 1))

    def patch_conv2d(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`F.conv2d` with a stride as wide as its kernel: what is left of the last rows and columns is not read."""
        assert isinstance(weight.shape[2], int)
        height, width = (length // weight.shape[2] for length in x.shape[2:])
        return self._convolution(x, weight, bias, (x.shape[0], weight.shape[0], height, width))

    def conv2d(self, x: Tensor, weight: Tensor, stride: int = 1, bias: Tensor | None = None) -> Tensor:
        """`F.conv2d`, padded to keep both sides, then thinned by `stride`."""
        height, width = (length if stride == 1 else -(-length // stride) for length in x.shape[2:])
        shape = (x.shape[0], weight.shape[0], height, width)
        return self._convolution(x, weight, bias, shape, channels_last_strides(shape) if is_channels_last(x) else None)

    def conv2d_to(self, x: Tensor, weight: Tensor, bias: Tensor | None, height: int, width: int) -> Tensor:
        """`F.conv2d` with results of height × width places."""
        return self._convolution(x, weight, bias, (x.shape[0], weight.shape[0], height, width))

    def patch_conv3d(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`F.conv3d` of patches as large as its kernel: one result each."""
        return self._convolution(x, weight, bias, (x.shape[0], weight.shape[0], 1, 1, 1))

    def conv1d(self, x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        """`F.conv1d` over (batch, channels, length), padded to keep its length, then thinned by `stride`."""
        return self._convolution(x, weight, bias, (x.shape[0], weight.shape[0], exact_quotient(x.shape[-1], stride)))

    def depthwise_conv1d(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Dim, dilation: int = 1
    ) -> Tensor:
        """Causal `F.conv1d` by channel or group over (batch, channels, sequence): keeps the input (and the weight)."""
        length = x.shape[-1] + 2 * padding - dilation * (weight.shape[-1] - 1)
        return self._convolution(x, weight, bias, (*x.shape[:-1], length))

    def _convolution(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, shape: tuple[Dim, ...],
        strides: tuple[Dim, ...] | None = None,
    ) -> Tensor:  # fmt: skip
        """`convolution`: keeps its input and its weight; each output element meets one kernel."""
        x, weight = self.autocast_low(x, weight)
        inputs = [x, weight, *(self.autocast_low(bias) if bias is not None else ())]
        grad = any(tensor.requires_grad for tensor in inputs)
        out = self.new(shape, x.dtype, requires_grad=grad, strides=strides, op="convolution")
        flops = 2 * product(shape) * product(weight.shape[1:])
        self.record(
            "convolution", inputs, [out], [(x, "input"), (weight, "weight")],
            flops=flops, backward_flops=flops * (x.requires_grad + weight.requires_grad),
        )  # fmt: skip
        return out


class Contractions(Products):
    """Sums over shared indices."""

    def einsum(self, equation: str, a: Tensor, b: Tensor) -> Tensor:
        """Operands permuted to (shared, own, summed) and (shared, summed, own), folded, multiplied with `bmm`.

        Folding copies what strides do not allow as a view (torch 2.13, `sumproduct_pair` in
        aten/src/ATen/native/Linear.cpp), summed indices in the order of the alphabet; no operand is a leaf any more,
        so that autocast casts weights anew. The operand whose own indices come first in the result is the left one.
        """
        left, right, result = equation.replace("->", ",").split(",")
        own_left = [i for i in result if i in left and i not in right]
        own_right = [i for i in result if i in right and i not in left]
        if own_left and own_right and result.index(own_left[0]) > result.index(own_right[0]):
            left, right, own_left, own_right, a, b = right, left, own_right, own_left, b, a
        sizes = dict(zip(left, a.shape, strict=True)) | dict(zip(right, b.shape, strict=True))
        shared = [i for i in result if i in left and i in right]
        summed = sorted(i for i in left if i not in result and sizes[i] != 1)
        if not summed:
            return self._outer(left, right, result, a, b)

        def folded(x: Tensor, labels: str, *groups: list[str]) -> Tensor:
            order = [labels.index(i) for group in groups for i in group]
            shape = [product(sizes[i] for i in group) for group in groups]
            return self.reshape(self.permute(self.unleafed(x), *order), *shape)

        factors = self.autocast_low(
            folded(a, left, shared, own_left, summed), folded(b, right, shared, summed, own_right)
        )
        wide = self.mm("bmm", *factors)
        made = [*shared, *own_left, *own_right]
        out = self.view(wide, *(sizes[i] for i in made))
        return self.permute(out, *(made.index(i) for i in result))

    def _outer(self, left: str, right: str, result: str, a: Tensor, b: Tensor) -> Tensor:
        """Where nothing is summed, or only sizes of one, a product of the operands broadcast to each other."""
        broadcast = []
        for labels, x in ((left, a), (right, b)):
            kept = [i for i in result if i in labels]
            rest = [i for i in labels if i not in result]
            x = self.permute(x, *(labels.index(i) for i in [*kept, *rest]))
            for _ in rest:
                x = self.squeeze(x, -1)
            for position, i in enumerate(result):
                x = x if i in labels else self.unsqueeze(x, position)
            broadcast.append(x)
        return self.mul(*broadcast)
