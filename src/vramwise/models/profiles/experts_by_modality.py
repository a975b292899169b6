"""ERNIE 4.5 VL as transformers 5.23 runs it: tokens of text and of images pass experts of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class ExpertsByModality:
    """Rows picked and put back by masks as large as the stream; without images all rows are text."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    tables: dict[str, tuple[Tensor, ...]]
    parameters_of: Callable[[Op], list[Tensor]]
    pixels: Callable[..., Tensor]
    experts: Callable[..., Tensor]
    _tower_rows: Callable[[], Dim]

    def rows_of_text(self, op: Op, x: Tensor) -> Tensor:
        """`x[~mask]` seen as rows."""
        if self.execution.images is None:
            return x
        kinds = self.tape.new((self.batch, self.sequence), "bool", op="_to_copy")
        self.tables["kinds of tokens"] = (kinds,)
        mask = self.tape.new(x.shape, "bool", op="bitwise_not")
        return self._picked(x, mask, self.batch * self.sequence - self._image_rows(op))

    def rows_of_images(self, op: Op, x: Tensor) -> Tensor:
        """`x[mask]` seen as rows."""
        if self.execution.images is None:
            return x
        return self._picked(x, self.tables["kinds of tokens"][0], self._image_rows(op))

    def _image_rows(self, op: Op) -> Dim:
        images = self.execution.images
        assert images is not None
        marks: int = op.settings["marks"]
        return self.batch * (images.per_sequence * (images.tokens + marks))

    def _picked(self, x: Tensor, mask: Tensor, rows: Dim) -> Tensor:
        out = self.tape.new((rows, x.shape[-1]), x.dtype, requires_grad=x.requires_grad, op="index")
        self.tape.record("index", [x, mask], [out], [(mask, "indices")])
        return out

    def rows_together(self, op: Op, x: Tensor, text: Tensor, images: Tensor) -> Tensor:
        """Both kinds of rows put into zeros of the stream's shape."""
        if self.execution.images is None:
            return text
        tape, (kinds,) = self.tape, self.tables["kinds of tokens"]
        out = tape.like(x, requires_grad=False, op="zeros_like")
        for rows, mask in ((text, tape.new(x.shape, "bool", op="bitwise_not")), (images, kinds)):
            put = replace(out, requires_grad=out.requires_grad or rows.requires_grad)
            tape.record("index_put_", [out, mask, rows], [put], [(mask, "indices")])
            out = put
        return out

    def _route_of_images(self, op: Op, x: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        if self.execution.images is None:
            return x, x
        return getattr(self, f"_route_{op.settings['routing']}")(op, x, *weights)  # type: ignore[no-any-return]

    def _experts_of_images(self, op: Op, x: Tensor, weights: Tensor, *indices: Tensor) -> Tensor:
        if self.execution.images is None:
            return x
        settings = {**op.settings, "experts_per_token": op.settings["chosen"]}
        del settings["style"]
        return self.experts(replace(op, settings=settings), x, weights, *indices)

    # -- the tower -----------------------------------------------------------------------------------------

    def rows_of_pixels(self, op: Op) -> Tensor:
        """Flat patches of all images times a matrix."""
        (weight,) = self.parameters_of(op)
        return self.tape.linear(self.pixels(self._tower_rows(), weight.shape[1]), weight)

    def frames_twice(self, op: Op, x: Tensor) -> Tensor:
        """Rows of even and of odd frames, which are the same ones for an image, picked and joined."""
        tape, picked = self.tape, []
        for _ in range(2):
            index = tape.new((x.shape[0],), "int64", op="cat")
            out = tape.new(x.shape, x.dtype, requires_grad=x.requires_grad, op="index_select")
            tape.record("index_select", [x, index], [out], [(index, "index")])
            picked.append(out)
        return tape.cat(picked)
