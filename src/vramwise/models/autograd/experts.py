"""Routing and grouped expert products."""

from __future__ import annotations

from vramwise.models.autograd.losses import Losses
from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tensor import Tensor


class Experts(Losses):
    """Mixture-of-experts primitives; the number of routed rows is tokens · experts per token."""

    def topk(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """`torch.topk`: keeps the indices."""
        shape = (*x.shape[:-1], k)
        values = self.new(shape, x.dtype, requires_grad=x.requires_grad, op="topk")
        indices = self.new(shape, "int64", op="topk")
        self.record("topk", [x], [values, indices], [(indices, "indices")])
        return values, indices

    def gather_rows(self, op: str, x: Tensor, index: Tensor, rows: Dim) -> Tensor:
        """Rows of x picked by an index: keeps the index."""
        out = self.new((rows, *x.shape[1:]), x.dtype, requires_grad=x.requires_grad, op=op)
        self.record(op, [x, index], [out], [(index, "indices")])
        return out

    def grouped_mm(self, x: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        """Rows of each expert times that expert's matrix (experts, in, out): keeps as a product, and the offsets."""
        shape = (x.shape[0], weights.shape[-1])
        grad = x.requires_grad or weights.requires_grad
        out = self.new(shape, x.dtype, requires_grad=grad, op="_grouped_mm")
        flops = 2 * product(shape) * x.shape[-1]
        saves = [(x, "self")] * weights.requires_grad + [(weights, "mat2")] * x.requires_grad
        self.record(
            "_grouped_mm", [x, weights, offsets], [out], [*saves, (offsets, "offs")],
            flops=flops, backward_flops=flops * (x.requires_grad + weights.requires_grad),
        )  # fmt: skip
        return out
