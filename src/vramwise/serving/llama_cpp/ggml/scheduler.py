"""Which backend runs which node, and the copies that a backend makes of what lies elsewhere.

Source: ggml/src/ggml-backend.cpp at 0c1e57098 (ggml_backend_sched_split_graph). Every device is taken to support
every operation. A node with a weight runs where the weight lies; a device takes over products of 32 rows and more
whose weight lies on the host (ggml-cuda.cu get_op_batch_size); the rest runs where its neighbours run. Where the
backend changes, or a further weight of the host is needed, a split begins: its inputs from elsewhere are copied at
its start, each once. With `copies` of every input (pipeline parallelism) all copies lie apart from everything, from
the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from vramwise.serving.llama_cpp.ggml.allocator import Space, reserved
from vramwise.serving.llama_cpp.ggml.tensors import HOST, INPUT, OUTPUT, VIEWS, Graph, Tensor, reading

LEAST_ROWS = 32
DEVICE_ALIGNMENT, METAL_ALIGNMENT, HOST_ALIGNMENT = 128, 32, 32
_BY_FRESHEST = ("MUL_MAT_ID", "ROPE", "ROPE_BACK")

Prepare = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""What a backend makes of the nodes of a split before memory is dealt out (ggml_backend_graph_optimize)."""


@dataclass(slots=True)
class _Split:
    backend: int
    nodes: list[Tensor] = field(default_factory=list)
    inputs: list[tuple[Tensor, list[Tensor]]] = field(default_factory=list)


def buffer_bytes(
    graph: Graph, devices: int, copies: int = 1, copies_unread: bool = True, prepare: Prepare | None = None,
    alignment: int = DEVICE_ALIGNMENT, takes_over: Callable[[Tensor], bool] | None = None,
) -> tuple[int, ...]:  # fmt: skip
    """Bytes of the compute buffer of every device and, last, of the host (ggml_backend_sched_reserve_size).

    `copies_unread`: whether inputs that no node reads have copies too (pass 6 of the newest scheduler). `prepare`: what
    a device's backend does to its part of the graph.
    `takes_over`: what the first device computes although a weight lies on the host; by default what CUDA does.
    """
    offloads = (takes_over or takes_over_rows) if devices else None
    read = {id(source) for node in graph.nodes for source in node.sources}
    host = devices
    for leaf in graph.leaves:
        leaf.backend = _preset(leaf, host, offloads)
    for node in graph.nodes:
        node.backend = _preset(node, host, offloads)
    _spread(graph.nodes, host)
    _settle(graph.nodes)
    splits = _splits(graph.nodes, copies)
    copied = [leaf for leaf in graph.leaves if leaf.flags & INPUT and (copies_unread or id(leaf) in read)]
    leaves = list(_leaf_copies(copied, splits, copies)) if copies > 1 else []
    nodes: list[Tensor] = []
    backends: list[int] = []
    for split in splits:
        for original, made in split.inputs:
            nodes += (reading(original), made[0])
            backends += (original.backend or 0, split.backend)
        if split.backend != host:
            for node in split.nodes:
                node.bytes += node.bytes_behind
        run = split.nodes if prepare is None or split.backend == host else prepare(split.nodes)
        nodes += run
        backends += [node.backend if node.backend is not None else split.backend for node in run]
    spaces = [*(Space(alignment) for _ in range(devices)), Space(HOST_ALIGNMENT)]
    return reserved(nodes, [*leaves, *graph.leaves], backends, spaces)


def _where(tensor: Tensor, host: int) -> int | None:
    home = tensor.home if tensor.root is None else tensor.root.home
    return host if home == HOST else home


