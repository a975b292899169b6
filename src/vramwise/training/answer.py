"""A training scenario's whole answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.hardware.room import room_of
from vramwise.models.lengths import reads_tokens
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.result import ModelFacts, Node, Phase, Quantity, Rank, Result
from vramwise.scenario import Scenario, TrainSettings
from vramwise.training import counters
from vramwise.training.components import Component
from vramwise.training.counters import has_unsaid_lengths, kinds_of_estimate
from vramwise.training.exchange.communication import awaited, buffers
from vramwise.training.exchange.offload import host_parts, offloaded
from vramwise.training.job import Job, job_of, moments_at
from vramwise.training.kept_memory import Counted, KeptMemory, least_of
from vramwise.training.layout.parallel import Placement
from vramwise.training.notes import host_notes, notes_of, notes_on_what_was_asked
from vramwise.training.recipe.framework_defaults import taken_note
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.lengths import usual_length
from vramwise.training.recipe.precision import on_its_card, without_bf16
from vramwise.training.recipe.settings import frozen_units_keep_inputs, pads, samples_completions
from vramwise.training.reserved_memory import reserved
from vramwise.training.reserved_memory.loading import Card, warm_up_bytes
from vramwise.training.reserved_memory.replay import is_replayed, runs_one_by_one
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.blocks import norms_offloaded, overload_bytes
from vramwise.training.step.moments import BEFORE_STEPS, Moment
from vramwise.training.tree import activations_node, phase, state_nodes
from vramwise.training.zero3 import NO_LAG, Lag

if TYPE_CHECKING:
    from vramwise.hardware import Gpu
    from vramwise.training.speed import StepTime


@record
class Fullest:
    """The rank that needs most, its moments, and what lies beside its tensors; `of_each`: every kind of rank's."""

    rank: Placement
    moments: list[Moment]
    of_each: list[tuple[Placement, list[Moment]]]
    workspace: Node
    outside: list[Node]


def fullest_rank(job: Job, card_bytes: int | None, ranks: Sequence[Placement] | None = None) -> Fullest:
    """What a step holds at the job's sizes, on a card of so many bytes; `ranks`: those among which the fullest is."""
    found = [(rank, job.moments(rank)) for rank in ranks or job.ranks]
    rank, moments = max(found, key=lambda one: max(moment.total for moment in one[1]))
    outside = counters.outside_torch(job.train, job.gpu, _engine(job.train, card_bytes))
    nccl = counters.nccl_node(rank, job.gpu)
    if nccl is not None:
        outside.append(nccl)
    return Fullest(rank, moments, found, counters.workspace_node(job.gpu, job.train, job.model), outside)


def _has_engine(train: ResolvedTrain) -> bool:
    """Whether an engine that samples from the policy has a share of the card."""
    return train.rollout_gpu_memory_utilization is not None


def _engine(train: ResolvedTrain, card_bytes: int | None) -> list[Node]:
    """What that engine holds while the policy trains; none where it is not known."""
    if not _has_engine(train):
        return []
    from vramwise.training.step.other_models import during_training

    return during_training(train, card_bytes)


