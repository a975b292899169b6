"""What a rank gathers, frees and reduces around its blocks, on the streams of FSDP 1 and 2.

Every stream has its own pools in the allocator. Who allocates on which stream, and when it is freed:

| | FSDP 2 | FSDP 1 |
|---|---|---|
| gathering stream | the output of an all-gather and the cast shards that go into it, until their values are copied \
into the weights; in forward until the next unit's are | the gathered unit, until its block is done |
| shards' stream | | the cast shards, until they are gathered |
| compute stream | the gathered weights, until their block is done; the input of a reduction, until that of the next \
unit | the unit's gradient in one piece, until it is reduced |
| reducing stream | reduced gradients | reduced gradients |

FSDP 2 frees in the host's order, behind events. FSDP 1 marks blocks that another stream reads (`record_stream`), and
they come back when the host knows that stream to be past them: the rate limiter waits, before it gathers a unit, for
the second last unit that was freed. What was reduced before that one is done by then.

torch 2.13 distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather, foreach_reduce),
_fsdp_param_group.py (wait_for_unshard, post_backward); distributed/fsdp/_runtime_utils.py (_unshard, _reshard,
_post_backward_hook), _limiter_utils.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.units import ROOT, Unit, in_order_of_cutting, loads_whole, units_of
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import trained_tensors, width
from vramwise.training.recipe.gradient_life import reentrant
from vramwise.training.recipe.settings import execution
from vramwise.training.reserved_memory.traces import Alone, Held, Memory
from vramwise.training.resolved import ResolvedTrain
from vramwise.units import MIB

COMPUTE, GATHERING, SHARDS, REDUCING = range(4)
BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * MIB, MIB
UNITS_IN_FLIGHT = 2  # _limiter_utils.py _max_num_inflight_all_gathers


@record
class Widths:
    """Bytes of a value of a gradient as it is computed, reduced and kept."""

    computed: int
    reduced: int
    kept: int


class Replicated(Alone):
    """A rank of data parallelism that has everything, and buckets with a copy of the gradients from the start.

    torch 2.13 nn/parallel/distributed.py: gradient_as_bucket_view is off, bucket_cap_mb 25, and 1 MiB for the first;
    reducer.cpp compute_bucket_assignment_by_size closes a bucket when it has reached its size.
    """

    def __init__(self, memory: Memory, sizes: Sequence[int]) -> None:
        super().__init__(memory)
        self.sizes = sizes

    def prepare(self) -> None:
        bucket, limit = 0, FIRST_BUCKET_BYTES
        for size in reversed(self.sizes):
            bucket += size
            if bucket >= limit:
                self.memory.some(bucket)
                bucket, limit = 0, BUCKET_BYTES
        self.memory.some(bucket)


class _Sharded(Alone):
    is_sharded = True

    def __init__(
        self, memory: Memory, units: Sequence[Unit], widths: Widths, *, weights_away: bool, gradients_away: bool,
        loads_whole: bool,
    ) -> None:  # fmt: skip
        super().__init__(memory)
        self.units, self.widths, self.loads_whole = units, widths, loads_whole
        self.weights_away, self.gradients_away = weights_away, gradients_away
        self.unsynced: dict[str, list[Held]] = {}
        self.last_use = {unit.name: index for index, unit in reversed(list(enumerate(units)))}
        self.whole: dict[str, list[Held]] = {}
        self.reduced: dict[str, Held] = {}
        self.made: dict[str, list[Held]] = {}

    def unit(self, index: int) -> Unit | None:
        return self.units[index] if index < len(self.units) else None

    def below(self, index: int) -> Unit | None:
        """The unit whose backward comes next."""
        here = self.units[index].name if index < len(self.units) else ""
        return next((u for u in reversed(self.units[:index]) if u.name not in (here, ROOT)), None)

    def quantized(self, unit: Unit, sizes: Sequence[int]) -> list[Held]:
        """Weights as they come: bitsandbytes' are on the GPU in 16 bits before they are packed, one by one."""
        memory, kept = self.memory, list[Held]()
        for size, before in zip(sizes, unit.unpacked, strict=True):
            wide = memory.some(before)
            kept += memory.some(size)
            memory.drop_all(wide)
        return kept

    def after_backward(self, index: int, gradients: list[Held]) -> None:
        """A unit is done with its first block; gradients of its others, and of a head in the loss, wait for that."""
        unit = self.unit(index) or self.units[-1]
        self.made.setdefault(unit.name, []).extend(gradients)
        if self.last_use[unit.name] == index:
            self.finish(unit, self.made.pop(unit.name))

    def finish(self, unit: Unit, gradients: list[Held]) -> None:
        raise NotImplementedError

    def summed(self, unit: Unit, gradients: list[Held]) -> list[Held]:
        """Whole gradients with those of the earlier micro-batches, to which they are added; none while they wait."""
        earlier = self.unsynced.pop(unit.name, None)
        if earlier is not None:
            self.memory.drop_all(gradients)
            gradients = earlier
        if self.reduces:
            return gradients
        self.unsynced[unit.name] = gradients
        return []

    def keep(self, unit: Unit, reduced: Held) -> None:
        """A reduced gradient: the first of a step stays, others are added to it."""
        if self.widths.kept != self.widths.reduced:
            wide = self.memory.hold(unit.cut_numel * self.widths.kept, REDUCING)
            self.memory.drop(reduced)
            reduced = wide
        if unit.name in self.reduced or self.gradients_away:
            self.memory.drop(reduced)
        else:
            self.reduced[unit.name] = reduced

    def zeroed(self) -> None:
        self.memory.drop_all(self.reduced.values())
        self.reduced = {}


