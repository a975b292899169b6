"""The order in which ggml's Metal backend runs the nodes of a split, and what its kernels need beside their results.

Sources: ggml/src/ggml-metal/ggml-metal-common.cpp ggml_graph_optimize, ggml-metal-fusion.cpp, ggml-metal-ops.cpp and
ggml-metal.cpp ggml_backend_metal_buffer_type_get_alloc_size, as llama-cpp-python 0.3.36 ships them (0c1e57098) and, for
builds before, 0.3.33. Nodes that one kernel does stay together. Before a node that has to wait for one that still runs,
those of the next 64 that wait for neither it nor anything before them are taken, up to the first operation that the
backend does not move. Builds before February 2026 move fewer operations and reserve less beside attention.

Not modelled: those, a snake activation, index lists of sparse attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from vramwise.records import record
from vramwise.serving.llama_cpp.ggml.fusions import keeping
from vramwise.serving.llama_cpp.ggml.tensors import F16, F32, I32, OUTPUT, VIEWS, Tensor
from vramwise.units import round_up

LOOKED_THROUGH, MOST_FUSED = 64, 16
MOST_SUMMED_EXPERTS, MOST_CHOSEN_FROM = 8, 1024
_EMPTY = VIEWS | {"NONE"}
_MOVED = _EMPTY | {
    "MUL_MAT", "MUL_MAT_ID", "ROPE", "NORM", "RMS_NORM", "GROUP_NORM", "L2_NORM", "SUM_ROWS", "SSM_CONV", "SSM_SCAN",
    "CLAMP", "TRI", "DIAG", "MUL", "ADD", "SUB", "DIV", "GLU", "SCALE", "UNARY", "GET_ROWS", "SET_ROWS", "SET", "CPY",
    "CONT", "REPEAT",
}  # fmt: skip


def _run(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_CHAINS = (
    *(_run(text) for text in ("NORM MUL", "NORM MUL ADD", "NORM SCALE")),
    *(_run(text) for text in ("RMS_NORM MUL", "RMS_NORM MUL ADD", "RMS_NORM SCALE")),
    *(("ADD",) * many for many in range(2, 8)), ("SSM_CONV", "UNARY"),
)  # fmt: skip
"""Each reads the one before, whose result nothing else reads."""
_CHOICE = _run("SOFT_MAX RESHAPE ARGSORT VIEW GET_ROWS")
_NORMALIZED = _run("RESHAPE SUM_ROWS CLAMP DIV RESHAPE")
_CHOICES = ((*_CHOICE, *_NORMALIZED, "SCALE"), (*_CHOICE, *_NORMALIZED), (*_CHOICE, "SCALE"), _CHOICE)
_SUMS = tuple(("MUL", *("VIEW",) * n, *("ADD",) * (n - 1)) for n in range(2, MOST_SUMMED_EXPERTS + 1))
_STATES = ("GATED_DELTA_NET", "CPY")
_RAW_RUNS = (*_CHAINS, _STATES, *reversed(_CHOICES), *_SUMS)
_OLDER = frozenset({"ADD", "MUL", "NORM", "RMS_NORM"})


@record
class MetalRules:
    """What changed from build to build.

    `has_table`: runs are those of the backend's table, and what they read is kept; `widens_cache`: attention has room
    for a layer's cache in 16 bits, which it needs for one of 4 to 8 (`narrow_cache`).
    """

    has_table: bool
    widens_cache: bool
    narrow_cache: bool


def metal_order(nodes: Sequence[Tensor], rules: MetalRules) -> list[Tensor]:
    """The nodes of a split in Metal's order, with others that read what kernels still need."""
    for node in nodes:
        node.bytes += _beside(node, rules)
    order = _reordered(_groups(nodes, has_table=rules.has_table), has_table=rules.has_table)
    return keeping(order, _kept(nodes)) if rules.has_table else order


def _kept(nodes: Sequence[Tensor]) -> Iterator[tuple[Sequence[Tensor], Tensor]]:
    """What the operations of a run read from outside it, until its last one (ggml_metal_fusion_add_alloc_deps)."""
    index = 0
    while index < len(nodes):
        found = max((run for run in _RAW_RUNS if _follows(nodes, index, run)), key=len, default=())
        if found:
            inside = nodes[index : index + len(found)]
            met: dict[int, Tensor] = {}
            seen: set[int] = set()
            for node in inside:
                met.update((id(source), source) for source in node.sources if id(source) not in seen)
                seen |= {id(node), *(id(source) for source in node.sources)}
            yield list(met.values()), inside[-1]
        index += len(found) or 1


