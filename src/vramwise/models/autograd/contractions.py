"""`torch.einsum` of two operands as the batched product that it becomes."""

from __future__ import annotations

from vramwise.models.autograd.products import Products
from vramwise.models.autograd.size import product
from vramwise.models.autograd.tensor import Tensor


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