def _preset(node: Tensor, host: int, offloads: Callable[[Tensor], bool] | None) -> int | None:
    """The backend that the program, a tensor's own place or its weight decides."""
    if node.told is not None:
        return host if node.told == HOST else node.told
    own = _where(node, host)
    if own is not None:
        return own
    if node.flags & INPUT:
        return host
    if node.op in ("ROPE", "FLASH_ATTN_EXT"):
        return None
    for source in node.sources:
        if source.is_weight:
            place = _where(source, host)
            return 0 if place == host and offloads is not None and offloads(node) else place
    return None


def takes_over_rows(node: Tensor) -> bool:
    """Operations on 32 rows and more (ggml-cuda.cu ggml_backend_cuda_device_offload_op, Vulkan's)."""
    if node.op == "GET_ROWS":
        return False
    if node.op == "MUL_MAT":
        return node.ne[1] >= LEAST_ROWS
    if node.op in _BY_FRESHEST:
        return node.ne[2] >= LEAST_ROWS
    return node.ne[1] * node.ne[2] * node.ne[3] >= LEAST_ROWS


def takes_over_products(node: Tensor) -> bool:
    """Of those products alone (ggml-metal.cpp ggml_backend_metal_device_offload_op)."""
    return node.op in ("MUL_MAT", "MUL_MAT_ID") and takes_over_rows(node)


def takes_over_nothing(node: Tensor) -> bool:
    """What lies on the host is computed there."""
    return False


def _spread(nodes: Sequence[Tensor], host: int) -> None:
    """Devices take the undecided nodes behind and before theirs, then the host does."""
    real = [node for node in nodes if node.op not in VIEWS]
    for everywhere in (False, True):
        for order in (real, real[::-1]):
            current: int | None = None
            for node in order:
                if node.backend is None:
                    node.backend = current
                else:
                    current = node.backend if everywhere or node.backend != host else None


def _settle(nodes: Iterable[Tensor]) -> None:
    """Views run where their memory lies; what only a node reads, with it."""
    for node in nodes:
        if node.root is not None and node.backend is None:
            node.backend = node.root.backend
        for source in node.sources:
            if source.backend is None:
                source.backend = node.backend if source.root is None else source.root.backend
        if node.backend is None:
            node.backend = 0


def _splits(nodes: Iterable[Tensor], copies: int) -> list[_Split]:
    """The graph cut where the backend changes; nodes read copies in place of what lies elsewhere."""
    split: _Split | None = None
    found: list[_Split] = []
    copied: dict[tuple[int, int], list[Tensor]] = {}
    before: list[Tensor] = []
    for node in nodes:
        if node.op in VIEWS:
            (before if split is None else split.nodes).append(node)
            continue
        backend = node.backend or 0
        if split is None or split.backend != backend or (split.inputs and _needs_another_weight(node, backend)):
            split = _Split(backend, before)
            before = []
            found.append(split)
        for place, source in enumerate(node.sources):
            if source.backend == backend:
                continue
            made = copied.get((id(source), backend))
            if made is None:
                flags = INPUT | OUTPUT if copies > 1 else 0
                made = [_copy(source, backend, flags) for _ in range(copies)]
                copied[id(source), backend] = made
                split.inputs.append((source, made))
            node.sources[place] = made[0]
        split.nodes.append(node)
    return found


def _needs_another_weight(node: Tensor, backend: int) -> bool:
    return any(source.is_weight and source.backend != backend for source in node.sources)


def _copy(source: Tensor, backend: int, flags: int) -> Tensor:
    made = Tensor("NONE", source.ne, source.item, flags=flags)
    made.nb, made.bytes, made.backend = source.nb, source.bytes, backend
    return made


def _leaf_copies(inputs: Iterable[Tensor], splits: Iterable[_Split], copies: int) -> Iterable[Tensor]:
    """All copies of the graph's inputs, then of the splits' inputs."""
    for leaf in inputs:
        leaf.flags |= OUTPUT
        yield leaf
        for _ in range(copies - 1):
            yield _copy(leaf, leaf.backend or 0, INPUT | OUTPUT)
    for split in splits:
        for _, made in split.inputs:
            yield from made
