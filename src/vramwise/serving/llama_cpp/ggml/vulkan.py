"""The order in which ggml's Vulkan backend runs the nodes of a split, and what it keeps for its kernels.

Source: ggml/src/ggml-vulkan/ggml-vulkan.cpp ggml_vk_graph_optimize as llama-cpp-python 0.3.36 ships it (0c1e57098).
From each node that has not run yet the next 20 are looked through, and those that wait for nothing that has not run go
with it, so that they run side by side; views follow. Products are begun earlier thus, and their results lie in memory
for longer (the z of a gated delta network beside its convolution), or shorter. Runs of nodes that one kernel does stay
together. Builds before August 2026 hold fewer runs together: buffers of three of their logs are −1.5 to +2.3 % off.

Not modelled: runs of other models' (snake activations, QSA, DeepSeek V4's hyper-connections), and buffers of several
chunks where a device has a limit for one allocation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from vramwise.serving.llama_cpp.ggml.fusions import keeping
from vramwise.serving.llama_cpp.ggml.tensors import VIEWS, Tensor

LOOKED_THROUGH, LOOKED_FOR = 20, 15
_EMPTY = VIEWS | {"NONE"}


def _runs(*texts: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(text.split()) for text in texts)


_CHOICES = _runs(
    "SOFT_MAX RESHAPE ARGSORT VIEW GET_ROWS RESHAPE SUM_ROWS CLAMP DIV RESHAPE",
    "UNARY RESHAPE ADD ARGSORT VIEW GET_ROWS RESHAPE SUM_ROWS CLAMP DIV RESHAPE",
    "UNARY SQRT RESHAPE ADD ARGSORT VIEW GET_ROWS RESHAPE SUM_ROWS CLAMP DIV RESHAPE",
    "SOFT_MAX RESHAPE ARGSORT VIEW GET_ROWS",
    "ARGSORT VIEW GET_ROWS RESHAPE SOFT_MAX RESHAPE",
)
"""What routers do, each one kernel, whose sources stay until it is done."""
_OTHER_RUNS = _runs(
    "RMS_NORM MUL ADD MUL", "RMS_NORM MUL ADD", "RMS_NORM MUL ROPE VIEW SET_ROWS", "RMS_NORM VIEW SET_ROWS",
    "ROPE VIEW SET_ROWS",
)  # fmt: skip
_FUSED = frozenset({
    ("MUL_MAT", "ADD"), ("MUL_MAT_ID", "ADD_ID"), ("MUL_MAT_ID", "MUL"), ("ADD", "ADD"), ("SSM_CONV", "ADD"),
    ("SSM_CONV", "UNARY"),
})  # fmt: skip
"""Neighbours of which the second may go with the first although it reads it."""
_FUSED_OVER_VIEWS = frozenset({("RMS_NORM", "MUL"), ("UNARY", "MUL")})
"""The same where nothing but views, and what has run, lies between them."""


def vulkan_order(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The nodes of a split in the order in which Vulkan runs them, with others that read what a kernel still needs."""
    order = _Order(nodes)
    return keeping([nodes[index] for index in order.indices()], order.kept)


