"""Tensors and graphs as ggml has them: shapes, strides, views, and the order in which nodes enter a graph.

Source: ggml/src/ggml.c at 0c1e57098 (ggml_new_tensor_impl, ggml_view_*, ggml_build_forward_expand); what is not here:
values, gradients, names. A tensor of a weight or a cache lies in a buffer of its own (`home`), the rest the allocator
places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vramwise.errors import UndescribedOperationError

F32, F16, I32, I64 = 4, 2, 4, 8
INPUT, OUTPUT = 1, 2
RESIDUAL, SUM, GATE, MIXED = "residual", "sum", "gate", "mixed"  # marks
BY_SEQUENCE, OF_LAYER = "by sequence", "of layer"
HOST = -1  # the last backend, which runs what no device takes
VIEWS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})  # ggml_is_view_op

Shape = tuple[int, ...]


class Tensor:
    """A node or a leaf: `ne` elements and `nb` bytes between them along each axis, the fastest first."""

    __slots__ = (
        "backend",
        "buffer",
        "bytes",
        "bytes_behind",
        "children",
        "flags",
        "home",
        "is_weight",
        "mark",
        "nb",
        "ne",
        "offset",
        "op",
        "owned",
        "root",
        "sources",
        "told",
        "views",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        ne: Shape,
        item: int = F32,
        sources: Sequence[Tensor] = (),
        root: Tensor | None = None,
        nb: Shape | None = None,
        flags: int = 0,
    ) -> None:
        self.op, self.ne, self.flags = op, ne, flags
        self.sources = list(sources)
        self.root: Tensor | None = root if root is None or root.root is None else root.root
        """The tensor whose memory a view shows."""
        self.nb = contiguous(ne, item) if nb is None else nb
        self.bytes = ne[0] * ne[1] * ne[2] * ne[3] * item if nb is None else _span(ne, nb)
        self.home: int | None = None
        self.is_weight = False
        self.backend: int | None = None
        self.told: int | None = None
        """Where the program itself says that it runs."""
        self.bytes_behind = 0
        """What a device's kernel needs behind the result."""
        self.children = self.views = 0
        self.owned = False
        self.mark = ""
        """What it is to the lowerings: a residual, an activated gate, what attention gave, sequences apart, a
        layer's part of the embeddings for each."""
        self.buffer = self.offset = 0

    @property
    def item(self) -> int:
        return self.nb[0]


def contiguous(ne: Shape, item: int) -> Shape:
    """Strides of a tensor without gaps."""
    row = item * ne[0]
    plane = row * ne[1]
    return (item, row, plane, plane * ne[2])


def _span(ne: Shape, nb: Shape) -> int:
    """ggml_nbytes of a tensor with gaps."""
    return nb[0] + sum((size - 1) * stride for size, stride in zip(ne, nb, strict=True))


def shape(*sizes: int) -> Shape:
    """Four axes."""
    return (*sizes, *(1,) * (4 - len(sizes)))


def leaf(ne: Shape, item: int, flags: int = INPUT) -> Tensor:
    """An input that the process writes before each run."""
    return Tensor("NONE", ne, item, flags=flags)


def stored(ne: Shape, item: int, home: int, *, weight: bool, size: int | None = None) -> Tensor:
    """A weight, or a layer's part of the cache, in a buffer of its own."""
    made = Tensor("NONE", ne, item)
    made.home, made.is_weight = home, weight
    if size is not None:
        made.bytes = size
    return made


def reading(*sources: Tensor) -> Tensor:
    """A node that does nothing but read, so that what it reads is there until then."""
    return Tensor("NONE", sources[0].ne, sources=sources, root=sources[0])


class Graph:
    """Nodes in the order in which they are computed, and leaves in that in which they were met.

    `late`: only what is written to a cache, and the end, say when nodes come, as in ollama's own engine.
    """

    def __init__(self, late: bool = False) -> None:
        self.nodes: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self._met: set[int] = set()
        self._late = late

    def expand(self, tensor: Tensor, now: bool = False) -> None:
        """A tensor behind everything that it reads (ggml_build_forward_expand); in a late graph only `now`."""
        if self._late and not now:
            return
        met = self._met
        stack = [(tensor, 0)]
        if id(tensor) in met:
            return
        met.add(id(tensor))
        while stack:
            one, place = stack.pop()
            sources = one.sources
            while place < len(sources) and id(sources[place]) in met:
                place += 1
            if place < len(sources):
                stack.append((one, place + 1))
                met.add(id(sources[place]))
                stack.append((sources[place], 0))
            else:
                (self.leaves if one.op == "NONE" else self.nodes).append(one)


def view(source: Tensor, ne: Shape, nb: Shape) -> Tensor:
    """ggml_view_*: other axes over the same memory."""
    return Tensor("VIEW", ne, sources=(source,), root=source, nb=nb)


def reshape(source: Tensor, *sizes: int) -> Tensor:
    """ggml_reshape_*: as many elements in other axes. Raises UndescribedOperationError."""
    ne = shape(*sizes)
    if prod(ne) != prod(source.ne):
        raise UndescribedOperationError(f"{source.ne} is no {ne}")
    return Tensor("RESHAPE", ne, source.item, (source,), source)


def permute(source: Tensor, *order: int) -> Tensor:
    """ggml_permute: axis i becomes axis `order[i]`."""
    ne, nb = [0] * 4, [0] * 4
    for axis, place in enumerate(order):
        ne[place], nb[place] = source.ne[axis], source.nb[axis]
    made = Tensor("PERMUTE", tuple(ne), sources=(source,), root=source, nb=tuple(nb))
    made.bytes = source.bytes
    return made


def matmul(weight: Tensor, x: Tensor) -> Tensor:
    """ggml_mul_mat: rows of the weight by rows of x."""
    return Tensor("MUL_MAT", (weight.ne[1], x.ne[1], x.ne[2], x.ne[3]), sources=(weight, x))


def matmul_by_expert(weight: Tensor, x: Tensor, chosen: Tensor) -> Tensor:
    """ggml_mul_mat_id: each token by the matrices of its experts."""
    return Tensor("MUL_MAT_ID", (weight.ne[1], chosen.ne[0], x.ne[2], 1), sources=(weight, x, chosen))


def like(op: str, *sources: Tensor) -> Tensor:
    """An operation whose result has the shape of its first source."""
    return Tensor(op, sources[0].ne, sources=sources)


def get_rows(table: Tensor, rows: Tensor) -> Tensor:
    """ggml_get_rows."""
    return Tensor("GET_ROWS", (table.ne[0], rows.ne[0], rows.ne[1], rows.ne[2]), sources=(table, rows))


def set_rows(target: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """ggml_set_rows: a view of what it writes to."""
    made = Tensor("SET_ROWS", target.ne, sources=(rows, places, target), root=target, nb=target.nb)
    return made
