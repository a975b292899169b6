"""What is alive while a block runs backward: the walk of its tape (forward: `vramwise.models.forward_walk`).

It follows torch's engine (2.13): nodes in the reverse order of their making; what a node saved and the gradient
that it received are freed when it is done; a second gradient for a tensor is added into the first when nothing else
refers to that one and it is no view, else their sum is a third tensor (`torch/csrc/autograd/input_buffer.cpp`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from vramwise.models.autograd.gradients import InputGradient, divided_up, input_gradients
from vramwise.models.autograd.size import Dim, probe, total
from vramwise.models.autograd.tensor import Node, Storage, Tensor
from vramwise.models.moments import Moment, undominated
from vramwise.models.step import BlockRun
from vramwise.records import record

Event = tuple[object, Dim | None]
"""What is allocated, with its bytes, or freed (None)."""


@record(eq=False, frozen=False)
class _Bytes:
    """The storage of a gradient, and how many gradients refer to it.

    `written_over`: the saved storage in whose place it is; `stays`: it becomes a parameter's `.grad`; `comes_later`:
    it is made of another one, which the operation gives back.
    """

    nbytes: Dim
    holders: int = 1
    written_over: Storage | None = None
    stays: bool = False
    comes_later: bool = False


@record
class _Gradient:
    held: _Bytes
    is_view: bool


@record(frozen=False)
class BackwardWalk:
    """The walk of one block.

    `moments` in order; `leaving`: bytes of gradients handed to the block before; `at_first_use`: gradients alive when
    the first saved tensor is asked for, which is when a checkpointed block computes its forward pass again;
    `waiting_views`: waiting parameters whose gradient so far is a view, so that nothing is added into it.

    `events`: every allocation and release, by what it is of; `before_first_use`: how many of them come before a saved
    tensor is asked for; `arriving` and `handed`: which of them are gradients of outgoing and incoming tensors,
    `finished`: which become a parameter's gradient, `parts`: the sum of a waiting parameter's gradient where it does
    not become that. None of these is freed here; `added`: waiting parameters whose sum goes.
    """

    moments: list[Moment] = field(default_factory=list)
    weight_gradients: Dim = 0
    leaving: Dim = 0
    at_first_use: Dim = 0
    waiting_views: set[Storage] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    before_first_use: int = 0
    arriving: list[tuple[Tensor, object]] = field(default_factory=list)
    handed: list[tuple[Tensor, object]] = field(default_factory=list)
    finished: list[object] = field(default_factory=list)
    parts: list[tuple[Storage, object]] = field(default_factory=list)
    added: list[Storage] = field(default_factory=list)

    def of(self, chosen: Callable[[Moment], bool] = lambda moment: True) -> tuple[Moment, ...]:
        """The undominated moments among the chosen ones."""
        return undominated(moment for moment in self.moments if chosen(moment))


def walk_backward(
    run: BlockRun, *, accumulating: bool = False, waiting: frozenset[Storage] = frozenset(),
    begun: frozenset[Storage] = frozenset(), ending: frozenset[Storage] = frozenset(),
    pending: frozenset[Storage] = frozenset(), external: frozenset[Storage] = frozenset(), recomputed: bool = False,
    fused: bool = False, left: frozenset[Storage] = frozenset(), begun_streams: frozenset[str] = frozenset(),
    inputs: Sequence[str] = (),
) -> BackwardWalk:  # fmt: skip
    """Backward of one block.

    `accumulating`: gradients exist already, so that a new one is freed after it was added. `waiting`: parameters
    that another block uses too, whose gradient waits for the other parts; `begun`: those of them for which a part is
    there, into which this one is added; `ending`: those for which this is the last part; `pending`: those for which
    a part that nothing can be added into is there, so that their sum is a third tensor. `external`: saved storages that
    are counted elsewhere (a checkpoint's input). `recomputed`: saved tensors were made again for backward, and go
    as soon as their operation has read them, but for what is `left`, which somebody else holds. `fused`: products add
    their weight's gradient to the one that exists. `begun_streams`: those of its `inputs` whose gradient has a part
    from blocks above, which waits and into which this block's is added.
    """
    shared = _SharedWeights(waiting, begun, ending, pending)
    walker = _BackwardWalker(run, accumulating, shared, external, recomputed, fused, left)
    for name, tensor in zip(inputs, run.incoming, strict=False):
        if name in begun_streams and tensor.requires_grad:
            walker.wait_for(tensor)
    return walker.walk()


@record
class _SharedWeights:
    """Parameters that several blocks use, by how far their gradient is."""

    waiting: frozenset[Storage]
    begun: frozenset[Storage]
    ending: frozenset[Storage]
    pending: frozenset[Storage]


class _BackwardWalker:
    def __init__(
        self, run: BlockRun, accumulating: bool, weights: _SharedWeights, external: frozenset[Storage],
        recomputed: bool, fused: bool, left: frozenset[Storage],
    ) -> None:  # fmt: skip
        self.run = run
        self.fused = fused
        self.shared = weights
        self.recomputed = recomputed
        self.accumulating = accumulating
        self.result = BackwardWalk(waiting_views=set(weights.pending))
        self.asked = False
        self.made_here = {id(output) for node in run.nodes for output in node.outputs}
        own = {storage for storage, _ in run.saved if storage.kind != "registered"} - external
        self.savers: dict[Storage, int] = dict.fromkeys(own, 0)
        for node in run.nodes:
            for storage, _ in node.saved:
                if storage in self.savers:
                    self.savers[storage] += 1
        for storage in left & own:
            self.savers[storage] += 1
        self.saved: Dim = 0
        for storage in own:
            self.saved = self.saved + storage.nbytes
        self.temporaries: Dim = 0
        self.finished: Dim = 0
        self.gradients: dict[int, _Gradient] = {}
        self.pieces: dict[tuple[int, str], _Bytes] = {}
        self.of_leaves: list[_Bytes] = []
        self.written_over: set[Storage] = set()
        self.begun_here: dict[Storage, bool] = {}

    def wait_for(self, tensor: Tensor) -> None:
        """A gradient that blocks above made of what they and this one read."""
        self.temporaries = self.temporaries + tensor.nbytes
        self.gradients[id(tensor)] = _Gradient(_Bytes(tensor.nbytes), False)

    def walk(self) -> BackwardWalk:
        """The nodes from the last to the first, as autograd's engine runs them; bytes at every one."""
        for tensor in self._ends():
            held = self._new(tensor.nbytes)
            self.result.arriving.append((tensor, held))
            self._deliver(tensor, held, is_view=False)
        self._note("start", "")
        for node in reversed(self.run.nodes):
            received = [output for output in node.outputs if id(output) in self.gradients]
            if received:
                self._run(node, received[0])
            else:
                self._release(node)
        for held in self.of_leaves:
            self._drop(held)
        self.result.weight_gradients = self.finished
        self.result.leaving = self.temporaries
        incoming = {id(tensor): tensor for tensor in self.run.incoming}
        for name, gradient in self.gradients.items():
            if name in incoming:
                self.result.handed.append((incoming[name], gradient.held))
            else:
                self._drop(gradient.held)
        return self.result

    def _ends(self) -> list[Tensor]:
        """Tensors whose gradient arrives from outside: the outgoing streams, or the loss."""
        if self.run.outgoing:
            return [tensor for tensor in self.run.outgoing if tensor.requires_grad and id(tensor) in self.made_here]
        ends = ([output for output in node.outputs if output.requires_grad] for node in reversed(self.run.nodes))
        return next((found for found in ends if found), [])

    def _run(self, node: Node, output: Tensor) -> None:
        # A checkpoint packs whatever is saved, weights too (torch 2.13 csrc/autograd/saved_variable.cpp).
        if not self.asked and (node.saves_parameters or any(s in self.savers for s, _ in node.saved)):
            self.asked = True
            self.result.at_first_use = self.temporaries
            self.result.before_first_use = len(self.result.events)
        arrived = self.gradients.pop(id(output))
        if node.op == "requires_grad_":  # becomes the leaf's `.grad`, which the graph holds with the leaf
            arrived.held.holders += 1
            self.of_leaves.append(arrived.held)
        made = [(each, *self._made(node, each, arrived)) for each in input_gradients(node, output)]
        most = max((each for each, _, _ in made), key=lambda each: probe(each.scratch), default=None)
        scratch, pieces = (most.scratch, most.pieces) if most is not None else (0, 1)
        larger = total(each.raw - each.nbytes for each, _, _ in made if each.raw)
        larger = larger - total(each.nbytes for each, _, _ in made if each.passing == "in_place")
        own = node.backward_workspace_bytes
        workspace = node.workspace_bytes if own is None else own
        self._note(f"{node.op} backward", node.module, scratch + larger + workspace)
        wide = [(object(), each, held) for each, held, _ in made if each.raw and held.comes_later]
        self.result.events += [(raw, each.raw) for raw, each, _ in wide]
        self._briefly(*[divided_up(scratch, pieces)] * pieces, *(node.backward_pieces or (workspace,)))
        if self.recomputed:
            self._release(node)
        for raw, each, held in wide:  # one after the other goes into its own shape and dtype
            self._note(f"{node.op} backward, sum", node.module, larger + each.nbytes)
            larger = larger - (each.raw - each.nbytes)
            self.result.events += [(held, each.nbytes), (raw, None)]
        self._drop(arrived.held)
        if not self.recomputed:
            self._release(node)
        for each, held, is_view in made:
            self._deliver(each.tensor, held, is_view=is_view, node=node)

    def _made(self, node: Node, each: InputGradient, arrived: _Gradient) -> tuple[_Bytes, bool]:
        if each.passing == "piece":
            return self._piece(each.tensor), False
        if each.passing in ("new", "in_place"):
            if self.fused and each.tensor.is_parameter and node.primitive.multiplies_by_weights:
                return self._new(0), False
            return self._new(each.nbytes, self._room_of(node, each), comes_later=bool(each.raw)), False
        arrived.held.holders += 1
        return arrived.held, arrived.is_view or each.passing == "view"

    def _room_of(self, node: Node, each: InputGradient) -> Storage | None:
        """What a gradient in place is written over."""
        if each.passing != "in_place":
            return None
        free = (storage for storage, _ in node.saved if storage in self.savers and storage not in self.written_over)
        return next((storage for storage in free if probe(storage.nbytes) == probe(each.nbytes)), None)

    def _piece(self, tensor: Tensor) -> _Bytes:
        """Gradients of the pieces of one split are joined in one tensor."""
        held = self.pieces.get((id(tensor), self.run.name))
        if held is None or held.holders == 0:
            self.pieces[id(tensor), self.run.name] = held = self._new(tensor.nbytes)
        else:
            held.holders += 1
        return held

    def _deliver(self, tensor: Tensor, held: _Bytes, *, is_view: bool, node: Node | None = None) -> None:
        if tensor.is_parameter and id(tensor) not in self.made_here:
            self._finish(tensor, held, is_view)
            return
        before = self.gradients.get(id(tensor))
        if before is None:
            self.gradients[id(tensor)] = _Gradient(held, is_view)
        elif before.held is held:
            held.holders -= 1
        elif not before.is_view and before.held.holders == 1:
            self._note(f"{node.op if node else ''} accumulation", node.module if node else "")
            self._drop(held)
        else:
            summed = self._new(tensor.nbytes)
            self._note(f"{node.op if node else ''} accumulation", node.module if node else "")
            self._drop(before.held)
            self._drop(held)
            self.gradients[id(tensor)] = _Gradient(summed, False)

    def _finish(self, parameter: Tensor, held: _Bytes, is_view: bool) -> None:
        """AccumulateGrad: the gradient becomes `.grad`, or is added into it and freed.

        So is that of a later use of the same weight in one block, into the part that waits.
        """
        storage, views = parameter.storage, self.result.waiting_views
        is_begun = storage in self.shared.begun or storage in self.begun_here
        begun_as_view = storage in views or self.begun_here.get(storage, False)
        waits = storage in self.shared.waiting
        self.begun_here[storage] = is_view and not is_begun  # their sum is a tensor of its own, which takes the rest
        if begun_as_view:
            views.discard(storage)
            self._note("sum of a shared weight's gradients", "", parameter.nbytes)
            self._briefly(parameter.nbytes)
        elif waits and is_view and not is_begun:
            views.add(storage)
        if not is_begun and (waits or not self.accumulating):
            self.finished = self.finished + parameter.nbytes
            gradient = self._as_gradient(parameter, held)
            if self.accumulating:
                self.result.parts.append((storage, gradient))
            else:
                self.result.finished.append(gradient)
        self._drop(held)
        if self.accumulating and waits and storage in self.shared.ending:
            self.finished = self.finished - parameter.nbytes
            self.result.added.append(storage)

    def _as_gradient(self, parameter: Tensor, held: _Bytes) -> object:
        """The gradient itself becomes `.grad` where nothing else refers to it, else a copy does.

        A transposed view has its parameter's strides again (torch 2.13 csrc/autograd/functions/accumulate_grad.h,
        `obeys_layout_contract`).
        """
        if held.holders == 1 and probe(held.nbytes) == probe(parameter.nbytes):
            held.stays = True
            return held.written_over or held
        copy = object()
        self.result.events.append((copy, parameter.nbytes))
        return copy

    def _new(self, nbytes: Dim, written_over: Storage | None = None, *, comes_later: bool = False) -> _Bytes:
        self.temporaries = self.temporaries + nbytes
        held = _Bytes(nbytes, written_over=written_over, comes_later=comes_later and written_over is None)
        if written_over is not None:
            self.written_over.add(written_over)
        elif not comes_later and probe(nbytes):
            self.result.events.append((held, nbytes))
        return held

    def _briefly(self, *sizes: Dim) -> None:
        """Scratch that one operation needs."""
        beside: list[tuple[object, Dim]] = [(object(), size) for size in sizes if probe(size)]
        self.result.events += beside
        self.result.events += [(key, None) for key, _ in beside]

    def _drop(self, held: _Bytes) -> None:
        held.holders -= 1
        if held.holders == 0:
            self.temporaries = self.temporaries - held.nbytes
            if not held.stays:
                self.result.events.append((held.written_over or held, None))

    def _release(self, node: Node) -> None:
        for storage, _ in node.saved:
            if storage in self.savers:
                self.savers[storage] -= 1
                if self.savers[storage] == 0:
                    self.saved = self.saved - storage.nbytes
                    if storage not in self.written_over:
                        self.result.events.append((storage, None))

    def _note(self, operation: str, module: str, beside: Dim = 0) -> None:
        self.result.moments.append(Moment(operation, module, self.saved, self.finished, self.temporaries + beside))
