"""What torch's allocator keeps beyond what is allocated: from a replay, or calibrated ratios where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.result import Node, Quantity
from vramwise.site import learned
from vramwise.training.calibration import Calibrated, calibrated
from vramwise.training.components import Component
from vramwise.training.counters import plus, scaled
from vramwise.training.exchange.communication import Buffers
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.units import loads_whole
from vramwise.training.layout.parallel import ALONE, Placement
from vramwise.training.model_states.states import ModelStates
from vramwise.training.recipe.attention import rows_of
from vramwise.training.recipe.lengths import record_lengths
from vramwise.training.recipe.settings import lengths_differ, lengths_vary
from vramwise.training.reserved_memory.replay import replay
from vramwise.training.reserved_memory.step_replay import Replayed
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.moments import Moment, plays_evaluations
from vramwise.training.zero3 import NO_LAG, Lag

if TYPE_CHECKING:
    from vramwise.hardware import Gpu

NEARLY_FULL = 0.7
"""Share of the room above which segments may not fit: replays reserve at most 1.41 times what they allocate."""
_ROOMS = 64


def reserved_ratio(train: ResolvedTrain, placement: Placement) -> Calibrated:
    """Reserved over allocated of one stream's memory, by who allocates."""
    own = framework_of(train).reserved_ratio
    if own:
        return calibrated(f"reserved_over_allocated_{own}")
    if train.expandable_segments:
        return calibrated("reserved_over_allocated_expandable")
    # Buckets and joined gradients of every ZeRO stage come and go between other tensors, as gathered weights do; those
    # of adapters are too small to break anything up.
    gathers = placement.weight_shards > 1 or (train.zero_stage > 0 and train.method not in ("lora", "qlora"))
    if gathers and not _has_stream_pools(train, placement) and not train.compile:
        # Logits are the largest blocks to break up: without them less lies between what is in use.
        without = "_without_logits" if train.loss == "fused-linear" else ""
        return calibrated(f"reserved_over_allocated_sharded{without}")
    return calibrated("reserved_over_allocated")


def _has_stream_pools(train: ResolvedTrain, placement: Placement) -> bool:
    return placement.weight_shards > 1 and train.fsdp != "none" and train.fsdp_version == 2


def reserved(
    allocated: Quantity, moments: Sequence[Moment], train: ResolvedTrain, placement: Placement, states: ModelStates,
    exchanged: Buffers,
) -> Quantity:  # fmt: skip
    """What torch's allocator keeps.

    A stream's free memory serves no other stream. FSDP 2 gathers weights and reduces gradients on streams of their own
    (torch 2.13 distributed/fsdp/_fully_shard/_fsdp_collectives.py): their memory, the largest outputs of two
    all-gathers in a row and every reduced gradient, stays beside the largest moment of everything else, whether or not
    it is in use then.

    Nor does the pool of small blocks serve large ones: gradients and temporaries of adapters come on top of a peak that
    large tensors make. Where batches are padded their lengths vary, and blocks of one length stay beside those of
    another: at most the logits and loss once more. So do the steps' beside those of an evaluation of other rows.
    """
    ratio = _settled(reserved_ratio(train, placement))
    if train.expandable_segments and exchanged.by_call is not None:
        kept = _with_pools_of_stage_3(allocated, moments, ratio)
        lengths = logits_of_another_length(moments) if lengths_differ(train) else 0
        return plus(kept, Node("logits of another length", 0, "assumed", high=lengths))
    if not _has_stream_pools(train, placement):
        apart = small_blocks(moments, states) if placement.gradient_shards == 1 else 0
        lengths = logits_of_another_length(moments) if lengths_differ(train) else 0
        kept = plus(scaled(allocated, ratio), Node("small blocks", apart, "derived"))
        kept = plus(kept, blocks_of_steps(moments, train))
        return plus(kept, Node("logits of another length", 0, "assumed", high=lengths))
    held_gradients = max(moments, key=lambda moment: moment.total).of(Component.GRADIENTS)
    elsewhere = held_gradients + exchanged.prefetched
    pools = (0 if offloaded(train).gradients else states.gradients) + exchanged.largest_gathers
    own = Quantity(*(max(0, value - elsewhere) for value in (allocated.low, allocated.expected, allocated.high)))
    kept = scaled(own, ratio)
    return Quantity(*(value + pools for value in (kept.low, kept.expected, kept.high)))