def _follows(nodes: Sequence[Tensor], start: int, run: Sequence[str]) -> bool:
    return tuple(node.op for node in nodes[start : start + len(run)]) == tuple(run)


def _groups(nodes: Sequence[Tensor], *, has_table: bool) -> list[list[Tensor]]:
    """Nodes in runs that one kernel does, or several kernels one behind the other."""
    uses = Counter(id(source) for node in nodes for source in node.sources)
    groups, index = [], 0
    while index < len(nodes):
        size = _Packed(nodes, uses).longest(index) if has_table else _older_run(nodes, index, uses)
        groups.append(list(nodes[index : index + size]))
        index += size
    return groups


def _reads(node: Tensor, before: Tensor) -> bool:
    return any(source is before for source in node.sources[:2]) and node.ne == before.ne


def _older_run(nodes: Sequence[Tensor], start: int, uses: Counter[int]) -> int:
    """Sums and norms in a row, as long as each is read by the next alone (ggml_can_fuse)."""
    if nodes[start].op not in _OLDER - {"MUL"}:
        return 1
    size = 1
    while size < MOST_FUSED and start + size < len(nodes):
        node, before = nodes[start + size], nodes[start + size - 1]
        alone = uses[id(before)] == 1 and not before.flags & OUTPUT and before.root is None
        if node.op not in _OLDER or not alone or not _reads(node, before):
            break
        size += 1
    return size


class _Packed:
    """Runs of the backend's table (ggml_metal_fusion_max)."""

    def __init__(self, nodes: Sequence[Tensor], uses: Counter[int]) -> None:
        self.nodes, self.uses = nodes, uses

    def longest(self, start: int) -> int:
        """Nodes from one on up to the last of the runs that begin there, one behind the other, views between them."""
        if self.nodes[start].op in _EMPTY:
            return 1
        places = [i for i in range(start, len(self.nodes)) if self.nodes[i].op not in _EMPTY][:MOST_FUSED]
        taken = 0
        while taken < len(places):
            size = self._run(places, taken)
            if not size or taken + size > MOST_FUSED:
                break
            taken += size
        return min(MOST_FUSED, places[taken - 1] - start + 1) if taken else 1

    def _run(self, places: Sequence[int], first: int) -> int:
        """Operations of the longest run that begins at one of the places; 0 without one."""
        best = 0
        for run in _CHAINS:
            if len(run) > best and self._is_chain(places[first : first + len(run)], run):
                best = len(run)
        if not best and self._writes_states(places[first : first + len(_STATES)]):
            best = len(_STATES)
        for run in (*reversed(_CHOICES), *_SUMS):
            size = sum(op not in _EMPTY for op in run)
            if size > best and self._is_whole(places[first], run):
                best = size
        return best

    def _is_chain(self, places: Sequence[int], run: Sequence[str]) -> bool:
        found = [self.nodes[i] for i in places]
        if tuple(node.op for node in found) != tuple(run):
            return False
        if any(self.uses[id(node)] != 1 or node.flags & OUTPUT for node in found[:-1]):
            return False
        if not all(_reads(node, before) for before, node in pairwise(found)):
            return False
        if run[-1] in ("SCALE", "UNARY"):
            return True
        if any(node.sources[0] is not before for before, node in pairwise(found)):
            return False
        if run[0] == "ADD":
            others = [node.sources[1] for node in found]
            return all(one.ne == other.ne and one.nb == other.nb for one, other in pairwise(others))
        return all(node.sources[1].ne[0] == found[0].ne[0] for node in found[1:])

    def _writes_states(self, places: Sequence[int]) -> bool:
        """A gated delta network whose states are copied to the cache next."""
        found = [self.nodes[i] for i in places]
        return tuple(node.op for node in found) == _STATES and found[1].sources[0].root is found[0]

    def _is_whole(self, start: int, run: Sequence[str]) -> bool:
        """A run of which no node lies elsewhere and nothing but its results is read outside."""
        if not _follows(self.nodes, start, run):
            return False
        found = self.nodes[start : start + len(run)]
        chooses = run[0] == "SOFT_MAX"
        if chooses and (found[0].ne[0] > MOST_CHOSEN_FROM or len(found[0].sources) > 1):
            return False
        if not chooses and found[0].sources[0].ne[1] != sum(op == "VIEW" for op in run):
            return False
        results = {id(found[-1]), *({id(found[3])} if chooses else ())}
        inside = Counter(id(source) for node in found for source in node.sources)
        return all(
            id(node) in results or (inside[id(node)] == self.uses[id(node)] and not node.flags & OUTPUT)
            for node in found
        )