class Fsdp2(_Sharded):
    """FSDP 2: `fully_shard`."""

    def __init__(
        self, memory: Memory, units: Sequence[Unit], widths: Widths, *, weights_away: bool, gradients_away: bool,
        loads_whole: bool,
    ) -> None:  # fmt: skip
        super().__init__(
            memory, units, widths, weights_away=weights_away, gradients_away=gradients_away, loads_whole=loads_whole
        )
        self.waiting: dict[str, Held] = {}
        self.copied_from: Held | None = None
        self.reducing: Held | None = None

    def load(self) -> bool:
        """Every rank's own part; whole weights of a quantized model stay until the last of them is cut."""
        memory, whole = self.memory, list[Held]()
        units = in_order_of_cutting(self.units)
        if self.loads_whole:
            for unit in units:
                memory.some(*unit.uncut)
                packed = [size - scales for size, scales in zip(unit.loaded, unit.uncut, strict=True)]
                whole += self.quantized(unit, packed)
            memory.empty_cache()  # Trainer's first lines (transformers 5.23 trainer.py free_memory)
        if not self.weights_away:
            for unit in units:
                scales = unit.uncut if self.loads_whole else [0] * len(unit.shards)
                memory.some(*(own - there for own, there in zip(unit.shards, scales, strict=True)))
        memory.drop_all(whole)
        if whole:
            memory.forget_peak()
        return True

    def before_forward(self, index: int) -> None:
        unit = self.unit(index)
        if unit is None or unit.name in self.whole:
            return
        output = self._gather(unit)
        self.forward_over()
        self.whole[unit.name] = self.memory.some(*unit.whole)
        self.copied_from = output

    def after_forward(self, index: int) -> None:
        unit = self.unit(index)
        if unit is not None and not unit.stays:
            self._reshard(unit)

    def forward_over(self) -> None:
        if self.copied_from is not None:
            self.memory.drop(self.copied_from)
            self.copied_from = None

    def before_backward(self, index: int) -> None:
        unit = self.unit(index)
        if unit is None:
            return
        if unit.name not in self.whole:
            output = self.waiting.pop(unit.name, None) or self._gather(unit)
            self.whole[unit.name] = self.memory.some(*unit.whole)
            self.memory.drop(output)
        below = self.below(index)
        if below is not None and below.name not in self.whole and below.name not in self.waiting:
            self.waiting[below.name] = self._gather(below)

    def finish(self, unit: Unit, gradients: list[Held]) -> None:
        gradients = self.summed(unit, gradients)
        self._reshard(unit)
        self.backward_over()
        if unit.numel and self.reduces:
            self.reducing = self.memory.hold(unit.numel * self.widths.reduced)
            self.memory.drop_all(gradients)
            self.keep(unit, self.memory.hold(unit.cut_numel * self.widths.reduced, REDUCING))

    def backward_over(self) -> None:
        if self.reducing is not None:
            self.memory.drop(self.reducing)
            self.reducing = None

    def _gather(self, unit: Unit) -> Held:
        sent = self.memory.some(*unit.shards if self.weights_away else (), unit.cast, stream=GATHERING)
        output = self.memory.hold(unit.whole_bytes, GATHERING)
        self.memory.drop_all(sent)
        return output

    def _reshard(self, unit: Unit) -> None:
        self.memory.drop_all(self.whole.pop(unit.name, ()))