def _with_pools_of_stage_3(allocated: Quantity, moments: Sequence[Moment], ratio: Calibrated) -> Quantity:
    """ZeRO stage 3 gathers on one stream and reduces on another, each with growing segments of its own.

    DeepSpeed 0.19 zero/partitioned_param_coordinator.py `__allgather_stream`, stage3.py `reduce_and_partition_stream`.
    """
    apart = (Component.GATHERED_WEIGHTS, Component.REDUCE_SCATTER)
    pools = sum(max(moment.of(part) for moment in moments) for part in apart)
    largest = max(moment.total for moment in moments)
    elsewhere = largest - max(moment.total - sum(map(moment.of, apart)) for moment in moments)
    own = Quantity(*(max(0, value - elsewhere) for value in (allocated.low, allocated.expected, allocated.high)))
    kept = scaled(own, ratio)
    return Quantity(*(value + pools for value in (kept.low, kept.expected, kept.high)))


def small_blocks(moments: Sequence[Moment], states: ModelStates) -> int:
    """What the pools of small and of large blocks need at their own largest moments, beyond the largest of the sum."""
    of_step = states.small_transient / states.step_transient if states.step_transient else 0.0
    of_gradients = states.small_gradients / states.gradients if states.gradients else 0.0

    def small(moment: Moment) -> int:
        of_optimizer = moment.of(Component.OPTIMIZER_TEMPORARIES) * of_step
        return round(moment.of(Component.GRADIENTS) * of_gradients + of_optimizer)

    large = max(moment.total - small(moment) for moment in moments)
    return large + max(map(small, moments)) - max(moment.total for moment in moments)


def logits_of_another_length(moments: Sequence[Moment]) -> int:
    """The most bytes of logits and loss at one moment."""
    return max(moment.of(Component.LOGITS_AND_LOSS) for moment in moments)


def blocks_of_steps(moments: Sequence[Moment], train: ResolvedTrain) -> Node:
    """The most that steps leave free and an evaluation of other rows finds no use for: all that they hold beside what
    stays, or all of its own where that is less."""
    evaluation = next(moment for moment in moments if moment.name == "evaluation")
    own = sum(map(evaluation.of, _OF_AN_EVALUATION))
    steps = max(moment.total for moment in moments if moment is not evaluation)
    unused = max(0, min(own, steps - (evaluation.total - own)))
    differs = train.eval_batch_size not in (None, train.micro_batch_size)
    return Node("blocks of steps", 0, "assumed", high=unused if differs else 0)


_OF_AN_EVALUATION = (
    Component.INPUTS, Component.WEIGHT_CASTS, Component.OUTPUTS_HELD, Component.FORWARD_TEMPORARIES,
)  # fmt: skip


@record
class Play:
    """A step that can be replayed: on a card with `room` bytes for torch, or without limit.

    `lag`: by how many layers the card is behind its host under ZeRO stage 3. `warm_up`: bytes of the block before the
    weights (loading.py).
    """

    model: Model
    train: ResolvedTrain
    batch: int
    sequence: int
    accumulating: bool
    workspace_bytes: int
    placement: Placement = ALONE
    lag: Lag = NO_LAG
    warm_up: int = 0

    def __call__(self, room: int | None, lengths: tuple[int, ...] = ()) -> Replayed:
        rows, tokens = rows_of(self.train, self.batch, self.sequence)
        lengths = tuple(rows_of(self.train, self.batch, length)[1] for length in lengths)
        sizes = rows, tokens, self.accumulating, self.workspace_bytes
        return replay(self.model, self.train, *sizes, room, lengths, self.placement, self.lag, self.warm_up)


def played(play: Play, room: int | None) -> Replayed:
    """The replay where torch can reserve `room` bytes; the verdict and the limits of a nearly full card know it too."""
    found = play(room)
    if room is None or not found.was_full:
        return found
    unlimited = play(None)
    return unlimited if unlimited.reserved <= room else found


def is_nearly_full(allocated: float, room: int) -> bool:
    """Whether tensors fit into the room, but maybe not their segments."""
    return NEARLY_FULL * room < allocated <= room


def out_of_room(play: Play, allocated: Quantity, room: int) -> Replayed | None:
    """The replay of a step whose tensors fit into the room, but not the segments that they lie in."""
    if not is_nearly_full(allocated.expected, room):
        return None
    found = play(room)
    return found if found.wanted else None


def with_segment(needed: Quantity, stuck: Replayed, outside: Sequence[Node]) -> Quantity:
    """The need of a step that stopped at one segment more: at least that one beside those that it had.

    Where it stops hangs on which blocks lie in which segments: a step with larger tensors (a higher rank of adapters,
    say) may stop at a smaller segment, so that among steps that do not fit a larger one may need less by this.
    """
    expected = max(needed.expected, stuck.reserved + stuck.wanted + sum(node.bytes for node in outside))
    return Quantity(needed.low, expected, max(needed.high, expected))