def estimate_training(
    scenario: Scenario, model: Model, source: str, gpu: Gpu | None, *, replays: bool, limits: bool
) -> Result:  # fmt: skip
    """Memory of one training step on the rank that needs most (see `vramwise.training`).

    `source` says where the model was read. `replays`: reserved memory may be played on a model of torch's allocator;
    `limits`: the largest batch and length that fit are quantities too. Raises ScenarioError for settings that do not go
    together, UnsupportedModelError for a model whose training is not described.
    """
    job = job_of(scenario, model, gpu)
    model = job.model
    card = room_of(scenario, gpu)
    capacity = None if card is None else card.capacity
    card_bytes = None if card is None else card.seen_bytes
    fullest = fullest_rank(job, card_bytes)
    rank, moments, workspace, outside = fullest.rank, fullest.moments, fullest.workspace, fullest.outside
    phases = _phases(job, rank, moments, workspace, tuple(outside))
    stepped = "optimizer in backward" if gradient_life(job.train).released else "optimizer step"
    step = next(phase for phase in phases if phase.name == stepped)
    generating = None
    if _has_engine(job.train):
        from vramwise.training.step.other_models import generation

        generating = generation(job.train, card_bytes, step, tuple(outside))
        phases = phases if generating is None else (*phases, generating)
    peak = max(phases, key=lambda phase: phase.bytes)
    counted = first_quantities(job, fullest)
    quantities = counted.quantities
    host = _host_parts(job, rank)
    if host:
        quantities["host_memory"] = Quantity.exact(sum(host.values()) * job.ranks_of_a_node)
    seen = None if card is None else Card(card.seen_bytes, card.free_bytes - sum(node.bytes for node in outside))
    warm_up = warm_up_bytes(model, job.structure, rank, seen)
    play = _play(job, rank, workspace, warm_up) if replays else None
    verdict, room = None, None
    if capacity is not None:
        room = int(capacity.usable_bytes) - sum(node.bytes for node in outside)
        stuck = None if play is None else reserved.out_of_room(play, quantities["peak_allocated"], room)
        if stuck is not None:
            quantities["total_needed"] = reserved.with_segment(quantities["total_needed"], stuck, outside)
        elif play is not None:
            tensors = quantities["total_needed"], play, quantities["peak_allocated"]
            quantities["total_needed"] = reserved.with_pieces(*tensors, room, outside)
        if generating is not None:
            from vramwise.training.step.other_models import at_least

            quantities["total_needed"] = at_least(quantities["total_needed"], generating)
        wanted = 0 if stuck is None else stuck.wanted
        usable = int(capacity.usable_bytes)
        alone = counters.weights_alone(job.train, model.num_parameters, scenario.num_gpus, usable)
        full_host = counters.full_host(quantities.get("host_memory"), scenario.host_memory_bytes)
        needed = quantities["total_needed"]
        verdict = counters.judged(needed, capacity, peak.name, job.train, gpu, alone, wanted, full_host)
        quantities["oom"] = Quantity.exact(verdict.headroom_bytes < 0 or full_host is not None)
    fits = verdict is not None and verdict.headroom_bytes >= 0
    answered = KeptMemory(job, rank, moments, outside, generating, room, fits, warm_up)
    late = _speed(job)
    if room is not None and limits:
        late = _limits(job, room, outside, workspace, generating, warm_up, replays=play is not None) | late
    return Result(
        scenario=replace(scenario, train=_as_told(job)).to_dict(),
        model=ModelFacts(
            model.id, model.num_parameters, model.num_active_parameters, job.states(rank).num_trainable, source
        ),
        quantities=answered.quantities(counted, play, late),
        phases=phases,
        peak_phase=peak.name,
        ranks=_ranks(fullest, peak),
        capacity=capacity,
        verdict=verdict,
        notes=(*_notes(scenario, job, rank, card_bytes), *host_notes(host, job.ranks_of_a_node)),
    )


def _notes(scenario: Scenario, job: Job, rank: Placement, card_bytes: int | None) -> Iterator[str]:
    train, asked = job.train, on_its_card(scenario, job.model)
    if asked.precision != train.precision:  # which the framework does not take in fp16
        asked = scenario.train
    yield from _on_precision(scenario, asked, train)
    taken = taken_note(asked, _as_told(job))
    if taken:
        yield taken
    counted = bool(_engine(train, card_bytes))
    yield from notes_of(train, job.model, job.states(rank), engine_counted=counted)
    yield from notes_on_what_was_asked(asked, train, job.model, job.axes, job.gpu)


def _on_precision(scenario: Scenario, asked: TrainSettings, train: ResolvedTrain) -> Iterator[str]:
    """What runs where a card has no bf16."""
    card = without_bf16(scenario)
    if card and asked is not scenario.train:
        yield f"{card} does not compute in bf16 and no precision is stated: taken in {train.precision}"
    elif card and train.compute_dtype == "bf16":
        yield f"{card} does not compute in bf16: torch emulates it"


def _ranks(fullest: Fullest, peak: Phase) -> tuple[Rank, ...]:
    """Every rank at its largest moment; what generates beside the step counts on the fullest."""
    return tuple(
        Rank(
            _rank_name(rank, len(fullest.of_each)),
            peak.bytes if rank is fullest.rank else _bytes_of(moments, fullest.workspace, fullest.outside),
        )
        for rank, moments in fullest.of_each
    )


def _as_told(job: Job) -> ResolvedTrain:
    """The settings as decided for any size; those of text are left open where a batch is of images alone."""
    told = job.train.replace(loss=job.train.loss_at_any_size)
    return told if reads_tokens(job.model) else told.replace(sequence_length=None)


def _bytes_of(moments: list[Moment], workspace: Node, outside: list[Node]) -> int:
    """Bytes of a rank at its largest moment, with all that its process has."""
    most = max(m.total + (0 if m.name in BEFORE_STEPS else workspace.bytes) for m in moments)
    return most + sum(node.bytes for node in outside)


