"""Towers of images inside models of text, and how their tokens join the prompt, as transformers 5.23 runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class TowerPaths:
    """Embeddings, packed attention, tokens joined and put into the prompt."""

    tape: Tape
    batch: Dim
    sequence: Dim
    execution: Execution
    tables: dict[str, tuple[Tensor, ...]]
    parameters_of: Callable[[Op], list[Tensor]]
    images_see_each_other: Literal["", "windows", "all"]
    num_images: Callable[[], Dim]
    pixels: Callable[..., Tensor]

    # -- embeddings ----------------------------------------------------------------------------------------

    def clip_embedding(self, op: Op) -> Tensor:
        """Patches behind a class token, positions by a buffer, a norm."""
        tape = self.tape
        token, weight, table, *norm = self.parameters_of(op)
        patches = self._tower_patches(op, weight)
        x = tape.cat([tape.expand(token, patches.shape[0], 1, token.shape[-1]), patches], 1)
        return tape.layer_norm(tape.add(x, self._tower_positions(table)), *norm)

    def siglip_embedding(self, op: Op) -> Tensor:
        """Patches and positions by a buffer."""
        weight, bias, table = self.parameters_of(op)
        return self.tape.add(self._tower_patches(op, weight, bias), self._tower_positions(table))

    def siglip_embedding_by_image(self, op: Op) -> Tensor:
        """As `siglip_embedding`, with positions worked out for each image (Idefics 3)."""
        weight, bias, table = self.parameters_of(op)
        patches = self._tower_patches(op, weight, bias)
        ids = self.tape.new(patches.shape[:2], "int64", op="where")
        return self.tape.add(patches, self.tape.embedding(ids, table))

    def internvl_embedding(self, op: Op) -> Tensor:
        """Patches behind a class token; positions are a parameter, a mask token is not used."""
        tape = self.tape
        given = dict(zip((p.name.partition(".embeddings.")[2] for p in op.parameters), self.parameters_of(op),
                         strict=True))  # fmt: skip
        pieces = "patch_embeddings.projection.weight", "patch_embeddings.projection.bias"
        patches = self._tower_patches(op, *(given[name] for name in pieces))
        token = tape.expand(given["cls_token"], patches.shape[0], 1, patches.shape[2])
        x = tape.cat([token, patches], 1)
        return tape.add(x, given["position_embeddings"]) if "position_embeddings" in given else x

    def _tower_patches(self, op: Op, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        images, side = self.execution.images, op.settings["image_size"]
        height, width = (images.pixels if images is not None else None) or (side, side)
        pixels = self.pixels(self.num_images(), op.settings["num_channels"], height, width)
        patches = self.tape.patch_conv2d(pixels, weight, bias)
        return self.tape.transpose(self.tape.reshape(patches, *patches.shape[:2], -1), 1, 2)

    def _tower_positions(self, table: Tensor) -> Tensor:
        ids = self.tape.new((1, table.shape[0]), "int64", kind="buffer", op="arange")
        return self.tape.embedding(ids, table)

    def frames_embedding(self, op: Op) -> Tensor:
        """Patches of all images in one row, each a convolution's only result (Qwen2-VL)."""
        tape, (weight, *bias) = self.tape, self.parameters_of(op)
        patches = self._tower_rows()
        flat = self.pixels(patches, product(weight.shape[1:]))
        pixels = tape.view(flat, patches, *weight.shape[1:])
        return tape.view(tape.patch_conv3d(pixels, weight, bias[0] if bias else None), patches, weight.shape[0])

    def _tower_rows(self) -> Dim:
        images = self.execution.images
        assert images is not None
        return self.num_images() * images.patches

    def interpolated_frames_embedding(self, op: Op) -> Tensor:
        """As `frames_embedding`, plus four weighted rows of a table for each patch (Qwen3-VL)."""
        tape, (*kernel, table) = self.tape, self.parameters_of(op)
        x = self.frames_embedding(replace(op, parameters=op.parameters[: len(kernel)]))
        rows = tape.embedding(tape.new((x.shape[0], 4), "int64", op="add"), table)
        weights = tape.new((x.shape[0], 4, 1), "fp32", op="mul")
        positions = tape.reduce("sum", tape.mul(rows, weights), 1, keepdim=False)
        return tape.add(x, tape.to(positions, x.dtype))

    def windowed_frames_embedding(self, op: Op) -> Tensor:
        """As `frames_embedding`, then gathered by windows (Qwen2.5-VL)."""
        images, (merge, window) = self.execution.images, (op.settings["merge"], op.settings["window"])
        assert images is not None
        self.windows = chunks_of_grid(images.rows // merge, images.columns // merge, window, merge**2)
        x = self.frames_embedding(op)
        squares = self.tape.reshape(x, self._tower_rows() // merge**2, merge**2, x.shape[-1])
        return self.tape.reshape(self._rows_picked(squares, "window_index"), *x.shape)

    def _rows_picked(self, x: Tensor, made: str) -> Tensor:
        """`x[index]` along the first axis: keeps the index."""
        index = self.tape.new((x.shape[0],), "int64", op=made)
        out = self.tape.new(x.shape, x.dtype, requires_grad=x.requires_grad, op="index")
        self.tape.record("index", [x, index], [out], [(index, "indices")])
        return out

    # -- packed attention ----------------------------------------------------------------------------------

    windows: tuple[tuple[int, int], ...]

    def packed_attention(self, op: Op, *projected: Tensor) -> Tensor:
        """q, k and v of all patches in one row; each image or window for itself, results joined by a copy."""
        images, heads = self.execution.images, op.settings["num_heads"]
        assert images is not None
        q, k, v = self._packed_heads(projected, heads)
        turn = getattr(self, op.settings["turned"] or "turned_in_fp32")
        q, k = (turn(x) for x in (q, k))
        chunks = self.windows if op.settings["windowed"] else ((1, images.patches),)
        run = self._packed_eager if self.execution.attention == "eager" else self._packed_sdpa
        pieces = [run(q, k, v, self.num_images() * count, length) for count, length in chunks]
        rows, width = projected[0].shape[0], op.outputs[0].width
        return self.tape.view(self.tape.cat(pieces, 1), rows, width)

    def _packed_heads(self, projected: tuple[Tensor, ...], heads: int) -> tuple[Tensor, ...]:
        tape, rows = self.tape, projected[0].shape[0]
        if len(projected) == 3:
            return tuple(tape.view(x, rows, heads, -1) for x in projected)
        stacked = tape.permute(tape.view(projected[0], rows, 3, heads, -1), 1, 0, 2, 3)
        return tuple(tape.select(stacked, 0) for _ in range(3))

    def turned_in_fp32(self, x: Tensor) -> Tensor:
        """x·cos + rotate_half(x)·sin in fp32, cast back; both tables are made once, in fp32."""
        tape, width = self.tape, x.shape[-1]
        key = f"patches/{width}"
        if key not in self.tables:
            self.tables[key] = tuple(tape.new((x.shape[0], width), "fp32", op=fn) for fn in ("cos", "sin"))
        cos, sin = (tape.unsqueeze(table, 1) for table in self.tables[key])
        wide = tape.to(x, "fp32")
        first, second = tape.chunk(wide, 2)
        turned = tape.cat([tape.unary("neg", second), first])
        return tape.to(tape.add(tape.mul(wide, cos), tape.mul(turned, sin)), x.dtype)

    def _packed_eager(self, q: Tensor, k: Tensor, v: Tensor, count: Dim, length: int) -> Tensor:
        """Products over views of one image's rows, which need no copy."""
        tape, (_, heads, d) = self.tape, q.shape
        a, b, c = (tape.as_strided(x, (count * heads, length, d), (x.strides[1], x.strides[0], 1)) for x in (q, k, v))
        scores = tape.scale(tape.matmul(a, tape.transpose(b, 1, 2)))
        weights = tape.to(tape.softmax(scores, "fp32"), q.dtype)
        mixed = tape.view(tape.matmul(weights, c), count, heads, length, d)
        return tape.view(tape.contiguous(tape.transpose(mixed, 1, 2)), 1, count * length, heads, d)

    def _packed_sdpa(self, q: Tensor, k: Tensor, v: Tensor, count: Dim, length: int) -> Tensor:
        tape, (_, heads, d) = self.tape, q.shape
        q, k, v = (
            tape.as_strided(x, (count, heads, length, d), (length * x.strides[0], x.strides[1], x.strides[0], 1))
            for x in (q, k, v)
        )
        mixed = tape.sdpa(q, k, v, backend=self.execution.sdpa_backend, calls=count)
        return tape.view(tape.contiguous(tape.transpose(mixed, 1, 2)), 1, count * length, heads, d)

    # -- to the prompt -------------------------------------------------------------------------------------

    def without_first(self, op: Op, x: Tensor) -> Tensor:
        """Without the class token: a view."""
        return self.tape.narrow(x, 1, x.shape[1] - 1)

    def join_features(self, op: Op, *results: Tensor) -> Tensor:
        """Results of several layers side by side."""
        return self.tape.cat(results)

    def join_features_of_one(self, op: Op, x: Tensor) -> Tensor:
        """Mistral 3's norm has the width of one layer's result: several side by side do not run."""
        if op.settings["tokens"] != 1:
            raise UnsupportedModelError("images: results of several layers of the tower side by side are not described")
        return x

    def join_rows(self, op: Op, x: Tensor) -> Tensor:
        """Neighbours lie behind one another already."""
        return self.tape.view(x, x.shape[0] // op.settings["tokens"], op.outputs[0].width)

    def join_squares(self, op: Op, x: Tensor) -> Tensor:
        """Squares of neighbours side by side: columns joined, axes swapped by a copy, rows joined, and back."""
        tape, side = self.tape, math.isqrt(op.settings["tokens"])
        n, patches, width = x.shape
        assert isinstance(patches, int)
        rows = math.isqrt(patches)
        x = tape.view(tape.reshape(x, n, rows, rows, width), n, rows, rows // side, width * side)
        x = tape.contiguous(tape.permute(x, 0, 2, 1, 3))
        x = tape.view(x, n, rows // side, rows // side, width * side**2)
        x = tape.contiguous(tape.permute(x, 0, 2, 1, 3))
        return tape.reshape(x, n, (rows // side) ** 2, width * side**2)

    def join_grid(self, op: Op, x: Tensor) -> Tensor:
        """As `join_squares`, but for the last copy: rows and columns stay two axes, seen in their own order."""
        tape, side = self.tape, math.isqrt(op.settings["tokens"])
        n, patches, width = x.shape
        assert isinstance(patches, int)
        rows = math.isqrt(patches)
        x = tape.reshape(tape.reshape(x, n, rows, rows, width), n, rows, rows // side, width * side)
        x = tape.permute(x, 0, 2, 1, 3)
        x = tape.reshape(x, n, rows // side, rows // side, width * side**2)
        return tape.permute(x, 0, 2, 1, 3)

    def average_pool(self, op: Op, x: Tensor) -> Tensor:
        """`AvgPool2d` over a copy with patches on two axes, which it keeps; its result seen as tokens (Gemma 3)."""
        tape, rows, (n, _, width) = self.tape, op.settings["rows"], x.shape
        grid = tape.contiguous(tape.reshape(tape.transpose(x, 1, 2), n, width, rows, rows))
        side = rows // op.settings["kernel"]
        pooled = tape.new((n, width, side, side), x.dtype, requires_grad=x.requires_grad, op="avg_pool2d")
        tape.record("avg_pool2d", [grid], [pooled], [(grid, "self")])
        return tape.transpose(tape.view(pooled, n, width, side * side), 1, 2)

    def project(self, op: Op, x: Tensor) -> Tensor:
        """`torch.matmul` with a plain parameter."""
        (weight,) = self.parameters_of(op)
        x, weight = self.tape.autocast_low(x, weight)
        rows = self.tape.reshape(x, -1, x.shape[-1])
        return self.tape.view(self.tape.mm("mm", rows, weight), *x.shape[:-1], weight.shape[-1])

    def newlines(self, op: Op, x: Tensor) -> Tensor:
        """Tiles laid side by side, without padding and with a learned end of each line: copies that keep nothing."""
        tape, images, (newline,) = self.tape, self.execution.images, self.parameters_of(op)
        assert images is not None
        shape = (self.batch * (images.per_sequence * images.tokens), x.shape[-1])
        joined = tape.new(shape, x.dtype, requires_grad=x.requires_grad or newline.requires_grad, op="cat")
        tape.record("cat", [x, newline], [joined])
        return joined

    def order_restored(self, op: Op, x: Tensor) -> Tensor:
        """Tokens gathered back from the order of windows."""
        return self._rows_picked(x, "argsort")

    def image_tokens(self, op: Op, x: Tensor, image: Tensor) -> Tensor:
        """`masked_scatter`: keeps a mask of one byte a token."""
        tape = self.tape
        self.images_see_each_other = op.settings["see_each_other"]
        image = tape.to(tape.cat([image], 0) if op.settings["listed"] else image, x.dtype)
        mask = tape.new((self.batch, self.sequence, 1), "bool", op="eq")
        self.tables["tokens of images"] = (mask,)
        out = tape.like(x, requires_grad=x.requires_grad or image.requires_grad, op="masked_scatter")
        tape.record("masked_scatter", [x, image], [out], [(mask, "mask")])
        return out

    def add_to_image_tokens(self, op: Op, x: Tensor, image: Tensor) -> Tensor:
        """`x[mask] = x[mask] + image` on a copy of x: keeps the mask, which the scatter kept already."""
        tape, (mask,) = self.tape, self.tables["tokens of images"]
        image = tape.to(tape.cat([image], 0), x.dtype)
        out = tape.clone_contiguous(x)
        picked = tape.new(image.shape, x.dtype, requires_grad=x.requires_grad, op="index")
        tape.record("index", [out, mask], [picked], [(mask, "indices")])
        added = tape.add(picked, image)
        result = replace(out, requires_grad=added.requires_grad)
        tape.record("index_put_", [out, mask, added], [result], [(mask, "indices")])
        return result

    def layer_scale(self, op: Op, x: Tensor) -> Tensor:
        """A learned factor for each column; of a single one its tanh."""
        (factor,) = self.parameters_of(op)
        return self.tape.mul(self.tape.unary("tanh", factor) if factor.shape == (1,) else factor, x)


def chunks_of_grid(rows: int, columns: int, side: int, unit: int) -> tuple[tuple[int, int], ...]:
    """Windows of at most `side` × `side` tokens of `unit` patches on a grid: how many there are of each length."""
    counts: dict[int, int] = {}
    for high in _cuts(rows, side):
        for wide in _cuts(columns, side):
            counts[high * wide * unit] = counts.get(high * wide * unit, 0) + 1
    return tuple((count, length) for length, count in counts.items())


def _cuts(length: int, side: int) -> list[int]:
    return [side] * (length // side) + ([length % side] if length % side else [])
