"""Forward of one block, operation by operation: what is alive, and what is allocated and freed in which order.

Forward frees a tensor after its last use, but what a Python frame received stays until the frame returns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Node, Storage
from vramwise.models.liveness import Event
from vramwise.models.moments import Moment
from vramwise.models.step import BlockRun
from vramwise.records import record

_INSIDE_LOOPS = frozenset({"chunks", "steps"})
"""Roles of what a loop, recorded as one operation, makes turn by turn; without autograd each goes with its turn."""


@record(frozen=False)
class ForwardWalk:
    """The walk of one block: its moments in order, and every allocation and release.

    What leaves the block (`run.outgoing`) and what stays for backward is not freed here.
    """

    moments: list[Moment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def walk_forward(
    run: BlockRun, *, kept: Collection[Storage] | None = None, external: frozenset[Storage] = frozenset(),
    again: bool = False, given_up: Collection[Storage] = (), returned: Collection[Storage] = (),
    last_uses: Mapping[Storage, int] | None = None,
) -> ForwardWalk:  # fmt: skip
    """Bytes alive at every operation of a block's forward pass, as polynomials of the sizes (`Dim`).

    `kept`: what stays for backward, by default all that it saves; nothing under no_grad.

    `external`: storages that are counted elsewhere. `again`: the second forward pass of a checkpointed block, which
    ends when the last tensor to be saved exists (torch 2.13 utils/checkpoint.py, early stop). `given_up`: what the
    block received and nobody else names any more, which goes after its last use here; `returned`: what the caller's
    frame names beside the outputs, which does not go here. `last_uses`: what `last_uses_in` says of the block, where
    that is known.
    """
    stays = {storage for storage, _ in run.saved} if kept is None else set(kept)
    leaves = set[Storage]() if again else {*(tensor.storage for tensor in run.outgoing), *returned}
    foreign = external | {tensor.storage for tensor in run.incoming}
    last = {**(last_uses_in(run) if last_uses is None else last_uses), **dict.fromkeys(returned, len(run.nodes))}
    walk = ForwardWalk()
    alive: dict[Storage, None] = {}
    dying: dict[int, list[Storage]] = {}
    saved: Dim = 0
    temporaries: Dim = 0

    def lives(storage: Storage, since: int) -> None:
        alive[storage] = None
        if storage not in stays or storage in given_up:
            dying.setdefault(last.get(storage, since), []).append(storage)

    made = {output.storage for node in run.nodes for output in node.outputs}
    made |= {storage for node in run.nodes for storage, role in node.saved if role in _INSIDE_LOOPS}
    for storage in dict.fromkeys(given_up):
        lives(storage, 0)
        if storage not in stays:
            temporaries = temporaries + storage.nbytes
    for storage, _ in run.saved:
        if storage.kind != "registered" and storage in stays and storage not in foreign and storage not in made:
            saved = saved + storage.nbytes
            walk.events.append((storage, storage.nbytes))
    for i, node in enumerate(_until_last_save(run) if again else run.nodes):
        for output in node.outputs:
            storage = output.storage
            if storage in alive or storage.kind in ("parameter", "registered") or storage in foreign:
                continue
            if storage in stays:
                saved = saved + storage.nbytes
            else:
                temporaries = temporaries + storage.nbytes
            lives(storage, i)
            walk.events.append((storage, storage.nbytes))
        for storage, role in node.saved:
            if role in _INSIDE_LOOPS and storage in stays and storage not in alive and storage not in foreign:
                saved = saved + storage.nbytes
                lives(storage, i)
                walk.events.append((storage, storage.nbytes))
        if node.workspace_bytes:
            workspace = object()
            walk.events += [(workspace, node.workspace_bytes), (workspace, None)]
        walk.moments.append(Moment(node.op, node.module, saved, 0, temporaries + node.workspace_bytes))
        for storage in dying.pop(i, ()):
            del alive[storage]
            if storage not in stays:
                temporaries = temporaries - storage.nbytes
            if storage not in leaves:
                walk.events.append((storage, None))
    going = {storage for storages in dying.values() for storage in storages}
    walk.events += [(storage, None) for storage in alive if storage in going and storage not in leaves]
    return walk


def _until_last_save(run: BlockRun) -> tuple[Node, ...]:
    """Operations up to the one that saves last; that one too when it saves what it makes."""
    end = max((i for i, node in enumerate(run.nodes) if node.saved), default=-1)
    if end < 0:
        return ()
    made = {output.storage for output in run.nodes[end].outputs}
    return run.nodes[: end + any(storage in made for storage, _ in run.nodes[end].saved)]


def last_uses_in(run: BlockRun) -> dict[Storage, int]:
    """Index of the operation after which a storage dies: its last use, or the return of a frame that received it."""
    made: dict[Storage, int] = {}
    last: dict[Storage, int] = {}
    frames = _frames(run)
    for i, node in enumerate(run.nodes):
        for output in node.outputs:
            made.setdefault(output.storage, i)
            last[output.storage] = max(i, last.get(output.storage, i))
        for tensor in node.inputs:
            born = made.get(tensor.storage, -1)
            end = max((stop for start, stop in frames[i] if born < start), default=i)
            last[tensor.storage] = max(end, last.get(tensor.storage, end))
    for tensor in run.outgoing:
        last[tensor.storage] = len(run.nodes)
    return last


def _frames(run: BlockRun) -> list[list[tuple[int, int]]]:
    """For every operation the spans of operations (first, last) of the module calls that it runs in.

    A call spans all operations of its module and of those inside it; a block calls each of its modules once.
    """
    calls: dict[str, tuple[int, int]] = {}
    for i, node in enumerate(run.nodes):
        pieces = node.module.split(".") if node.module else []
        for depth in range(len(pieces)):
            name = ".".join(pieces[: depth + 1])
            calls[name] = calls.get(name, (i, i))[0], i
    spans: list[list[tuple[int, int]]] = [[] for _ in run.nodes]
    for first, last in calls.values():
        for i in range(first, last + 1):
            spans[i].append((first, last))
    return spans
