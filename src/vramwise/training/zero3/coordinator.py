"""Which weights ZeRO stage 3 keeps gathered while a step runs: fetch, prefetch and release, call by call.

DeepSpeed 0.19 zero/partitioned_param_coordinator.py, from the third pass on, when the order of calls is known:

    fetch     entering a module gathers those of its own weights that are not there and waits for them
    prefetch  every entered module, with weights or without, then orders the next weights of the step's order, as long
              as those just ordered are fewer than `prefetch_bucket_size` values and than what `max_live_parameters`
              leaves; the last one ordered may exceed both, and weights that are there are passed over
    release   leaving a module frees its weights, but those that a later module is to find there because prefetching
              passed over them, those that are used again before `max_reuse_distance` values of other weights, and
              persistent ones; frozen ones of a layer that is computed again without re-entry stay until the module is
              left in whose backward that happens

Weights of at most `param_persistence_threshold` values are persistent: gathered after each optimizer step, and never
freed. Weights gathered together come in one output, from which each is copied when the first of them is waited for; the
output goes when the last has been asked for (zero/partition_parameters.py AllGatherCoalescedHandle). A weight gathered
alone is its own output, which ranks pad to their number. A single rank copies each from the host (NoGatherHandle, since
0.9.0; 0.8.3 gathers there too). Where the ranks' parts lie on the host, ordering a gather first copies them to the card
(`ds_tensor.to`), where they are gone once it is ordered.

Where `torch.nn.functional.linear` is torch's own, autograd keeps the transposed view of a gathered weight, and with it
its memory, from the module's forward to its backward pass, in which the weight is gathered once more. DeepSpeed puts a
function of its own there that keeps the parameter alone: inside of `zero.Init` (0.14 zero/partition_parameters.py
`patch_init_and_builtins`, zero/linear.py LinearFunctionForZeroStage3), and for the rest of the process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate

from vramwise.records import record
from vramwise.training.zero3 import OUTSIDE
from vramwise.training.zero3.module_calls import Call, Module, Turn, Weight

_LONG_AGO = -(10**10)
_ENTERING = (Turn.ENTER, Turn.ENTER_AGAIN, Turn.ENTER_BACKWARD)


@record
class Limits:
    """The settings of stage 3 that decide over gathered weights, in values."""

    prefetch_bucket_size: int
    param_persistence_threshold: int
    max_live_parameters: int
    max_reuse_distance: int
    model_persistence_threshold: int | None = None


@record
class ViewsKept:
    """Autograd keeps the gathered weights of linear layers; `checkpointed`: those of decoder layers only once a layer
    is computed again."""

    checkpointed: bool


@record
class Gathered:
    """Bytes of gathered weights and outputs of all-gathers: the most by pass and running block, and between passes."""

    forward: Mapping[int, int]
    backward: Mapping[int, int]
    after_forward: int
    after_backward: int
    persistent: int


@record(eq=False, frozen=False)
class _Output:
    """The output of one all-gather, how many of its weights have not been asked for, and whether it is them itself."""

    weights: list[Weight]
    waiting: int
    nbytes: int
    kept: bool
    waited: bool = False


def gathered(
    calls: Sequence[Call], in_forward: int, limits: Limits, ranks: int, *, quantized: bool = False,
    views: ViewsKept | None = None, from_host: bool = False, copies_alone: bool = True,
) -> Gathered:  # fmt: skip
    """What is gathered in a step of these calls, of which the first `in_forward` are the forward pass.

    `quantized`: weights travel as 8-bit values, from which they are made again when they are waited for (ZeRO++).
    `views`: autograd keeps what linear layers read. `from_host`: the ranks' parts lie on the host. `copies_alone`: a
    single rank gathers nothing.
    """
    gathers = ranks > 1 or not copies_alone
    keeper = _Keeper(calls, limits, ranks, gathers, from_host and gathers and not quantized, quantized, views)
    passes: list[dict[int, int]] = [{}, {}]
    after_forward, block = keeper.held, OUTSIDE
    for i, call in enumerate(calls):
        keeper.is_forward = i < in_forward
        if i == in_forward:
            after_forward = keeper.held
        block = call.module.block if call.turn in _ENTERING else block
        found = passes[i >= in_forward]
        found[block] = max(found.get(block, 0), keeper.play(call))
    keeper.end_backward()
    return Gathered(passes[0], passes[1], after_forward, keeper.held, keeper.persistent_bytes)


@record(frozen=False)
class _Order:
    """The recorded order: the weights by step, and how many values the modules before each step have."""

    queue: list[tuple[Weight, int]]
    uses: dict[str, list[int]]
    numel_before: list[int]
    steps: int


def _order_of(calls: Iterable[Call]) -> _Order:
    entered = [call.module for call in calls if call.turn in _ENTERING]
    uses: dict[str, list[int]] = {}
    queue = []
    for step, module in enumerate(entered):
        for weight in module.weights:
            queue.append((weight, step))
            uses.setdefault(weight.key, []).append(step)
    sizes = (sum(weight.numel for weight in module.weights) for module in entered)
    return _Order(queue, uses, [0, *accumulate(sizes)], len(entered))


@record(eq=False, frozen=False)
class _Keeper:
    calls: Sequence[Call]
    limits: Limits
    ranks: int
    gathers: bool
    copies_parts: bool
    quantized: bool = False
    views: ViewsKept | None = None
    is_forward: bool = True
    order: _Order = field(init=False)
    queue: deque[tuple[Weight, int]] = field(init=False)
    held: int = 0
    persistent_bytes: int = 0
    step: int = 0
    live: int = 0
    ordering: int = 0
    there: dict[str, int] = field(default_factory=dict)
    in_flight: dict[str, _Output] = field(default_factory=dict)
    fetched_for: dict[str, int] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=dict)
    persistent: set[str] = field(default_factory=set)
    entered_backward: dict[str, Module] = field(default_factory=dict)
    recomputed: dict[str, dict[str, Weight]] = field(default_factory=dict)
    seen_by_autograd: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = _order_of(self.calls)
        self.queue = deque(self.order.queue)
        kept = 0
        for weight in {weight.key: weight for weight, _ in self.order.queue}.values():
            most = self.limits.model_persistence_threshold
            if most is not None and weight.numel + kept > most:
                continue
            if weight.numel <= self.limits.param_persistence_threshold:
                kept += weight.numel
                self.persistent.add(weight.key)
                self._arrive(weight, weight.numel * weight.item)
        self.persistent_bytes = self.held

    def play(self, call: Call) -> int:
        """The most bytes held from before this call to after it."""
        before, self.ordering = self.held, 0
        if call.turn in _ENTERING:
            if call.turn is Turn.ENTER_BACKWARD:
                self.entered_backward[call.module.path] = call.module
            most = self._fetch(call.module)
            if call.turn is Turn.ENTER_AGAIN:
                self._stay_for_backward(call.module)
            self._prefetch()
            self.step += 1
        else:
            most = 0
            if call.turn is Turn.LEAVE:
                self._leave(call.module, self._released(call.module), keeps=self._keeps_views(call.module))
            else:
                self.held -= self.seen_by_autograd.pop(call.module.path, 0)
                self._leave(call.module, self._released(call.module))
            if call.turn is Turn.LEAVE_BACKWARD:
                self.entered_backward.pop(call.module.path, None)
                self._release_recomputed(call.module.path)
        return max(before, most, self.held, self.ordering)

    def end_backward(self) -> None:
        """Modules that backward did not leave are left (parameter_offload.py release_backward_leftovers)."""
        for module in reversed(self.entered_backward.values()):
            self._leave(module, {weight.key for weight in module.weights} - self.persistent)

    def _stay_for_backward(self, module: Module) -> None:
        """Frozen weights of a layer that is computed again stay until the module is left that asked for it."""
        owner = next(reversed(self.entered_backward))
        for weight in module.weights:
            if not weight.trains:
                self.users[weight.key].add(f"again for {owner}")
                self.recomputed.setdefault(owner, {})[weight.key] = weight

    def _release_recomputed(self, owner: str) -> None:
        for weight in self.recomputed.pop(owner, {}).values():
            self.users[weight.key].discard(f"again for {owner}")
            if weight.key not in self.persistent:
                self._release(weight)

    def _fetch(self, module: Module) -> int:
        if not module.weights:
            return self.held
        missing = [w for w in module.weights if w.key not in self.there and w.key not in self.in_flight]
        self._order_gather(missing)
        most = self.held
        for weight in module.weights:
            self.users.setdefault(weight.key, set()).add(module.path)
            output = self.in_flight.get(weight.key)
            if output is not None:
                most = max(most, self._wait(weight, output))
        not_yet = sum(self.fetched_for.get(w.key, _LONG_AGO) < self.step for w in module.weights)
        popped: set[str] = set()
        while self.queue and len(popped) < not_yet:
            weight, step = self.queue.popleft()
            self.fetched_for[weight.key] = step
            popped.add(weight.key)
        return most

    def _prefetch(self) -> None:
        if not self.queue or not self.limits.prefetch_bucket_size:
            return
        room = min(self.limits.max_live_parameters - self.live, self.limits.prefetch_bucket_size)
        ordered: dict[str, Weight] = {}
        numel = 0
        while self.queue and numel < room:
            weight, step = self.queue.popleft()
            self.fetched_for[weight.key] = max(self.fetched_for.get(weight.key, _LONG_AGO), step)
            if weight.key not in self.there and weight.key not in self.in_flight and weight.key not in ordered:
                ordered[weight.key] = weight
                numel += weight.numel
        self._order_gather(list(ordered.values()))

    def _order_gather(self, weights: list[Weight]) -> None:
        if not weights:
            return
        self.live += sum(weight.numel for weight in weights)
        items = ((w, 1 if self.quantized else w.item) for w in weights)
        padded = sum(-(-w.numel // self.ranks) * self.ranks * item for w, item in items)
        output = _Output(weights, len(weights), padded, kept=len(weights) == 1 or not self.gathers)
        self.held += padded
        if self.copies_parts:
            self.ordering = max(self.ordering, self.held + padded // self.ranks)
        self.in_flight |= dict.fromkeys((weight.key for weight in weights), output)

    def _wait(self, weight: Weight, output: _Output) -> int:
        """The most bytes while a weight is waited for: the copies beside their output."""
        wide = 0
        if not output.waited:
            output.waited = True
            wide = self._make(output)
        most = self.held + wide
        del self.in_flight[weight.key]
        output.waiting -= 1
        if not output.waiting and not output.kept:
            self.held -= output.nbytes
        return most

    def _make(self, output: _Output) -> int:
        """Copies of an output's weights, or the output itself; bytes that only their making takes."""
        sizes = {one.key: one.numel * one.item for one in output.weights}
        if not output.kept:
            for one in output.weights:
                self._arrive(one, sizes[one.key])
            return sum(sizes.values()) if self.quantized else 0
        alone = len(sizes) == 1 and not self.quantized
        self.there |= dict.fromkeys(sizes, output.nbytes) if alone else sizes
        if not self.quantized:
            return 0
        self.held += sum(sizes.values()) - output.nbytes
        return output.nbytes

    def _arrive(self, weight: Weight, nbytes: int) -> None:
        self.there[weight.key] = nbytes
        self.held += nbytes

    def _released(self, module: Module) -> set[str]:
        """Weights of a module that is left which need not stay."""
        found = set()
        for weight in module.weights:
            if weight.key in self.persistent or self.fetched_for.get(weight.key, _LONG_AGO) > self.step:
                continue
            uses = self.order.uses[weight.key]
            following = bisect_left(uses, self.step)
            if following < len(uses):
                before = self.order.numel_before
                if before[uses[following]] - before[self.step] < self.limits.max_reuse_distance:
                    continue
            found.add(weight.key)
        return found

    def _keeps_views(self, module: Module) -> bool:
        """Whether autograd keeps what a module has read when its forward pass is over."""
        if self.views is None or not module.differentiable:
            return False
        return not (self.is_forward and self.views.checkpointed and module.block >= 0)

    def _leave(self, module: Module, released: set[str], *, keeps: bool = False) -> None:
        for weight in module.weights:
            users = self.users.get(weight.key, set())
            users.discard(module.path)
            if weight.key not in released:
                continue
            freed = self._release(weight)
            if keeps and weight.linear:
                self.seen_by_autograd[module.path] = self.seen_by_autograd.get(module.path, 0) + freed
                self.held += freed

    def _release(self, weight: Weight) -> int:
        """Frees a weight that no module uses; bytes of it."""
        is_there = weight.key in self.there and weight.key not in self.in_flight
        if not is_there or self.users.get(weight.key):
            return 0
        freed = self.there.pop(weight.key)
        self.held -= freed
        self.live -= weight.numel
        return freed