class _Running:
    """Memory that is read and written by what may run side by side (ggml_mem_ranges)."""

    def __init__(self) -> None:
        self.read: set[int] = set()
        self.written: set[int] = set()

    def add(self, read: set[int], written: set[int]) -> None:
        """One more."""
        self.read |= read
        self.written |= written

    def is_free(self, read: set[int], written: set[int]) -> bool:
        """Whether a node needs to wait for none of them."""
        return not (read & self.written or written & self.read or written & self.written)


def _reordered(groups: Sequence[list[Tensor]], *, has_table: bool) -> list[Tensor]:
    touched = [_touched(group, has_table=has_table) for group in groups]
    used = [False] * len(groups)
    order: list[int] = []
    running = _Running()
    for first, group in enumerate(groups):
        if used[first]:
            continue
        if group[0].op not in _EMPTY and not running.is_free(*touched[first]):
            waiting = _Running()
            waiting.add(*touched[first])
            for later in range(first + 1, min(first + LOOKED_THROUGH, len(groups))):
                if used[later]:
                    continue
                op = groups[later][0].op
                if op not in _MOVED:
                    break
                if (op in _EMPTY or running.is_free(*touched[later])) and waiting.is_free(*touched[later]):
                    running.add(*touched[later])
                    order.append(later)
                    used[later] = True
                else:
                    waiting.add(*touched[later])
            running = _Running()
        running.add(*touched[first])
        order.append(first)
    return [node for index in order for node in groups[index]]


def _touched(group: Sequence[Tensor], *, has_table: bool) -> tuple[set[int], set[int]]:
    """The memory that a run reads and that it writes: before September 2026 what it makes inside counted as read."""
    inside = {id(node) for node in group} if has_table else set()
    read = {id(s.root or s) for node in group for s in node.sources if id(s) not in inside}
    written = group if has_table else group[-1:]
    return read, {id(node.root or node) for node in written}


_QUERIES, _CELLS, _VECTOR_CELLS = 8, 64, 32  # ggml-metal-impl.h OP_FLASH_ATTN_EXT_*
_WORKGROUPS, _MOST_VECTORS, _VECTOR_TOKENS = 32, 32, 20
_MAXIMA = 256  # N_MM_NPART_AMAX


def _beside(node: Tensor, rules: MetalRules) -> int:
    """Bytes that a kernel needs behind its result."""
    if node.op == "FLASH_ATTN_EXT":
        return _attention(node, rules)
    if node.op == "MUL_MAT_ID":
        experts, tokens = node.sources[0].ne[2], node.sources[2].ne[1]
        return I32 * experts * (1 + tokens) + (8 + F32 * _MAXIMA if rules.has_table else 0)
    return node.bytes if node.op in ("ARGSORT", "CUMSUM") else 0


def _attention(node: Tensor, rules: MetalRules) -> int:
    """A padded last chunk, which blocks the mask leaves out, parts of results, and the cache in 16 bits."""
    q, k, v, mask = node.sources[:4]
    narrow = rules.widens_cache and rules.narrow_cache and q.ne[1] >= _WORKGROUPS
    shared = v.root is not None and v.root is k.root
    row_k, row_v = (F16 * k.ne[0], F16 * (k if shared else v).ne[0]) if narrow else (k.nb[1], v.nb[1])
    masks = mask.ne[2] * mask.ne[3]
    padded = row_k * k.ne[2] * k.ne[3] + row_v * v.ne[2] * v.ne[3] + F16 * mask.ne[1] * masks
    by_vector = q.ne[1] < _VECTOR_TOKENS and q.ne[0] % 32 == 0
    blocks = -(-q.ne[1] // (1 if by_vector else _QUERIES)) * -(-mask.ne[0] // (_VECTOR_CELLS if by_vector else _CELLS))
    parts = F32 * min(q.ne[1], _MOST_VECTORS) * q.ne[2] * q.ne[3] * _WORKGROUPS * (v.ne[0] + 2)
    size = _CELLS * padded + round_up(blocks * masks, 32) + parts
    if rules.widens_cache:
        wide = (k,) if shared else (k, v)
        size += sum(round_up(F16 * x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3], 16) for x in wide)
    return size
