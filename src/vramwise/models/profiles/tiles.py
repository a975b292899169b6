"""Llama 3.2 Vision and Llama 4 as transformers 5.23 runs them.

The former has tiles of an image in one row, and text that reads them by attention.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim, exact_quotient
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class TilePaths:
    """Tiles have gated embeddings of their positions; rows of patches are padded to whole eights."""

    tape: Tape
    batch: Dim
    sequence: Dim
    execution: Execution
    tables: dict[str, tuple[Tensor, ...]]
    parameters_of: Callable[[Op], list[Tensor]]
    num_images: Callable[[], Dim]
    attention_dropout: Callable[[Op], float]
    _tower_patches: Callable[..., Tensor]
    pixels: Callable[..., Tensor]
    _turned: Callable[..., Tensor]

    def tiles_embedding(self, op: Op) -> Tensor:
        """Patches and tiles' positions, a class token, gated positions, a norm, padding: (images, tokens, width)."""
        tape, tiles = self.tape, op.settings["tiles"]
        token, weight, gate, positions, by_tile, first_gate, first_table, *norm = self.parameters_of(op)
        patches = self._tower_patches(op, weight)
        count, (_, rows, width) = self.num_images() // tiles, patches.shape
        assert isinstance(rows, int)
        ids = tape.new((count, 1), "int64", kind="input", op="aspect_ratio_ids")
        self.tables["kinds of images"] = (ids,)
        x = self._at_tiles(tape.reshape(patches, count, tiles, rows, width), first_table, first_gate)
        x = tape.reshape(x, count * tiles, rows, width)
        x = tape.cat([tape.expand(token, count * tiles, 1, width), x], 1)
        x = tape.reshape(x, count, tiles, rows + 1, width)
        own = tape.mul(tape.scale(tape.unary("tanh", gate), "add_scalar"), positions)
        x = tape.add(x, tape.view(own, 1, 1, rows + 1, width))
        spread = tape.reshape(tape.embedding(ids, by_tile), count, tiles, rows + 1, width)
        x = tape.layer_norm(tape.add(x, tape.mul(tape.unary("tanh", gate), spread)), *norm)
        x = tape.pad(x, 2, -(rows + 1) % 8)
        length = tiles * x.shape[2]
        dtype = self.execution.autocast or self.execution.param_dtype
        self.tables["mask of tiles"] = (tape.new((count, 1, length, length), dtype, op="mask"),)
        self.tables["tiles"] = (x,)
        return tape.view(x, count, length, width)

    def _at_tiles(self, x: Tensor, table: Tensor, gate: Tensor) -> Tensor:
        tape, (ids,) = self.tape, self.tables["kinds of images"]
        found = tape.reshape(tape.embedding(ids, table), x.shape[0], x.shape[1], 1, x.shape[3])
        return tape.add(x, tape.mul(found, tape.unary("tanh", gate)))

    def tiles_between(self, op: Op, x: Tensor) -> Tensor:
        """A norm, and the tiles' positions once more."""
        tape, (grid,) = self.tape, self.tables["tiles"]
        weight, bias, gate, table = self.parameters_of(op)
        x = tape.reshape(tape.layer_norm(x, weight, bias), *grid.shape)
        return tape.reshape(self._at_tiles(x, table, gate), grid.shape[0], -1, grid.shape[3])

    def join_layers(self, op: Op, x: Tensor, *others: Tensor) -> Tensor:
        """The result and those of layers between side by side, without padding: copies that keep nothing."""
        tape, (grid,), images = self.tape, self.tables["tiles"], self.execution.images
        assert images is not None
        shape = (grid.shape[0] * grid.shape[1], images.patches + 1, op.outputs[0].width)
        grad = any(tensor.requires_grad for tensor in (x, *others))
        joined = tape.new(shape, x.dtype, requires_grad=grad, op="cat")
        tape.record("cat", [x, *others], [joined])
        return joined

    def tanh_gate(self, op: Op, x: Tensor) -> Tensor:
        """A product with the tanh of one trained number."""
        (gate,) = self.parameters_of(op)
        return self.tape.mul(self.tape.unary("tanh", gate), x)

    def rows_that_see(self, op: Op, x: Tensor) -> Tensor:
        """A product with ones, and zeros for tokens that see no image; all layers share them."""
        if "rows that see" not in self.tables:
            rows = self.tape.new((self.batch, 1, self.sequence, 1), self.execution.param_dtype, op="_to_copy")
            self.tables["rows that see"] = (rows,)
        (rows,) = self.tables["rows that see"]
        return self.tape.mul(self.tape.select(rows, 1), x)

    def _mask_of_rows(self, k: Tensor) -> Tensor:
        if "mask of rows" not in self.tables:
            shape = (self.batch, 1, self.sequence, k.shape[2])
            self.tables["mask of rows"] = (self.tape.new(shape, self.execution.param_dtype, op="mask"),)
        return self.tables["mask of rows"][0]

    # -- Llama 4 -------------------------------------------------------------------------------------------

    def unfolded_patches(self, op: Op) -> Tensor:
        """`nn.Unfold` of each tile, turned round for a product; a class token at the end, positions, a norm."""
        tape, side, channels = self.tape, op.settings["image_size"], op.settings["num_channels"]
        token, positions, weight, *norm = self.parameters_of(op)
        pixels = self.pixels(self.num_images(), channels, side, side)
        patches = positions.shape[0] + -1
        unfolded = tape.new((pixels.shape[0], weight.shape[1], patches), pixels.dtype, op="im2col")
        tape.record("im2col", [pixels], [unfolded])
        x = tape.linear(tape.permute(unfolded, 0, 2, 1), weight)
        x = tape.cat([x, tape.expand(token, x.shape[0], 1, x.shape[2])], 1)
        x = tape.reshape(x, x.shape[0], 1, *x.shape[1:])
        x = tape.layer_norm(tape.add(x, tape.to(positions, x.dtype)), *norm)
        return tape.squeeze(x, 1)

    def turned_as_complex(self, op: Op, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs of (tiles, patches, heads, d) times the tower's buffer of complex numbers."""
        tape, rows, half = self.tape, q.shape[1], op.inputs[0].width // 2
        if "turns of patches" not in self.tables:
            buffer = tape.new((rows, 1, half), "complex64", kind="buffer", op="buffer")
            self.tables["turns of patches"] = (buffer,)
        turns = tape.unsqueeze(self.tables["turns of patches"][0], 0)
        return self._turned(q, turns), self._turned(k, turns)

    def without_last(self, op: Op, x: Tensor) -> Tensor:
        """Without the class token at the end: a view."""
        return self.tape.narrow(x, 1, x.shape[1] - 1)

    def all_rows(self, op: Op, x: Tensor) -> Tensor:
        """Tokens of all images in one row."""
        return self.tape.view(x, -1, x.shape[-1])

    # -- attention -----------------------------------------------------------------------------------------

    def _eager_tiles(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._eager_masked(op, q, k, v, self.tables["mask of tiles"][0])

    def _sdpa_tiles(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._sdpa_masked(op, q, k, v, self.tables["mask of tiles"][0])

    def _eager_rows_of_tiles(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = self._of_rows(k), self._of_rows(v)
        return self._eager_masked(op, q, k, v, self._mask_of_rows(k))

    def _sdpa_rows_of_tiles(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = self._of_rows(k), self._of_rows(v)
        return self._sdpa_masked(op, q, k, v, self._mask_of_rows(k))

    def _of_rows(self, x: Tensor) -> Tensor:
        """Keys or values of all of a sequence's tiles: (tiles, groups, tokens, d) seen by sequence."""
        tape, (tiles, groups, tokens, d) = self.tape, x.shape
        rows = tape.view(tape.transpose(x, 1, 2), self.batch, exact_quotient(tiles * tokens, self.batch), groups, d)
        return tape.transpose(rows, 1, 2)

    def _eager_masked(self, op: Op, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        tape, times = self.tape, op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
        scores = tape.add(scores, mask) if mask is not None else scores
        weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    def _sdpa_masked(self, op: Op, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        tape, times = self.tape, op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        dropout = self.attention_dropout(op)
        mixed = tape.sdpa(q, k, v, mask=mask, dropout=dropout, backend=self.execution.sdpa_backend)
        return tape.contiguous(tape.transpose(mixed, 1, 2))
