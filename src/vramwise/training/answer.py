"""A training scenario's whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vramwise.hardware import Gpu
from vramwise.largest import largest_within
from vramwise.models.autograd.size import with_rounded_axes
from vramwise.models.model import Model
from vramwise.result import Capacity, ModelFacts, Node, Phase, Quantity, Rank, Result
from vramwise.scenario import Scenario, TrainSettings
from vramwise.training import counters
from vramwise.training.activations.sizes import RunBytes, step_shape
from vramwise.training.exchange.communication import buffers
from vramwise.training.exchange.offload import host_parts, offloaded
from vramwise.training.exchange.zero_buffers import offload_staging_bytes
from vramwise.training.layout.layouts import check_layout
from vramwise.training.layout.parallel import Placement, placements
from vramwise.training.lazy_quantities import LazyQuantities
from vramwise.training.model_states.states import ModelStates, model_states
from vramwise.training.notes import host_notes, notes_of
from vramwise.training.recipe.adapters import check_trainable
from vramwise.training.recipe.framework_defaults import taken_note
from vramwise.training.recipe.heads import untied, with_head
from vramwise.training.recipe.images import check_images
from vramwise.training.recipe.masks import check_padding, rows_of
from vramwise.training.recipe.settings import (
    frozen_units_keep_inputs,
    gradients_stay,
    reduces_in_backward,
    releases_gradients,
    resolved,
    samples_completions,
    structural,
)
from vramwise.training.recipe.towers import with_whole_towers
from vramwise.training.reserved_memory import reserved
from vramwise.training.reserved_memory.replay import is_replayed
from vramwise.training.step import rollout
from vramwise.training.step.micro_batches import on_stage
from vramwise.training.step.moments import Moment, step_moments
from vramwise.training.step.overload import overload_bytes
from vramwise.training.tree import activations_node, phase, state_nodes

MOST_SEQUENCES = 1_000_000
_MOST_REPLAYED = 8  # micro-batches below the largest by its tensors; a step keeps some per cent in holes at most


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario with everything decided: what is needed to evaluate it at other sizes."""

    scenario: Scenario
    model: Model
    train: TrainSettings
    structure: TrainSettings
    gpu: Gpu | None
    ranks: tuple[Placement, ...]

    def states(self, rank: Placement) -> ModelStates:
        return model_states(self.model, self.structure, rank)

    def moments(self, rank: Placement) -> list[Moment]:
        """The moments of one rank at the scenario's sizes."""
        train = self.train
        return _moments(self.model, self.structure, rank, train.micro_batch_size, self.local_sequence, self.accumulates)

    @property
    def accumulates(self) -> bool:
        """Whether a new gradient is added to one that is there, or goes at once, as into the buckets of ZeRO-2."""
        return gradients_stay(self.train) or releases_gradients(self.train) or reduces_in_backward(self.train)

    @property
    def ranks_of_a_node(self) -> int:
        """GPUs of one node that this job uses."""
        return max(1, min(self.scenario.num_gpus, self.scenario.gpus_per_node))

    @property
    def local_sequence(self) -> int:
        """Tokens of a sequence that one rank computes."""
        assert self.train.sequence_length is not None
        return -(-self.train.sequence_length // self.train.context_parallel_size)

    @property
    def axes(self) -> dict[str, int]:
        """Rows that the model gets for a micro-batch, and tokens of a row on one rank."""
        batch, sequence = rows_of(self.train, self.train.micro_batch_size, self.local_sequence)
        return {"batch": batch, "sequence": sequence}

    def accumulates_on(self, rank: Placement) -> bool:
        """The same on a rank, whose stage of a pipeline adds up the gradients of all micro-batches."""
        return self.accumulates or rank.stages > 1

    def runs(self, rank: Placement) -> list[RunBytes]:
        """The blocks of the rank's stage at the scenario's sizes."""
        shape = step_shape(self.model, self.structure, **self.axes, accumulating=self.accumulates_on(rank))
        return on_stage(shape.at(with_rounded_axes(**self.axes)), rank)


def job_of(scenario: Scenario, model: Model, gpu: Gpu | None) -> Job:
    """The scenario with open settings decided."""
    if scenario.train.head in ("sequence-classification", "none"):
        model = with_head(model, scenario.train.head)
    if scenario.train.framework == "litgpt":
        model = untied(model)
    train = resolved(scenario, model, gpu)
    check_layout(scenario, train, model)
    check_images(train, model)
    check_padding(train)
    check_trainable(model, train.trainable)
    model = with_whole_towers(train, model)
    return Job(scenario, model, train, structural(train), gpu, placements(scenario, train, model))


def estimate_training(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, *, replays: bool) -> Result:
    """Memory of one training step on the rank that needs most (see `vramwise.training`)."""
    job = job_of(scenario, model, gpu)
    model = job.model
    found = [(rank, job.moments(rank)) for rank in job.ranks]
    peaks = [max(moments, key=lambda moment: moment.total) for _, moments in found]
    worst = max(range(len(found)), key=lambda i: peaks[i].total)
    rank, moments = found[worst]
    capacity = counters.capacity_of(scenario, gpu)
    outside = counters.outside_torch(job.train, gpu, rollout.during_training(job.train, capacity))
    nccl = counters.nccl_node(rank)
    if nccl is not None:
        outside.append(nccl)
    workspace = counters.workspace_node(gpu, job.train, model)
    phases = _phases(job, rank, moments, workspace, tuple(outside))
    peak_phase = peaks[worst].name
    stepped = "optimizer in backward" if releases_gradients(job.train) else "optimizer step"
    step = next(phase for phase in phases if phase.name == stepped)
    generating = rollout.generation(job.train, capacity, step, tuple(outside))
    if generating is not None:
        phases = (*phases, generating)
        peak_phase = max(phases, key=lambda phase: phase.bytes).name
    by_ratio, quantities = _quantities(job, rank, moments, workspace, outside)
    host = _host_parts(job, rank)
    if host:
        quantities["host_memory"] = Quantity.exact(sum(host.values()) * job.ranks_of_a_node)
    play = _play(job, rank, workspace) if replays else None
    verdict, room = None, None
    if capacity is not None:
        room = int(capacity.usable_bytes) - sum(node.bytes for node in outside)
        stuck = None if play is None else reserved.out_of_room(play, quantities["peak_allocated"], room)
        quantities["max_batch"] = _max_batch(job, rank, capacity, quantities["total_needed"], peaks[worst])
        if stuck is not None:
            quantities["total_needed"] = reserved.with_segment(quantities["total_needed"], stuck, outside)
        quantities["total_needed"] = rollout.at_least(quantities["total_needed"], generating)
        wanted = 0 if stuck is None else stuck.wanted
        verdict = counters.judged(quantities["total_needed"], capacity, peak_phase, job.train, gpu, wanted)
        quantities["oom"] = Quantity.exact(verdict.headroom_bytes < 0)
    fits = verdict is not None and verdict.headroom_bytes >= 0
    answered = _Replayable(job, rank, moments, outside, generating, room, fits)
    return Result(
        scenario=replace(scenario, train=job.train).to_dict(),
        model=ModelFacts(
            model.id, model.num_parameters, model.num_active_parameters, job.states(rank).num_trainable, source
        ),
        quantities=answered.quantities(quantities, by_ratio, play),
        phases=phases,
        peak_phase=peak_phase,
        ranks=tuple(Rank(_rank_name(r, len(job.ranks)), peak.total) for (r, _), peak in zip(found, peaks, strict=True)),
        capacity=capacity,
        verdict=verdict,
        notes=(
            *filter(None, (taken_note(scenario.train, job.train),)),
            *notes_of(job.train, model, job.states(rank), engine_counted=rollout.is_counted(job.train, capacity)),
            *host_notes(host, job.ranks_of_a_node),
        ),
    )


def _host_parts(job: Job, rank: Placement) -> dict[str, int]:
    """Bytes of host memory for what the rank offloads, by term."""
    kept = 0
    if offloaded(job.train).activations:
        layers = [run for run in job.runs(rank) if run.shape.layer is not None]
        kept = sum(run.activations - run.handed_on for run in layers)
    staged = offload_staging_bytes(job.model, job.structure, rank)
    return host_parts(job.states(rank), job.train, kept, staged)


def _rank_name(rank: Placement, stages: int) -> str:
    return f"stage {rank.stage}" if stages > 1 else "every GPU"


def _phases(
    job: Job, rank: Placement, moments: list[Moment], workspace: Node, outside: tuple[Node, ...]
) -> tuple[Phase, ...]:
    kind = "exact" if job.train.framework in ("transformers", "pytorch") else "derived"
    axes = job.axes
    states = job.states(rank)
    shared = state_nodes(states, job.train)
    end = next(moment for moment in moments if moment.name == "forward end")
    if "activations" in end.parts:
        shared["activations"] = activations_node(
            job.runs(rank), end.parts["activations"], with_rounded_axes(**axes), kind
        )
    return tuple(
        phase(moment, shared, kind, axes, (() if moment.name == "load" else (workspace,)) + outside)
        for moment in moments
    )


def _quantities(
    job: Job, rank: Placement, moments: list[Moment], workspace: Node, outside: list[Node]
) -> tuple[Quantity, dict[str, Quantity]]:
    """Reserved memory by a calibrated ratio, and every counter but those that hang on it."""
    peak, load = max(moments, key=lambda moment: moment.total), moments[0]
    low, high = counters.profile_error(job.train, rank, job.model)
    tensors = counters.widened(peak.total, low, high)
    if samples_completions(job.train):
        tensors = counters.down_to(tensors, _with_shorter_completions(job, rank))
    overload = overload_bytes(
        job.model, job.structure, rank, with_rounded_axes(**job.axes), accumulating=job.accumulates_on(rank)
    )
    tensors = counters.up_to(tensors, peak.total + overload) if overload else tensors
    allocated = counters.plus(tensors, workspace)
    exchanged = buffers(job.model, job.structure, rank)
    by_ratio = reserved.reserved(allocated, moments, job.train, rank, job.states(rank), exchanged)
    process = counters.plus(by_ratio, *outside)
    needed = counters.plus(allocated, *outside)
    if frozen_units_keep_inputs(job.train):  # they lie between a layer's temporaries, whose room is never whole again
        needed = process
    return by_ratio, {
        "params": Quantity.exact(job.model.num_parameters),
        "weights": Quantity.exact(sum(load.parts.get(name, 0) for name in ("weights", "adapters"))),
        "peak_allocated": allocated,
        "total_needed": Quantity(needed.low, needed.expected, max(needed.expected, round(process.expected)) + overload),
    }


def _play(job: Job, rank: Placement, workspace: Node) -> reserved.Play | None:
    """The replay of this job's step, where it has everything that allocates."""
    if not is_replayed(job.train, rank):
        return None
    batch, sequence = job.train.micro_batch_size, job.local_sequence
    return reserved.Play(job.model, job.structure, batch, sequence, job.accumulates, workspace.bytes, rank)


@dataclass(frozen=True, slots=True)
class _Replayable:
    """What hangs on reserved memory. `room`: bytes of the card for torch, within which a run that `fits` keeps."""

    job: Job
    rank: Placement
    moments: list[Moment]
    outside: list[Node]
    generating: Phase | None
    room: int | None
    fits: bool

    def quantities(
        self, ready: dict[str, Quantity], by_ratio: Quantity, play: reserved.Play | None
    ) -> Mapping[str, Quantity]:
        """All quantities in order; those that a replay decides are worked out when they are read."""
        counted = {"peak_reserved": self._kept(by_ratio), "nvidia_smi": self._process(by_ratio)}
        before = ("params", "weights", "peak_allocated")
        ordered = {name: ready[name] for name in before} | counted | ready
        if play is None:
            return ordered
        allocated = ready["peak_allocated"]

        def reserved_bytes() -> Quantity:
            room, train = self.room if self.fits else None, self.job.train
            found = reserved.played_within(play, allocated, room)
            if found is None:
                return by_ratio
            return reserved.replayed_reserved(allocated, self.moments, train, found, room, play)

        late = {
            "peak_reserved": lambda: self._kept(reserved_bytes()),
            "nvidia_smi": lambda: self._process(reserved_bytes()),
        }
        if self.room is not None:
            late["max_batch"] = lambda: self._largest_that_runs(int(ready["max_batch"].expected), play)
        return LazyQuantities(ordered, ordered, late)

    def _largest_that_runs(self, most: int, play: reserved.Play) -> Quantity:
        """The largest micro-batch up to `most`, which fits by its tensors, whose segments find room as well."""
        job, rank = self.job, self.rank
        assert self.room is not None
        for batch in range(most, max(0, most - _MOST_REPLAYED), -1):
            moments = _moments(job.model, job.structure, rank, batch, job.local_sequence, job.accumulates)
            tensors = max(moment.total for moment in moments) + play.workspace_bytes
            if reserved.out_of_room(replace(play, batch=batch), Quantity.exact(tensors), self.room) is None:
                return Quantity.exact(batch)
        return Quantity.exact(max(0, most - _MOST_REPLAYED))

    def _kept(self, kept: Quantity) -> Quantity:
        return kept if self.room is None or not self.fits else counters.at_most(kept, self.room)

    def _process(self, kept: Quantity) -> Quantity:
        process = counters.plus(kept, *self.outside)
        process = Quantity(process.low, process.expected, process.high + self.job.states(self.rank).paged_optimizer)
        if self.room is not None and self.fits:
            process = counters.at_most(process, self.room + sum(node.bytes for node in self.outside))
        return rollout.at_least(process, self.generating)


def _with_shorter_completions(job: Job, rank: Placement) -> int:
    """The peak where the longest sampled completion ends at three quarters of the limit."""
    sequence = max(1, job.local_sequence * 3 // 4)
    batch = job.train.micro_batch_size
    return max(m.total for m in _moments(job.model, job.structure, rank, batch, sequence, job.accumulates))


def _max_batch(job: Job, rank: Placement, capacity: Capacity, needed: Quantity, peak: Moment) -> Quantity:
    """The largest micro-batch whose expected tensors are not above the usable memory."""
    fixed = int(needed.expected) - peak.total
    key = _Search(job.model, job.structure, rank, job.local_sequence, job.accumulates, capacity.usable_bytes - fixed)
    found = _searched.get(key)
    if found is None:
        known = job.train.micro_batch_size, peak.total
        found = largest_within(key.need, key.room, MOST_SEQUENCES, known if known[0] <= MOST_SEQUENCES else None)
        _searched[key] = found
        while len(_searched) > _REMEMBERED_SEARCHES:
            del _searched[next(iter(_searched))]
    return Quantity.exact(found)


@dataclass(frozen=True, slots=True)
class _Search:
    """What the largest micro-batch depends on: everything but the micro-batch that was asked for."""

    model: Model
    structure: TrainSettings
    rank: Placement
    sequence: int
    accumulates: bool
    room: int

    def need(self, batch: int) -> int:
        found = _moments(self.model, self.structure, self.rank, batch, self.sequence, self.accumulates)
        return max(moment.total for moment in found)


_REMEMBERED_SEARCHES = 4096
_searched: dict[_Search, int] = {}


def _moments(
    model: Model, structure: TrainSettings, rank: Placement, batch: int, sequence: int, accumulates: bool
) -> list[Moment]:
    rows, tokens = rows_of(structure, batch, sequence)
    shape = step_shape(model, structure, rows, tokens, accumulating=accumulates or rank.stages > 1)
    axes = with_rounded_axes(batch=rows, sequence=tokens, samples=batch)
    return step_moments(shape, model, model_states(model, structure, rank), structure, rank, axes)
