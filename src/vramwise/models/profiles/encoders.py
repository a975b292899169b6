"""Operations of single encoder families as transformers 5.23 runs them."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op


class EncoderPaths:
    """What BERT's relatives do beside attention."""

    tape: Tape
    batch: Dim
    hidden_dtype: str

    def concatenate(self, op: Op, *pieces: Tensor) -> Tensor:
        """Joined along the last axis."""
        return self.tape.cat(pieces)

    def masks_take_dtype(self, op: Op, x: Tensor) -> Tensor:
        """The classes make their mask from this tensor: autocast may have narrowed it."""
        self.hidden_dtype = x.dtype
        return x

    def rows_of_language(self, op: Op, x: Tensor) -> Tensor:
        """X-MOD's sequences of one language: a copy, and a mask over the batch that backward keeps per language."""
        tape = self.tape
        rows = tape.like(x, requires_grad=x.requires_grad, op="index")
        masks = [tape.new((self.batch,), "bool", op="eq") for _ in range(op.settings["num_languages"])]
        tape.record("index", [x], [rows], [(mask, "indices") for mask in masks])
        return rows