def with_pieces(needed: Quantity, play: Play, allocated: Quantity, room: int, outside: Sequence[Node]) -> Quantity:
    """The need of a step that runs in the room once torch has given back what was free: the least room it runs in.

    Free pieces between tensors serve nothing there (CUDACachingAllocator.cpp `release_blocks`: segments that are free
    as a whole), so that such a step needs more than its tensors. Rooms are tried in steps of a 64th of the tensors.
    """
    if not is_nearly_full(allocated.expected, room) or not play(room).was_full:
        return needed
    step = int(allocated.expected) // _ROOMS
    fails, runs = 0, (room - int(allocated.expected)) // step + 1
    while runs - fails > 1:
        middle = (fails + runs) // 2
        runs, fails = (runs, middle) if play(int(allocated.expected) + middle * step).wanted else (middle, fails)
    least = min(room, int(allocated.expected) + runs * step) + sum(node.bytes for node in outside)
    expected = max(needed.expected, least)
    return Quantity(needed.low, expected, max(needed.high, expected))


def slack_of(play: Play, gpu: Gpu | None) -> Calibrated:
    """Reserved over replayed memory: as runs of the framework on this site showed it, else as published runs did."""
    name = "reserved_over_replayed"
    waits = play.train.zero_stage == 3 or play.train.overlap_comm
    if play.train.zero_stage and waits:  # no runs of its own: its blocks wait for other streams, as those of FSDP 1 do
        name += "_fsdp1"
    elif play.placement.weight_shards > 1:
        name += f"_fsdp{play.train.fsdp_version}"
    shipped = calibrated(name)
    here = learned(
        "allocator_slack", (shipped.low, shipped.expected, shipped.high), gpu=None if gpu is None else gpu.id,
        program=play.train.framework, version=play.train.framework_version, of=name,
    )  # fmt: skip
    return _settled(shipped) if here is None else Calibrated(*here.ends, here.source)


def _settled(ratio: Calibrated) -> Calibrated:
    """The ratio without its ends: how far whole counters lie from it is in the table of intervals."""
    return Calibrated(ratio.expected, ratio.expected, ratio.expected, ratio.source)


def replayed_reserved(
    allocated: Quantity, moments: Sequence[Moment], train: ResolvedTrain, played: Replayed, room: int | None,
    play: Play, slack: Calibrated,
) -> Quantity:  # fmt: skip
    """Reserved memory from a replay, with the interval that published runs (or those of the site) have around theirs.

    Conversations have any length up to the limit: blocks of a longer one find no room where shorter ones lay, so that
    reserved memory grows with each record (modelscope/ms-swift Benchmark.md: Qwen 1.8B to 14B, 1.1 to 2.2 times what
    a step needs); `sample_lengths` says which lengths. The low end is that of batches that are all as long. Where
    nobody said whether FSDP cuts a quantized model on the GPU or in host memory, it is that of host memory.
    """
    kept = _around(allocated, moments, train, played, slack, play.placement)
    if play.placement.weight_shards > 1 and loads_whole(train) and train.cpu_ram_efficient_loading is None:
        on_host = replace(play, train=play.train.replace(cpu_ram_efficient_loading=True))
        least = _around(allocated, moments, train, on_host(room), slack, play.placement).low
        kept = Quantity(min(least, kept.low), kept.expected, kept.high)
    if not lengths_vary(train):
        return kept
    of_rank = play.sequence / train.sequence_length  # a shard of each row under context parallelism
    lengths = record_lengths(train.sequence_length, train.sample_lengths, play.batch)
    longest = play(room, tuple(max(1, round(length * of_rank)) for length in lengths))
    if longest.wanted:  # it stopped where the card was full; what is free is then given back, and the step goes on
        longest = played
    varied = _around(allocated, moments, train, longest, slack, play.placement)
    return Quantity(min(kept.low, varied.low), max(kept.expected, varied.expected), max(kept.high, varied.high))


def _around(
    allocated: Quantity, moments: Sequence[Moment], train: ResolvedTrain, played: Replayed, slack: Calibrated,
    placement: Placement,
) -> Quantity:  # fmt: skip
    beside = 0.0
    if framework_of(train).gradients.main_buffer:  # what is gathered for one product alone is counted, and not played
        beside = max(0.0, allocated.expected - played.allocated)
    share = max(1.0, (played.reserved + beside) / allocated.expected)
    expected = max(played.reserved + beside, allocated.expected)
    kept = Quantity(min(allocated.low * share, expected), expected, max(allocated.high * share, expected))
    lengths = logits_of_another_length(moments) if lengths_differ(train) else 0
    kept = scaled(kept, slack)
    if not plays_evaluations(train, placement):
        kept = plus(kept, blocks_of_steps(moments, train))
    return plus(kept, Node("logits of another length", 0, "assumed", high=lengths))
