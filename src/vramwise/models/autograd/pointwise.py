"""Pointwise and reducing operations with what each keeps for backward (torch 2.13, derivatives.yaml).

Matrix products, embeddings, convolutions.

`torch.einsum` of two operands as the batched product that it becomes.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.autograd.primitives import primitive
from vramwise.models.autograd.recorder import Layout, promote
from vramwise.models.autograd.size import Dim, exact_quotient, product
from vramwise.models.autograd.tensor import Tensor, channels_last_strides, is_channels_last, pointwise_strides
from vramwise.records import replace


def broadcast_shape(*tensors: Tensor) -> tuple[Dim, ...]:
    """The shape that the operands share after broadcasting."""
    ndim = max(tensor.ndim for tensor in tensors)
    shape: list[Dim] = [1] * ndim
    for tensor in tensors:
        for i, size in enumerate(tensor.shape, start=ndim - tensor.ndim):
            if size != 1:
                shape[i] = size
    return tuple(shape)


class Pointwise(Layout):
    """Arithmetic, activations, dropout, softmax, reductions."""

    def _pointwise(self, op: str, inputs: Sequence[Tensor], dtype: str | None = None) -> Tensor:
        shape = broadcast_shape(*inputs)
        # Scalars do not widen a tensor's dtype; among themselves they do.
        deciding = [tensor for tensor in inputs if tensor.ndim] or inputs
        out_dtype = dtype or promote(*(tensor.dtype for tensor in deciding))
        return self.new(
            shape,
            out_dtype,
            requires_grad=any(tensor.requires_grad for tensor in inputs),
            strides=pointwise_strides(shape, tuple(inputs)),
            op=op,
        )

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """`a + b` (also a − b): keeps nothing."""
        out = self._pointwise("add", [a, b])
        self.record("add", [a, b], [out])
        return out

    def add_(self, a: Tensor, b: Tensor) -> Tensor:
        """In-place addition: the same storage, keeps nothing."""
        out = Tensor(a.shape, a.strides, a.dtype, a.storage, a.requires_grad or b.requires_grad)
        self.record("add_", [a, b], [out])
        return out

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """`a · b`: keeps a if b needs a gradient and b if a does."""
        out = self._pointwise("mul", [a, b])
        saves = [(a, "self")] * b.requires_grad + [(b, "other")] * a.requires_grad
        self.record("mul", [a, b], [out], saves)
        return out

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        """`a / b`: keeps b for a's gradient, and a too for b's."""
        out = self._pointwise("div", [a, b])
        saves = [(b, "other")] * (a.requires_grad or b.requires_grad) + [(a, "self")] * b.requires_grad
        self.record("div", [a, b], [out], saves)
        return out

    def minimum(self, a: Tensor, b: Tensor, op: str = "minimum") -> Tensor:
        """`torch.minimum(a, b)`: keeps both, to tell which was smaller."""
        out = self._pointwise(op, [a, b])
        self.record(op, [a, b], [out], [(a, "self"), (b, "other")])
        return out

    def maximum(self, a: Tensor, b: Tensor) -> Tensor:
        return self.minimum(a, b, "maximum")

    def scale(self, x: Tensor, op: str = "mul_scalar") -> Tensor:
        """Multiplication or division by a Python number, or addition of one: keeps nothing."""
        out = self._pointwise(op, [x])
        self.record(op, [x], [out])
        return out

    def unary(self, op: str, x: Tensor) -> Tensor:
        """A function of one operand, which keeps that or its result, as its row says."""
        x = self.autocast_high(op, x)
        out = self._pointwise(op, [x])
        operands = {"self": x, "result": out}
        self.record(op, [x], [out], [(operands[role], role) for role in primitive(op).saves if role in operands])
        return out

    def masked_fill(self, x: Tensor, mask: Tensor) -> Tensor:
        """`x.masked_fill(mask, number)`: keeps the mask."""
        out = self._pointwise("masked_fill", [x, mask], x.dtype)
        self.record("masked_fill", [x, mask], [out], [(mask, "mask")])
        return out

    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """`torch.where`: keeps the condition."""
        out = self._pointwise("where", [condition, a, b], promote(a.dtype, b.dtype))
        self.record("where", [condition, a, b], [out], [(condition, "condition")])
        return out

    def reduce(self, op: str, x: Tensor, dim: int = -1, *, keepdim: bool = True) -> Tensor:
        """A sum or mean over one dimension: keeps nothing but sizes."""
        x = self.autocast_high(op, x)
        dim = dim if dim >= 0 else x.ndim + dim
        shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :]) if keepdim else x.shape[:dim] + x.shape[dim + 1 :]
        out = self.new(shape, x.dtype, requires_grad=x.requires_grad, op=op)
        self.record(op, [x], [out])
        return out

    def vector_norm(self, x: Tensor) -> Tensor:
        """`x.norm(p=2, dim=-1, keepdim=True)`: keeps both; under CUDA autocast the result is fp32, x not copied."""
        dtype = "fp32" if self.autocast and self.device == "cuda" else x.dtype
        out = self.new((*x.shape[:-1], 1), dtype, requires_grad=x.requires_grad, op="linalg_vector_norm")
        self.record("linalg_vector_norm", [x], [out], [(x, "self"), (out, "result")])
        return out

    def std(self, x: Tensor) -> Tensor:
        """`torch.std(x, -1, keepdim=True)`: keeps its operand and its result."""
        out = self.new((*x.shape[:-1], 1), x.dtype, requires_grad=x.requires_grad, op="std")
        self.record("std", [x], [out], [(x, "self"), (out, "result")])
        return out

    def logsumexp(self, x: Tensor) -> Tensor:
        """`logsumexp(x, -1)`: keeps its operand and its result."""
        x = self.autocast_high("logsumexp", x)
        out = self.new(x.shape[:-1], x.dtype, requires_grad=x.requires_grad, op="logsumexp")
        self.record("logsumexp", [x], [out], [(x, "self"), (out, "result")])
        return out

    def log_sigmoid(self, x: Tensor) -> Tensor:
        """`F.logsigmoid(x)`: keeps its operand, and on CPU a buffer as large."""
        out = self._pointwise("log_sigmoid_forward", [x])
        saves = [(x, "self")]
        if self.device == "cpu":
            saves.append((self.like(x, requires_grad=False, op="log_sigmoid_forward"), "buffer"))
        self.record("log_sigmoid_forward", [x], [out], saves)
        return out

    def softmax(self, x: Tensor, dtype: str | None = None, op: str = "_softmax") -> Tensor:
        """`softmax(x, -1, dtype)` or `log_softmax(x, -1, dtype)`: keeps the result.

        On CUDA one kernel reads fp16 and writes fp32 (torch 2.13 aten/src/ATen/native/SoftMax.cpp `half_to_float`), and
        softmax's backward first makes `grad * output`, as large as the result (native/cuda/SoftMax.cu
        `softmax_backward_cuda_out`).
        """
        widens = self.device == "cuda" and x.dtype == "fp16" and dtype == "fp32"
        if not widens:
            x = self.to(x, dtype) if dtype else self.autocast_high(op, x)
        out = self.like(x, dtype="fp32" if widens else x.dtype, requires_grad=x.requires_grad, op=op)
        made = out.nbytes if op == "_softmax" and self.device == "cuda" and x.requires_grad else None
        self.record(op, [x], [out], [(out, "result")], backward_workspace_bytes=made)
        return out

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """`F.dropout(x, p, training=True)`: a bool mask on CUDA (one fused kernel), a float mask on CPU."""
        if p == 0:
            return x
        if self.device == "cuda":
            out = self.like(x, requires_grad=x.requires_grad, op="native_dropout")
            mask = self.like(x, dtype="bool", requires_grad=False, op="native_dropout")
            self.record("native_dropout", [x], [out, mask], [(mask, "mask")])
            return out
        noise = self.like(x, requires_grad=False, op="bernoulli_")
        self.record("bernoulli_", [], [noise])
        return self.mul(x, noise)

    def layer_norm(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """`F.layer_norm`: keeps its operands, mean and 1/std (fp32 on CUDA, the input's dtype on CPU)."""
        x = self.autocast_high("native_layer_norm", x)
        parameters = [self._parameter_cast(p) for p in (weight, bias) if p is not None]
        grad = x.requires_grad or any(p.requires_grad for p in parameters)
        self.contiguous(x)  # the kernel's own row-major copy, gone when it returns; what it keeps is x as it came
        out = self.new(x.shape, x.dtype, requires_grad=grad, op="native_layer_norm")
        mixed = bool(parameters) and parameters[0].dtype != x.dtype
        stat_dtype = "fp32" if self.device == "cuda" or mixed else x.dtype
        rows = (*x.shape[:-1], 1)
        mean = self.new(rows, stat_dtype, op="native_layer_norm")
        rstd = self.new(rows, stat_dtype, op="native_layer_norm")
        saves = [(x, "input"), (mean, "mean"), (rstd, "rstd")]
        saves += zip(parameters, ("weight", "bias"), strict=False)
        self.record("native_layer_norm", [x, *parameters], [out, mean, rstd], saves)
        return out

    def _parameter_cast(self, p: Tensor) -> Tensor:
        return self.autocast_high("native_layer_norm", p)

    def cumsum(self, x: Tensor, dim: int = -1) -> Tensor:
        x = self.autocast_high("cumsum", x)
        out = self.like(x, requires_grad=x.requires_grad, op="cumsum")
        self.record("cumsum", [x], [out])
        return out


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
