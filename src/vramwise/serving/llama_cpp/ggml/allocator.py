"""What ggml's graph allocator reserves for a graph: one buffer a backend, its memory reused from node to node.

Source: ggml/src/ggml-alloc.c at 0c1e57098. Leaves come first, then the inputs that nodes name, then nodes in order: a
node takes over the memory of a source that nothing else reads (ggml_op_can_inplace, same type, shape and strides),
else the smallest hole that is large enough (of equal ones the last), else it lies behind everything. A tensor is
freed with its last reader, a view's root with the last reader of any view; outputs never. What a buffer needs is how
far it ever reached.

Not modelled: buffers of several chunks (devices with a limit for one allocation, as Vulkan's).
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.serving.llama_cpp.ggml.tensors import INPUT, OUTPUT, Tensor

IN_PLACE = frozenset({
    "FILL", "SCALE", "DIAG_MASK_ZERO", "DIAG_MASK_INF", "ADD", "ADD_ID", "ADD1", "SUB", "MUL", "DIV", "SQR", "SQRT",
    "LOG", "UNARY", "ROPE", "ROPE_BACK", "SILU_BACK", "RMS_NORM", "RMS_NORM_BACK", "CLAMP", "SOFT_MAX",
    "SOFT_MAX_BACK",
})  # fmt: skip
_ENDLESS = 1 << 62


class Space:
    """One buffer: free blocks by address, of which the last has no end (ggml_dyn_tallocr)."""

    __slots__ = ("_free", "alignment", "reached")

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self._free: list[list[int]] = [[0, _ENDLESS]]
        self.reached = 0

    def take(self, size: int) -> int:
        """The address of so many bytes."""
        size = -(-size // self.alignment) * self.alignment
        free = self._free
        best, best_size = len(free) - 1, _ENDLESS
        for index in range(len(free) - 1):
            room = free[index][1]
            if size <= room <= best_size:
                best, best_size = index, room
        block = free[best]
        address = block[0]
        block[0] += size
        block[1] -= size
        if not block[1]:
            del free[best]
        self.reached = max(self.reached, address + size)
        return address

    def give_back(self, address: int, size: int) -> None:
        """Frees bytes, joined with the free ones at either side."""
        size = -(-size // self.alignment) * self.alignment
        free, end = self._free, address + size
        if not size:
            return
        index = next(i for i, block in enumerate(free) if block[0] > address)  # the last block has no end
        before = index and free[index - 1][0] + free[index - 1][1] == address
        if free[index][0] == end:
            free[index][0] = address
            free[index][1] += size
            if before:
                free[index - 1][1] += free[index][1]
                del free[index]
        elif before:
            free[index - 1][1] += size
        else:
            free.insert(index, [address, size])


def reserved(
    nodes: Sequence[Tensor], leaves: Sequence[Tensor], backends: Sequence[int], spaces: Sequence[Space]
) -> tuple[int, ...]:
    """Bytes of each buffer; `backends` gives that of every node, a leaf states its own."""
    run = _Run(spaces)
    for leaf in leaves:
        run.place(leaf, leaf.backend or 0)
    for node, backend in zip(nodes, backends, strict=True):
        if node.root is not None and node.op != "NONE":
            node.root.views += 1
        if node.flags & INPUT:
            run.place(node, backend)
        for source in node.sources:
            source.children += 1
            if source.flags & INPUT:
                run.place(source, backend)
    for node, backend in zip(nodes, backends, strict=True):
        for source in node.sources:
            run.place(source, backend)
        run.place(node, backend)
        for source in node.sources:
            run.read(source)
    return tuple(space.reached for space in spaces)


class _Run:
    def __init__(self, spaces: Sequence[Space]) -> None:
        self.spaces = spaces

    def place(self, node: Tensor, backend: int) -> None:
        """Memory for a tensor that has none yet."""
        if node.owned or node.home is not None or node.root is not None:
            return
        node.owned = True
        if node.op in IN_PLACE and self._takes_over(node):
            return
        node.buffer = backend
        node.offset = self.spaces[backend].take(node.bytes)

    def _takes_over(self, node: Tensor) -> bool:
        """Views are never taken over: the allocator does not count them as its own."""
        for source in node.sources:
            if not source.owned or source.children != 1 or source.views or source.flags & OUTPUT:
                continue
            if source.ne != node.ne or source.nb != node.nb:
                continue
            source.owned = False
            node.buffer, node.offset = source.buffer, source.offset
            self._free_rest(source, node)
            return True
        return False

    def _free_rest(self, holder: Tensor, node: Tensor) -> None:
        space = self.spaces[holder.buffer]
        kept, whole = (-(-size // space.alignment) * space.alignment for size in (node.bytes, holder.bytes))
        space.give_back(holder.offset + kept, whole - kept)

    def read(self, source: Tensor) -> None:
        """One reader less; the last one frees it."""
        source.children -= 1
        if source.children or source.views:
            return
        holder = source
        if source.root is not None:
            holder = source.root
            holder.views -= 1
            if holder.views or holder.children:
                return
        if holder.owned and not holder.flags & OUTPUT:
            self.spaces[holder.buffer].give_back(holder.offset, holder.bytes)
            holder.owned = False