class _Order:
    def __init__(self, nodes: Sequence[Tensor]) -> None:
        self.nodes = nodes
        self.used = [False] * len(nodes)
        self.ran: set[int] = set()
        self.first = 0
        self.readers = Counter(id(source) for node in nodes for source in node.sources)
        self.kept: list[tuple[Sequence[Tensor], Tensor]] = []

    def indices(self) -> Iterator[int]:
        while self.first < len(self.nodes):
            together = self._run() or self._side_by_side()
            for index in together:
                self.used[index] = True
                self.ran.add(id(self.nodes[index]))
            yield from together
            while self.first < len(self.nodes) and self.used[self.first]:
                self.first += 1

    def _at(self, start: int, runs: Sequence[tuple[str, ...]]) -> range:
        """The nodes of a run that begins here and of which none has run; none otherwise."""
        for run in runs:
            found = range(start, min(start + len(run), len(self.nodes)))
            if tuple(self.nodes[i].op for i in found) == run and not any(self.used[i] for i in found):
                return found
        return range(0)

    def _run(self) -> range:
        """A run that the first node begins."""
        found = self._at(self.first, _CHOICES)
        if not found:
            return self._at(self.first, _OTHER_RUNS)
        end = found[-1]
        if end + 1 < len(self.nodes) and self.nodes[end + 1].op == "SCALE":
            end += 1
        met: dict[int, Tensor] = {}
        inside = {id(self.nodes[i]) for i in found}
        for source in (source for i in found for source in self.nodes[i].sources):
            if id(source) not in inside:
                met.setdefault(id(source), source)
        self.kept.append((list(met.values()), self.nodes[end]))
        return found

    def _side_by_side(self) -> list[int]:
        """The first node, those of the next that can run beside it, and the views of what has run then."""
        found = [self.first]
        near = range(self.first + 1, min(self.first + LOOKED_THROUGH, len(self.nodes)))
        for index in near:
            if self.used[index] or self.nodes[index].op in _EMPTY or self._at(index, _CHOICES + _OTHER_RUNS):
                continue
            if all(self._may_pass(index, earlier, found[-1]) for earlier in range(self.first, index)):
                found.append(index)
                self._pull(index, found)
        if self.nodes[found[-1]].op == "ADD":
            return found
        for index in near:
            if self.used[index] or self.nodes[index].op not in _EMPTY:
                continue
            before = (i for i in range(self.first, index) if not self.used[i] and i not in found)
            if not any(self._waits_for(index, i) for i in before):
                found.append(index)
        return found

    def _may_pass(self, index: int, earlier: int, last: int) -> bool:
        """Whether a node may run before an earlier one, or with it in one kernel."""
        if self.used[earlier] or not self._waits_for(index, earlier):
            return True
        if earlier != last:
            return False
        pair = (self.nodes[earlier].op, self.nodes[index].op)
        if pair in _FUSED_OVER_VIEWS:
            return all(self.used[i] or self.nodes[i].op in _EMPTY for i in range(earlier + 1, index))
        return index == earlier + 1 and pair in _FUSED

    def _waits_for(self, index: int, earlier: int) -> bool:
        """Whether a node reads another, or reads or writes memory that the other writes or reads."""
        node, other = self.nodes[index], self.nodes[earlier]
        if any(source is other for source in node.sources):
            return True
        ours, theirs = node.root or node, other.root or other
        if ours is theirs:
            return True
        if node.op in _EMPTY or other.op in _EMPTY:
            return False
        return any((s.root or s) is theirs for s in node.sources) or any((s.root or s) is ours for s in other.sources)

    def _pull(self, index: int, found: list[int]) -> None:
        """What one kernel does with a node goes with it, though others lie between."""
        op, before = self.nodes[index].op, self.nodes[index - 1].op
        turned = index
        if (before, op) == ("RMS_NORM", "MUL"):
            rope = self._next("ROPE", index, found, lambda node: all(s.op == "NONE" for s in node.sources[1:]))
            turned = rope or index
        if self.nodes[turned].op in ("ROPE", "RMS_NORM"):
            self._pull_cached(turned, found)
        if (before, op) in (("MUL_MAT_ID", "ADD_ID"), ("MUL_MAT", "ADD")):
            kind = "MUL" if op == "ADD_ID" else "ADD"
            self._next(kind, index, found, lambda node: self._is_ready(node.sources[1]))
        elif (before, op) == ("SSM_CONV", "ADD"):
            self._next("UNARY", index, found, lambda _: True)
        elif op == "UNARY":
            self._pull_product(index, found)

    def _is_ready(self, tensor: Tensor) -> bool:
        return tensor.op == "NONE" or id(tensor) in self.ran

    def _next(self, op: str, index: int, found: list[int], holds: Callable[[Tensor], bool]) -> int | None:
        """Takes the first near operation of a kind on a node's result along."""
        for later in range(index + 1, min(index + LOOKED_FOR, len(self.nodes))):
            node = self.nodes[later]
            if node.op == op and node.sources[0] is self.nodes[index] and holds(node):
                found.append(later)
                self.used[later] = True
                return later
        return None

    def _pull_product(self, index: int, found: list[int]) -> None:
        """A product with an activation."""
        activated = self.nodes[index]
        for later in range(index + 1, min(index + LOOKED_FOR, len(self.nodes))):
            node = self.nodes[later]
            if node.op != "MUL" or all(source is not activated for source in node.sources[:2]):
                continue
            other = node.sources[1] if node.sources[0] is activated else node.sources[0]
            if self._is_ready(other) and _has_whole_rows(other) and _has_whole_rows(activated.sources[0]):
                found.append(later)
                self.used[later] = True
                return

    def _pull_cached(self, turned: int, found: list[int]) -> None:
        """The view of turned keys and their way into the cache, unless what lies between stands in the way."""
        near = (i for i in range(turned + 1, min(turned + LOOKED_FOR, len(self.nodes))) if not self.used[i])
        shown: int | None = None
        for later in near:
            node = self.nodes[later]
            if shown is None and node.op == "VIEW" and node.sources[0] is self.nodes[turned]:
                shown = later
            elif shown is not None and node.op == "SET_ROWS" and node.sources[0] is self.nodes[shown]:
                alone = all(self.readers[id(self.nodes[i])] == 1 for i in (turned, shown))
                between = (i for i in range(turned + 1, later) if not self.used[i] and self.nodes[i].op not in _EMPTY)
                if alone and not any(self._waits_for(later, i) for i in between):
                    found += (shown, later)
                    self.used[shown] = self.used[later] = True
                return


def _has_whole_rows(tensor: Tensor) -> bool:
    """ggml_is_contiguous_1: rows that follow each other, with gaps between them or not."""
    ne, nb = tensor.ne, tensor.nb
    return (ne[2] == 1 or nb[2] == nb[1] * ne[1]) and (ne[3] == 1 or nb[3] == nb[1] * ne[1] * ne[2])