def _host_parts(job: Job, rank: Placement) -> dict[str, int]:
    """Bytes of host memory for what the rank offloads, by term."""
    kept = 0
    if offloaded(job.train).activations:
        layers = [run for run in job.runs(rank) if run.layer is not None]
        # a layer's input moves, also where the embedding keeps it here as the leaf that wants a gradient
        kept = sum(max(run.activations, run.stream) - run.handed_on for run in layers)
        kept += sum(norms_offloaded(run, job.train, job.axes) for run in job.runs(rank))
    staged = 0
    if job.train.zero_stage:
        from vramwise.training.exchange.zero_buffers import offload_staging_bytes

        staged = offload_staging_bytes(job.model, job.structure, rank)
    return host_parts(job.states(rank), job.train, kept, staged)


def _rank_name(rank: Placement, stages: int) -> str:
    return f"stage {rank.stage}" if stages > 1 else "every GPU"


def _phases(
    job: Job, rank: Placement, moments: list[Moment], workspace: Node, outside: tuple[Node, ...]
) -> tuple[Phase, ...]:
    kind = "exact" if framework_of(job.train).exact else "derived"
    axes = job.axes
    states = job.states(rank)
    shared = state_nodes(states, job.train)
    end = next(moment for moment in moments if moment.name == "forward end")
    if kept := end.of(Component.ACTIVATIONS):
        shared[Component.ACTIVATIONS] = activations_node(job.runs(rank), kept, job.step_axes, kind)
    return tuple(
        phase(
            moment, shared, states.least(), kind, axes, (() if moment.name in BEFORE_STEPS else (workspace,)) + outside
        )
        for moment in moments
    )


def first_quantities(job: Job, fullest: Fullest) -> Counted:
    """Reserved memory by a calibrated ratio, and every counter but those that hang on it."""
    rank, moments, workspace, outside = fullest.rank, fullest.moments, fullest.workspace, fullest.outside
    peak, load = max(moments, key=lambda moment: moment.total), moments[0]
    tensors = Quantity.exact(peak.total)
    if samples_completions(job.train):
        tensors = counters.down_to(tensors, _at_share(job, rank, *_SHORTER_COMPLETIONS))
    elif has_unsaid_lengths(job.train):
        tensors = counters.down_to(tensors, _at_share(job, rank, *_SHORTER_SAMPLES))
    if job.train.zero_stage == 3 and rank.data_parallel > 1:
        from vramwise.training.recipe.zero import may_keep_views

        if may_keep_views(job.train):
            tensors = counters.up_to(tensors, _outside_zero_init(job, rank))
    tensors = counters.down_to(tensors, _without_cache(moments))  # a script may turn it off
    overload = overload_bytes(job.model, job.structure, rank, job.step_axes, accumulating=job.accumulates_on(rank))
    tensors = counters.up_to(tensors, peak.total + overload) if overload else tensors
    bare, kinds = counters.plus(tensors, workspace), kinds_of_estimate(job, rank)
    certain = max(counters.certain_bytes(of, job.states(r).least(), workspace) for r, of in fullest.of_each)
    allocated = counters.allocated_with_errors("peak_allocated", bare, kinds.allocated, certain)
    exchanged = buffers(job.model, job.structure, rank)
    by_ratio = reserved.reserved(bare, moments, job.train, rank, job.states(rank), exchanged)
    active = _active(job, rank, moments, bare, awaited(exchanged, job.train))
    process = counters.kept_with_errors(
        "process by ratio", counters.plus(by_ratio, *outside), kinds.kept, certain + least_of(outside)
    )
    needed = counters.no_less(counters.plus(allocated, *outside), certain + least_of(outside))
    if frozen_units_keep_inputs(job.train):  # they lie between a layer's temporaries, whose room is never whole again
        needed = process
    return Counted(bare, by_ratio, kinds, certain, {
        "params": Quantity.exact(job.model.num_parameters),
        "weights": Quantity.exact(load.of(Component.WEIGHTS) + load.of(Component.ADAPTERS)),
        "peak_allocated": allocated,
        "peak_active": counters.allocated_with_errors("peak_active", active, kinds.allocated, certain),
        "total_needed": Quantity(needed.low, needed.expected, max(needed.high, round(process.expected)) + overload),
    })  # fmt: skip


def _without_cache(moments: list[Moment]) -> int:
    """The most that is held where an evaluation fills no cache."""
    return max(m.total - (m.of(Component.OUTPUTS_HELD) if m.name == "evaluation" else 0) for m in moments)


_HEAD_OF_QUEUE = ("forward", "loss", "forward return", "forward end", "backward: head")
"""Moments at which what a forward pass freed may still wait for the card."""


