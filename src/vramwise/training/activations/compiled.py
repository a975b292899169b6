"""torch.compile of decoder layers: pointwise operations between matrix products and attention become one kernel.

A fused kernel keeps what it read from outside and computes what lies inside again in backward. What a matrix product
or attention reads was written to memory and is kept as it is: the partitioner does not compute again what backward
would have to write out (torch 2.13 functorch/_config.py `ban_recompute_materialized_backward`, _functorch/
partitioners.py min_cut_rematerialization_partition).

Reductions are kept too: one statistic a row of a norm. What autocast casts for each product that reads it is cast once
(_functorch/compile_utils.py fx_graph_cse). Not counted: buffers that two kernels of a graph share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vramwise.models.autograd.tensor import Node, Storage, Tensor
from vramwise.models.step import BlockRun, Forward
from vramwise.training.activations.rewriting import rewritten


def with_compiled_layers(forward: Forward) -> Forward:
    """The forward pass with every layer's pointwise operations fused."""
    return rewritten(forward, lambda run: _compiled(run) if run.layer is not None else run.nodes)


def _compiled(run: BlockRun) -> tuple[Node, ...]:
    """Fusible operations wait until something that is not fusible, or what comes after the layer, reads them."""
    nodes = _cast_once(run)
    read_outside = {id(t) for node in nodes if not node.primitive.is_fusible for t in node.inputs}
    read_outside |= {id(t) for t in run.outgoing}
    waiting: list[Node] = []
    result: list[Node] = []
    for node in nodes:
        if node.primitive.is_fusible:
            waiting.append(node)
            continue
        needed = _behind(waiting, node.inputs)
        result += _one_kernel(needed, read_outside, [other for other in waiting if other not in needed])
        waiting = [other for other in waiting if other not in needed]
        result.append(node)
    return (*result, *_one_kernel(waiting, read_outside, []))


def _cast_once(run: BlockRun) -> tuple[Node, ...]:
    """The operations without casts of what another one cast before, whose result they read instead."""
    first: dict[tuple[int, str], Tensor] = {}
    same: dict[int, Tensor] = {}
    storages: dict[Storage, Storage] = {}
    kept: list[Node] = []
    handed_on = {id(t) for t in run.outgoing}
    for node in run.nodes:
        if node.op == "_to_copy" and id(node.outputs[0]) not in handed_on:
            (source,), (made,) = node.inputs, node.outputs
            earlier = first.setdefault((id(same.get(id(source), source)), made.dtype), made)
            if earlier is not made:
                same[id(made)], storages[made.storage] = earlier, earlier.storage
                continue
        kept.append(_reading(node, same, storages) if same else node)
    return tuple(kept)


def _reading(node: Node, same: dict[int, Tensor], storages: dict[Storage, Storage]) -> Node:
    """The operation on what stands for what it read; its views of that are views of what stands for it."""
    for output in node.outputs:
        if output.storage in storages:
            same[id(output)] = replace(output, storage=storages[output.storage])
    inputs, outputs = (tuple(same.get(id(t), t) for t in tensors) for tensors in (node.inputs, node.outputs))
    saved = tuple((storages.get(storage, storage), role) for storage, role in node.saved)
    return replace(node, inputs=inputs, outputs=outputs, saved=saved)


def _behind(waiting: list[Node], tensors: Iterable[Tensor]) -> list[Node]:
    """The waiting operations that these tensors come from, in order."""
    wanted = {id(t) for t in tensors}
    needed = []
    for node in reversed(waiting):
        if any(id(output) in wanted for output in node.outputs):
            needed.append(node)
            wanted |= {id(t) for t in node.inputs}
    return needed[::-1]


def _one_kernel(group: list[Node], read_outside: set[int], later: list[Node]) -> list[Node]:
    """Views of what exists stay views; the rest of the group is one operation."""
    made: set[Storage] = set()
    views, inside = [], []
    for node in group:
        if any(t.storage in made for t in node.inputs) or not _is_view(node):
            made.update(output.storage for output in node.outputs)
            inside.append(node)
        else:
            views.append(node)
    if not inside:
        return views
    own = {id(output) for node in inside for output in node.outputs}
    read = {id(t): t for node in inside for t in node.inputs if id(t) not in own}
    readers = read_outside | {id(t) for node in later for t in node.inputs}
    outputs = [output for node in inside for output in node.outputs if id(output) in readers]
    kept = _kept(inside) if any(output.requires_grad for output in outputs) else ()
    first = inside[0]
    kernel = Node(
        "fused_pointwise", first.module, tuple(read.values()), tuple(outputs), kept, in_norm=first.in_norm
    )  # fmt: skip
    return [*views, kernel]


def _is_view(node: Node) -> bool:
    """Whether an operation only looks at its input's memory, or at a weight alone."""
    sources = {t.storage for t in node.inputs}
    return all(output.storage in sources for output in node.outputs)


def _kept(inside: list[Node]) -> tuple[tuple[Storage, str], ...]:
    """What was kept of the outside, and the outside from which kept results are made again."""
    behind: dict[Storage, dict[Storage, None]] = {}
    for node in inside:
        sources: dict[Storage, None] = {}
        for t in node.inputs:
            sources |= behind.get(t.storage, {t.storage: None} if t.storage.kind != "parameter" else {})
        for output in node.outputs:
            behind.setdefault(output.storage, sources)
    found: dict[Storage, None] = {}
    for node in inside:
        for storage, _ in node.saved:
            found |= {storage: None} if storage.op == "rsqrt" else behind.get(storage, {storage: None})
    return tuple((storage, "input") for storage in found)
