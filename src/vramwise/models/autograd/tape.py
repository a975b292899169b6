"""Routing, grouped products of experts, cross entropy, and the tape with all its operations."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.attention import Attention
from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tensor import Tensor


class Losses(Attention):
    """Loss functions as torch composes them."""

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """`F.cross_entropy`: log-softmax keeps its result, the loss keeps the target and one scalar."""
        if self.autocast and self.device == "cpu":
            logits = self.to(logits, "fp32")  # the whole loss is on the CPU's list, only its last part on CUDA's
        log_probabilities = self.softmax(logits, logits.dtype, op="_log_softmax")
        log_probabilities = self.autocast_high("nll_loss_forward", log_probabilities)
        dtype = log_probabilities.dtype
        loss = self.new((), dtype, requires_grad=logits.requires_grad, op="nll_loss_forward")
        total_weight = self.new((), dtype, op="nll_loss_forward")
        saves = [(log_probabilities, "self"), (target, "target"), (total_weight, "total_weight")]
        self.record("nll_loss_forward", [log_probabilities, target], [loss, total_weight], saves)
        return loss


class Experts(Losses):
    """Mixture-of-experts primitives; the number of routed rows is tokens · experts per token."""

    def detached(self, x: Tensor) -> Tensor:
        """A branch whose results are only indices: what it hands to autograd dies with the forward pass."""
        return replace(x, requires_grad=False)

    def topk(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """`torch.topk` over the last axis: keeps the indices."""
        return self._picked("topk", x, (*x.shape[:-1], k))

    def largest(self, x: Tensor) -> Tensor:
        """The values of `x.max(-1, keepdim=True)`: keeps the indices."""
        return self._picked("max", x, (*x.shape[:-1], 1))[0]

    def _picked(self, op: str, x: Tensor, shape: tuple[Dim, ...]) -> tuple[Tensor, Tensor]:
        values = self.new(shape, x.dtype, requires_grad=x.requires_grad, op=op)
        indices = self.new(shape, "int64", op=op)
        self.record(op, [x], [values, indices], [(indices, "indices")])
        return values, indices

    def gather(self, x: Tensor, index: Tensor) -> Tensor:
        """`x.gather(-1, index)`: keeps x, for its shape, and the index."""
        out = self.new(index.shape, x.dtype, requires_grad=x.requires_grad, op="gather")
        self.record("gather", [x, index], [out], [(x, "self"), (index, "index")])
        return out

    def index_rows(self, x: Tensor, index: Tensor) -> Tensor:
        """`x[index]`, rows picked by a vector of row numbers: keeps the vector."""
        out = self.new((index.shape[0], *x.shape[1:]), x.dtype, requires_grad=x.requires_grad, op="index")
        self.record("index", [x, index], [out], [(index, "indices")])
        return out

    def mul_(self, x: Tensor, noise: Tensor) -> Tensor:
        """`x *= noise` with a factor that needs no gradient: keeps the factor."""
        out = replace(x)
        self.record("mul_", [x, noise], [out], [(noise, "other")])
        return out

    def div_(self, x: Tensor, divisor: Tensor) -> Tensor:
        """`x /= divisor`: keeps the divisor and a clone of what it overwrites."""
        grad = x.requires_grad or divisor.requires_grad
        saves = [(divisor, "other")] * grad
        if divisor.requires_grad:
            before = self.like(x, requires_grad=False, op="clone")
            self.record("clone", [x], [before])
            saves.append((before, "self"))
        out = replace(x, requires_grad=grad)
        self.record("div_", [x, divisor], [out], saves)
        return out

    def clamp_(self, x: Tensor) -> Tensor:
        """`x.clamp_(low, high)`: keeps a clone of what it overwrites."""
        out = replace(x)
        before = self.like(x, requires_grad=False, op="clone")
        if x.requires_grad:
            self.record("clone", [x], [before])
        self.record("clamp_", [x], [out], [(before, "self")])
        return out

    def sorted_by_expert(self, experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor, Tensor]:
        """A flat vector of expert numbers sorted: the numbers, where each came from, and where experts end (int32)."""
        numbers, order = (self.new(experts.shape, "int64", op="sort") for _ in range(2))
        self.record("sort", [experts], [numbers, order])
        ends = self.new((num_experts,), "int32", op="cumsum")
        self.record("cumsum", [numbers], [ends])
        return numbers, order, ends

    def indices_from(self, op: str, indices: Tensor) -> Tensor:
        """Integers made from integers, one for one: `//` or the inverse of a permutation."""
        out = self.new(indices.shape, "int64", op=op)
        self.record(op, [indices], [out])
        return out

    def grouped_mm(self, x: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        """Rows of each expert times that expert's matrix (experts, in, out): keeps as a product, and the offsets.

        2·rows·inner·columns FLOPs. Not a function that autocast knows: rows are cast to the weights' dtype.
        """
        return self._of_experts("_grouped_mm", self.to(x, weights.dtype), weights, offsets)

    def expert_mm(self, x: Tensor, weights: Tensor) -> Tensor:
        """One product an expert over its own rows, experts as slices of (experts, in, out): keeps as products do.

        Slices are no leaves, so autocast casts each anew. All experts count as used.
        """
        (x,) = self.autocast_low(x)
        (weights,) = self.autocast_low(self.unleafed(weights))
        return self._of_experts("mm", x, weights)

    def _of_experts(self, op: str, x: Tensor, weights: Tensor, *offsets: Tensor) -> Tensor:
        """Rows times their expert's matrix: keeps each operand whose other one wants a gradient, and the offsets."""
        shape = (x.shape[0], weights.shape[-1])
        grad = x.requires_grad or weights.requires_grad
        out = self.new(shape, x.dtype, requires_grad=grad, op=op)
        flops = 2 * product(shape) * x.shape[-1]
        saves = [(x, "self")] * weights.requires_grad + [(weights, "mat2")] * x.requires_grad
        self.record(
            op, [x, weights, *offsets], [out], [*saves, *((one, "offs") for one in offsets)],
            flops=flops, backward_flops=flops * (x.requires_grad + weights.requires_grad),
        )  # fmt: skip
        return out

    def frozen_product(self, x: Tensor, weight: Tensor, width: Dim, workspace: int) -> Tensor:
        """Rows times a matrix that does not train, in its dtype and answered in the rows'; scratch while it runs."""
        low = self.to(x, weight.dtype)
        out = self.new((*x.shape[:-1], width), low.dtype, requires_grad=x.requires_grad, op="mm")
        flops = 2 * product(out.shape) * x.shape[-1]
        self.record("mm", [low, weight], [out], flops=flops, backward_flops=flops, workspace_bytes=workspace)
        return self.to(out, x.dtype)

    def trained_product(self, x: Tensor, weight: Tensor, width: Dim) -> Tensor:
        """Rows, of which a part of each is written, times a matrix that trains: keeps both."""
        low, matrix = self.autocast_low(x, weight)
        out = self.new((*x.shape[:-1], width), low.dtype, requires_grad=True, op="mm")
        flops = 2 * product(out.shape) * x.shape[-1]
        saves = [(low, "self")] + [(matrix, "mat2")] * x.requires_grad
        self.record("mm", [low, matrix], [out], saves, flops=flops, backward_flops=2 * flops)
        return out

    def index_add_(self, x: Tensor, index: Tensor, like: Tensor) -> Tensor:
        """Rows summed into a tensor of zeros like another: keeps the rows, for their shape, and their numbers."""
        out = self.new(like.shape, like.dtype, requires_grad=x.requires_grad, op="zeros")
        self.record("index_add_", [x, index], [out], [(x, "source"), (index, "index")])
        return out


class Tape(Experts):
    """Records one forward pass; `saved` is the set of storages that backward needs."""
