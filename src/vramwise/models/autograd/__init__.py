"""What autograd keeps: symbolic tensors on a tape, one save rule for each primitive operation.

A `Tape` runs a model's operations on tensors that have a shape, strides, a dtype, a storage and `requires_grad`,
but no data. Sizes are polynomials in the axes `batch`, `sequence`, ..., so a tape that was recorded once answers
for every batch and sequence length, one at a time or as NumPy arrays.
"""

from vramwise.models.autograd.size import Axes, Dim, Size, axis, evaluate, terms_of, with_rounded_axes
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Node, Storage, Tensor

__all__ = [
    "Axes",
    "Dim",
    "Node",
    "Size",
    "Storage",
    "Tape",
    "Tensor",
    "axis",
    "evaluate",
    "terms_of",
    "with_rounded_axes",
]