class Fsdp1(_Sharded):
    """FSDP 1: `FullyShardedDataParallel`.

    `ahead`: the next unit is gathered during backward; `recomputes_apart`: a checkpointed block is gathered, computed
    again and freed before its backward gathers it once more; `small_units`: adapters are units of their own, so that
    within a layer the limiter waits for whatever was freed before it.
    """

    def __init__(
        self, memory: Memory, units: Sequence[Unit], widths: Widths, *, weights_away: bool, gradients_away: bool,
        ahead: bool, recomputes_apart: bool, small_units: bool, loads_whole: bool,
    ) -> None:  # fmt: skip
        super().__init__(
            memory, units, widths, weights_away=weights_away, gradients_away=gradients_away, loads_whole=loads_whole
        )
        self.ahead, self.recomputes_apart, self.small_units = ahead, recomputes_apart, small_units
        self.freed: deque[int] = deque()

    def load(self) -> bool:
        """Every unit is flattened and cut in turn, the root unit last; quantized weights are all there before."""
        memory = self.memory
        units = in_order_of_cutting(self.units)
        loaded = {unit.name: self.quantized(unit, unit.loaded) for unit in units} if self.loads_whole else {}
        for unit in units:
            original = loaded.get(unit.name) or memory.some(*unit.loaded)
            flat = memory.hold(sum(unit.loaded))
            memory.drop_all(original)
            memory.some(0 if self.weights_away else sum(unit.shards))
            memory.drop(flat)
        memory.forget_peak()
        return True

    def before_forward(self, index: int) -> None:
        unit = self.unit(index)
        if unit is not None:
            self._gather(unit)

    def after_forward(self, index: int) -> None:
        unit = self.unit(index)
        if unit is not None and not unit.stays:
            self._reshard(unit)

    def before_recomputing(self, index: int) -> None:
        if not self.recomputes_apart:
            self.before_backward(index)
            return
        self.before_forward(index)

    def before_backward(self, index: int) -> None:
        unit = self.unit(index)
        if unit is None:
            return
        if self.recomputes_apart and not unit.stays:
            self._reshard(unit)
        self._gather(unit)
        below = self.below(index)
        if self.ahead and below is not None:
            self._gather(below)

    def finish(self, unit: Unit, gradients: list[Held]) -> None:
        memory = self.memory
        flat = memory.some(unit.numel * self.widths.computed)
        memory.drop_all(gradients)
        flat = self.summed(unit, flat)
        self._reshard(unit)
        if unit.numel and self.reduces:
            recast = self.widths.reduced != self.widths.computed
            wide = memory.some(unit.numel * self.widths.reduced if recast else 0, stream=REDUCING)
            self.keep(unit, memory.hold(unit.cut_numel * self.widths.reduced, REDUCING))
            memory.drop_all(wide)
        memory.drop_later(flat)

    def backward_over(self) -> None:
        self.memory.settle()

    def _gather(self, unit: Unit) -> None:
        if unit.name in self.whole:
            return
        memory, before = self.memory, self.memory.mark
        cast = memory.some(sum(unit.shards) if self.weights_away else 0, unit.cast, stream=SHARDS)
        if len(self.freed) >= UNITS_IN_FLIGHT:
            memory.settle(self.freed.popleft())
        self.whole[unit.name] = memory.some(unit.whole_bytes, stream=GATHERING)
        memory.drop_later(cast)
        if self.small_units:
            memory.settle(before)

    def _reshard(self, unit: Unit) -> None:
        held = self.whole.pop(unit.name, None)
        if held is not None:
            self.memory.drop_later(held)
            self.freed.append(self.memory.mark)


def around_blocks(memory: Memory, model: Model, train: ResolvedTrain, placement: Placement) -> Alone:
    """What one of several ranks does around its blocks."""
    if placement.weight_shards == 1:  # buckets have room for whatever wants a gradient
        return Replicated(memory, [t.numel * (t.grad_bytes or t.param_bytes) for t, _ in trained_tensors(model, train)])
    units, away = units_of(model, train, placement), offloaded(train)
    compute = execution(train, model)
    computed, kept = width(compute.autocast or compute.param_dtype), width(train.grad_dtype)
    widths = Widths(computed, computed if framework_of(train).gradients.reduced_in_compute_dtype else kept, kept)
    if train.fsdp_version == 2:
        return Fsdp2(
            memory, units, widths, weights_away=away.weights, gradients_away=away.gradients,
            loads_whole=loads_whole(train),
        )  # fmt: skip
    apart = reentrant(train)
    return Fsdp1(
        memory, units, widths, weights_away=away.weights, gradients_away=away.gradients,
        ahead=not apart, recomputes_apart=apart, small_units=train.method in ("lora", "qlora"),
        loads_whole=loads_whole(train),
    )  # fmt: skip
