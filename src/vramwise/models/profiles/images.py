"""ViT and CLIP as transformers 5.23 runs them: patches, class tokens, comparison of two towers, their losses."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class ImagePaths:
    """Images come one to a row of the batch, in the parameters' dtype, at the size that the config names."""

    tape: Tape
    batch: Dim
    execution: Execution
    parameters_of: Callable[[Op], list[Tensor]]

    def pixel_patches(self, op: Op) -> Tensor:
        """Pixels convolved by patches that do not overlap: (batch, patches, width), a view."""
        tape, settings = self.tape, op.settings
        weight, *bias = self.parameters_of(op)
        side = settings["image_size"]
        pixels = self.pixels(self.num_images(), settings["num_channels"], side, side)
        patches = tape.patch_conv2d(pixels, weight, bias[0] if bias else None)
        return tape.transpose(tape.reshape(patches, *patches.shape[:2], -1), 1, 2)

    def num_images(self) -> Dim:
        """Inputs of the tower: one to a row, or what the batch of texts holds."""
        images = self.execution.images
        return self.batch if images is None else self.batch * (images.per_sequence * images.tiles)

    def pixels(self, *shape: Dim) -> Tensor:
        """Pixels of the batch, cast to the parameters' dtype."""
        return self.tape.to(self.raw_pixels(*shape), self.execution.param_dtype)

    def raw_pixels(self, *shape: Dim) -> Tensor:
        """Pixels as they come with the batch."""
        images = self.execution.images
        dtype = (images.dtype if images is not None else "") or self.execution.param_dtype
        return self.tape.new(shape, dtype, kind="input", op="pixel_values")

    def class_token_first(self, op: Op, x: Tensor) -> Tensor:
        """A learned token joined before the patches."""
        (token,) = self.parameters_of(op)
        token = self.tape.view(token, 1, 1, x.shape[-1])
        return self.tape.cat([self.tape.expand(token, x.shape[0], 1, x.shape[-1]), x], 1)

    def buffered_positions(self, op: Op) -> Tensor:
        """Positions looked up by a buffer of all of them."""
        (table,) = self.parameters_of(op)
        return self.tape.embedding(self.tape.new((1, table.shape[0]), "int64", kind="buffer", op="arange"), table)

    def token_of_each_row(self, op: Op, x: Tensor) -> Tensor:
        """`x[arange(batch), indices]`: keeps both vectors of indices."""
        tape = self.tape
        out = tape.new((x.shape[0], x.shape[2]), x.dtype, requires_grad=x.requires_grad, op="index")
        indices = [tape.new((self.batch,), "int64", op=made) for made in ("arange", "argmax")]
        tape.record("index", [x, *indices], [out], [(index, "indices") for index in indices])
        return out

    def unit_length(self, op: Op, x: Tensor) -> Tensor:
        """`_get_vector_norm`: x over the root, a power, of its sum of squares."""
        tape = self.tape
        return tape.div(x, tape.unary("pow", tape.reduce("sum", tape.unary("pow", x))))

    def similarities(self, op: Op, text: Tensor, image: Tensor) -> Tensor:
        """Every text against every image of the batch, times the exponential of a learned scale."""
        tape, (scale,) = self.tape, self.parameters_of(op)
        rows, columns = tape.autocast_low(text, tape.transpose(image, 0, 1))
        return tape.mul(tape.mm("mm", rows, columns), tape.unary("exp", scale))

    # -- losses --------------------------------------------------------------------------------------------

    def classification_loss(self, logits: Tensor) -> Tensor:
        """`ForSequenceClassificationLoss` with one label to an image, in the logits' dtype."""
        with self.tape.inside("loss"):
            return self.tape.cross_entropy(logits, self._row_labels("labels"))

    def contrastive_loss(self, logits: Tensor) -> Tensor:
        """`image_text_contrastive_loss`: cross entropy over rows and over columns."""
        tape = self.tape
        with tape.inside("loss"):
            losses = [tape.cross_entropy(x, self._row_labels("arange")) for x in (logits, tape.transpose(logits, 0, 1))]
            return tape.scale(tape.add(*losses))

    def _row_labels(self, made: str) -> Tensor:
        return self.tape.new((self.batch,), "int64", op=made)
