"""A recorded forward pass with other operations in its blocks, each saved tensor counted in the first that saves it.

A stream that several blocks save (an encoder's output, which every layer of a decoder reads) is the first one's. Where
a rewrite makes that block drop it, it is the next one's; where one makes an earlier block keep it, it is that one's.

Softmax as torch ran it before 1.11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.tensor import Node, Storage
from vramwise.models.step import BlockRun, Forward
from vramwise.records import record

Nodes = tuple[Node, ...]


def rewritten(forward: Forward, nodes_of: Callable[[BlockRun], Nodes]) -> Forward:
    """The pass with `nodes_of(run)` in each block; a rewrite that changes nothing leaves what each block saves."""
    candidates: dict[int, _Candidates] = {}
    variants: dict[tuple[int, frozenset[Storage]], BlockRun] = {}
    first: dict[int, BlockRun] = {}
    seen: set[Storage] = set()
    runs: list[BlockRun] = []
    for place, run in enumerate(forward.runs):
        repeat = forward.repeat_at(place)
        if id(run) in first and repeat is None:
            runs.append(first[id(run)])
            continue
        if id(run) not in candidates:
            candidates[id(run)] = _candidates(run, nodes_of(run))
        found = candidates[id(run)]
        names = repeat.incoming if repeat is not None else {}
        others = frozenset(storage for storage in found.from_outside if names.get(storage, storage) in seen)
        key = id(run), others
        if key not in variants:
            variants[key] = found.without(others)
        new = variants[key]
        first.setdefault(id(run), new)
        own = {storage for storage, _ in new.saved}
        seen.update(names.get(storage, storage) for storage in own)
        if repeat is not None:
            seen.update(renewed for old, renewed in repeat.renewed if old in own or names.get(old) in seen)
        runs.append(new)
    return replace(forward, runs=tuple(runs))


def recounted(forward: Forward) -> Forward:
    """The pass with the same operations, where blocks of it were recorded apart from one another."""
    return rewritten(forward, lambda run: run.nodes)


@record
class _Candidates:
    """A block with its new operations and all that they save; `from_outside`: what another block may save before it."""

    run: BlockRun
    saved: tuple[tuple[Storage, str], ...]
    from_outside: frozenset[Storage]

    def without(self, others: frozenset[Storage]) -> BlockRun:
        return replace(self.run, saved=tuple(item for item in self.saved if item[0] not in others))


def _candidates(run: BlockRun, nodes: Nodes) -> _Candidates:
    made = {
        out.storage for node in nodes for out in node.outputs if all(out.storage is not t.storage for t in node.inputs)
    }
    incoming = {t.storage for t in run.incoming}
    before = {storage for storage, _ in run.saved}
    own = (made | before) - incoming
    known = {storage for node in run.nodes for storage, _ in node.saved} | incoming | own
    saved: dict[Storage, str] = {}
    for node in nodes:
        for storage, role in node.saved:
            if storage in known and storage.kind != "parameter":
                saved.setdefault(storage, f"{node.op}.{role}")
    return _Candidates(replace(run, nodes=nodes), tuple(saved.items()), frozenset(saved) - own)


def with_softmax_inputs(forward: Forward) -> Forward:
    """Softmax before torch 1.11, whose backward asks the input for its dtype and so keeps it beside the result.

    transformers 4.20 pytorch_utils.py softmax_backward_data tells both signatures apart.
    """
    return rewritten(
        forward, lambda run: tuple(_keeping_input(node) if node.op in _SOFTMAXES else node for node in run.nodes)
    )


_SOFTMAXES = frozenset({"_softmax", "_log_softmax"})


def _keeping_input(node: Node) -> Node:
    x = node.inputs[0]
    return replace(node, saved=(*node.saved, (x.storage, "self"))) if x.requires_grad else node
