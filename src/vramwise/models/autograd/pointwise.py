"""Pointwise and reducing operations with what each keeps for backward (torch 2.13, derivatives.yaml)."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.autograd.layout import Layout
from vramwise.models.autograd.primitives import primitive
from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor, pointwise_strides


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