def _active(job: Job, rank: Placement, moments: list[Moment], bare: Quantity, awaited_bytes: int) -> Quantity:
    """Allocated bytes with those that wait for another stream; at the end of a forward pass under ZeRO stage 3 the
    gathered weights of all layers that the host is ahead of the card."""
    may_wait = counters.up_to(bare, round(bare.expected) + awaited_bytes)
    lag = _lag(job, rank)
    if not lag.most:
        return may_wait
    workspace = round(bare.expected) - max(moment.total for moment in moments)
    forward = max(moment.total for moment in moments if moment.name in _HEAD_OF_QUEUE) + workspace
    expected = max(bare.expected, forward + lag.expected * lag.layer_bytes)
    kept = Quantity(bare.low, expected, max(may_wait.high, expected))
    return counters.up_to(kept, forward + lag.most * lag.layer_bytes)


def _lag(job: Job, rank: Placement) -> Lag:
    if job.train.zero_stage != 3:
        return NO_LAG
    from vramwise.training.speed.lag import lag_of_card

    return lag_of_card(job, rank)


def _lag_at(job: Job, rank: Placement, batch: int, sequence: int) -> Lag:
    return _lag(replace(job, train=job.train.replace(micro_batch_size=batch, sequence_length=sequence)), rank)


def _play(job: Job, rank: Placement, workspace: Node, warm_up: int) -> reserved.Play | None:
    """The replay of this job's step, where it has everything that allocates."""
    if not is_replayed(job.train, rank) or not runs_one_by_one(job.shape(rank), job.model, job.train):
        return None
    batch, sequence = job.train.micro_batch_size, job.local_sequence
    sizes = batch, sequence, job.accumulates, workspace.bytes, rank
    return reserved.Play(job.model, job.structure, *sizes, lag=_lag(job, rank), warm_up=warm_up)


def _limits(
    job: Job, room: int, outside: list[Node], workspace: Node, generating: Phase | None, warm_up: int, *, replays: bool
) -> dict[str, Callable[[], Quantity]]:
    """The searches for the largest sizes, by quantity."""
    from vramwise.training.limits import Room, largest_batch, longest_sequence

    beside, batch, sequence = sum(node.bytes for node in outside), job.train.micro_batch_size, job.train.sequence_length
    awake = 0 if generating is None else generating.bytes
    of = Room(
        job.model,
        job.structure,
        job.ranks,
        job.accumulates,
        room + beside,
        beside,
        workspace.bytes,
        awake,
        replays,
        (job.gpu, job.scenario.gpus_per_node, job.scenario.network_gbit_s),
        warm_up,
        partial(_lag_at, job),
    )
    found = {"max_batch": lambda: Quantity.exact(largest_batch(of, batch, sequence))}
    if reads_tokens(job.model):
        found["max_seq"] = lambda: Quantity.exact(longest_sequence(of, batch, sequence))
    return found


def _speed(job: Job) -> dict[str, Callable[[], Quantity]]:
    """How long a step takes, by quantity; none where the card's rates are not known."""
    if job.gpu is None or not job.gpu.has_rates:
        return {}

    @cache
    def taken() -> StepTime:
        from vramwise.training.speed import step_time

        return step_time(at_usual_length(job))

    found = {"step_time_s": lambda: taken().step_time_s}
    if reads_tokens(job.model):
        found["tokens_per_second"] = lambda: taken().tokens_per_second
    return found


def at_usual_length(job: Job) -> Job:
    """The job with rows as long as they are on average, where that is said and batches are padded to their longest."""
    train = job.train
    if not pads(train) or not train.sample_lengths:
        return job
    usual = usual_length(train.sequence_length, train.sample_lengths, train.micro_batch_size)
    return replace(job, train=train.replace(sequence_length=usual))


_SHORTER_COMPLETIONS = 3, 4
_SHORTER_SAMPLES = 1, 4  # assumed; unsloth's notebooks on Alpaca, cut at 2,048 tokens, take what such samples would


def _at_share(job: Job, rank: Placement, part: int, of: int) -> int:
    """The peak where the longest sequence of the run has this part of the limit, with the loss of the limit."""
    sequence = max(1, job.local_sequence * part // of)
    batch = job.train.micro_batch_size
    return max(m.total for m in moments_at(job.model, job.structure, rank, batch, sequence, job.accumulates))


def _outside_zero_init(job: Job, rank: Placement) -> int:
    """The peak of a step where ZeRO-3's model was made before DeepSpeed knew of it."""
    batch, structure = job.train.micro_batch_size, job.structure.replace(zero_init=False)
    moments = moments_at(job.model, structure, rank, batch, job.local_sequence, job.accumulates)
    return max(m.total for m in moments if m.name not in BEFORE_STEPS)
