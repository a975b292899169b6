"""A training at many sizes at once: the code of its answer on columns of sizes (vramwise.points)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.hardware.room import Room, room_of
from vramwise.models.model import Model
from vramwise.points.columns import Lists, whole_numbers
from vramwise.points.needs import ManyNeeds
from vramwise.points.run import Points
from vramwise.records import record, replace
from vramwise.scenario import Scenario
from vramwise.training import counters
from vramwise.training.answer import first_quantities, fullest_rank
from vramwise.training.job import Job, job_of
from vramwise.training.layout.parallel import Placement
from vramwise.training.recipe.settings import frozen_units_keep_inputs
from vramwise.training.step.moments import BEFORE_STEPS
from vramwise.training.step.state import least_bytes

ALLOCATED, NEEDED, HIGH, PHASE = range(4)
_FEW_STAGES = 4


def needs_of_many(
    scenario: Scenario, model: Model, gpu: Gpu | None, batches: Sequence[int] | None, sequences: Sequence[int] | None,
    *, ends: bool = False,
) -> ManyNeeds | None:  # fmt: skip
    """What a training needs with each micro-batch of a sequence length, one of each column; None: the scenario's own.

    `ends`: also how much it may be. None where its need hangs on more than its moments: on an engine that is awake
    between steps, or on what of the card must stay free. Raises ManyNumbers where the answer is not made for many.
    """
    job, lengths, refusals = _lengths(scenario, model, gpu, sequences)
    room = room_of(scenario, gpu)
    if _hangs_on_more(job, room):
        return None
    many = len(batches if batches is not None else lengths)
    sizes = {
        "batch": [job.train.micro_batch_size] * many if batches is None else batches,
        "sequence": list(lengths) * many if sequences is None else lengths,
    }
    names: list[str] = []
    card_bytes, ranks = None if room is None else room.seen_bytes, telling_ranks(job)

    def work(at: dict[str, Any]) -> list[object]:
        return _needs(_sized(job, at["batch"], at["sequence"]), ranks, card_bytes, names, ends=ends)

    try:
        found = Points(sizes).outcomes(work, 4)
    except OverflowError:
        found = Points(sizes, Lists()).outcomes(work, 4)
    return ManyNeeds(
        found[ALLOCATED], found[NEEDED], found[HIGH] if ends else None, found[PHASE], tuple(names), refusals,
        None if room is None else room.capacity.usable_bytes, counters.cannot_run(job.train, gpu) is None,
    )  # fmt: skip


@record
class AnySize:
    """A training of one sequence length or of any, with its settings decided.

    `held_bytes`: of weights, which every card holds throughout; `least_bytes`: what a card holds at its optimizer's
    step whatever a micro-batch takes beside it. `needed`: the expected need of a micro-batch of so many tokens (None:
    the scenario's own) and the end of its interval, with the numbers of `estimate(..., replays=False)`; None where
    these hang on more.
    """

    held_bytes: int
    least_bytes: int
    runs: bool
    needed: Callable[[int, int | None], tuple[int, int]] | None


def any_size(scenario: Scenario, model: Model, gpu: Gpu | None) -> AnySize:
    """The training of a scenario at any size. Raises what the answer of the scenario raises of its settings."""
    job, room = job_of(scenario, model, gpu), room_of(scenario, gpu)
    card_bytes, ranks = None if room is None else room.seen_bytes, telling_ranks(job)

    def needed(batch: int, sequence: int | None) -> tuple[int, int]:
        own, tokens = job, sequence or job.train.sequence_length
        if sequence is not None and _hangs_on_length(job):
            own = job_of(scenario.replace(train=scenario.train.replace(sequence_length=sequence)), model, gpu)
            tokens = own.train.sequence_length
        _, expected, high, _ = _needs(_sized(own, batch, tokens), ranks, card_bytes, [], ends=True)
        return int(expected), int(high)

    held = min(
        one.weights + one.frozen_weights + one.buffers + one.adapter_weights for one in map(job.states, job.ranks)
    )
    return AnySize(
        held if job.train.offload_params == "none" else 0,
        max(least_bytes(job.model, job.structure, rank) for rank in job.ranks),
        counters.cannot_run(job.train, gpu) is None,
        None if _hangs_on_more(job, room) else needed,
    )


def fits_at_no_size(scenario: Scenario, model: Model, gpu: Gpu | None) -> bool:
    """Whether what a rank has at its optimizer's step is more than the room, whatever a micro-batch takes beside it.

    False where that is not known. Raises what the answer of the scenario raises.
    """
    room = room_of(scenario, gpu)
    return room is not None and any_size(scenario, model, gpu).least_bytes > room.usable_bytes


def _sized(job: Job, batch: Any, sequence: Any) -> Job:
    """The job with so many sequences of so many tokens in a micro-batch."""
    tokens = batch * sequence
    train = job.train.replace(micro_batch_size=batch, sequence_length=sequence).at_tokens(tokens)
    return replace(job, train=train, structure=job.structure.at_tokens(tokens))


def _hangs_on_more(job: Job, room: Room | None) -> bool:
    """Whether the need hangs on more than moments: on an engine that is awake between steps, or on what stays free."""
    return job.train.rollout_gpu_memory_utilization is not None or (room is not None and bool(room.reserve_bytes))


def telling_ranks(job: Job) -> tuple[Placement, ...]:
    """The ranks among which the fullest is: of a pipeline's inner stages with the same layers the one with the most
    micro-batches in flight, which holds no less than the others."""
    if len(job.ranks) < _FEW_STAGES:
        return job.ranks
    layers = [id(run) for run in job.shape(job.ranks[0]).runs if run.layer is not None]
    met: list[tuple[list[int], Placement]] = []
    told: list[Placement] = []
    for rank in job.ranks:
        own = layers[rank.first_layer : rank.last_layer + 1]
        is_inner = not rank.is_first and not rank.is_last
        if is_inner and any(
            own == theirs and other.micro_batches_in_flight >= rank.micro_batches_in_flight for theirs, other in met
        ):
            continue
        met += [(own, rank)] if is_inner else []
        told.append(rank)
    return tuple(told)


def _needs(
    job: Job, ranks: Sequence[Placement], card_bytes: int | None, names: list[str], *, ends: bool
) -> list[Any]:  # fmt: skip
    """ALLOCATED, NEEDED, HIGH and PHASE at the job's sizes; `names` gets that of the moment."""
    full = fullest_rank(job, card_bytes, ranks)
    beside = full.workspace.bytes
    peak = max(full.moments, key=lambda moment: moment.total + (0 if moment.name in BEFORE_STEPS else beside))
    if peak.name not in names:
        names.append(peak.name)
    phase = names.index(peak.name)
    if not ends and not frozen_units_keep_inputs(job.train):  # whose need hangs on reserved memory
        allocated = max(moment.total for moment in full.moments) + beside
        needed = allocated + sum(node.bytes for node in full.outside)
        return [allocated, needed, needed, phase]
    counted = first_quantities(job, full).quantities
    need = counted["total_needed"]
    return [counted["peak_allocated"].expected, need.expected, need.high, phase]


def _lengths(
    scenario: Scenario, model: Model, gpu: Gpu | None, sequences: Sequence[int] | None
) -> tuple[Job, Sequence[int], dict[int, str]]:  # fmt: skip
    """The job, tokens of its longest row for each length that is asked for, and which lengths are refused.

    Raises ScenarioError where all are.
    """
    if sequences is None:
        own = job_of(scenario, model, gpu)
        return own, [own.train.sequence_length], {}
    known: dict[int, int] = {}
    refusals: dict[int, str] = {}
    job: Job | None = None
    refusal: ScenarioError | None = None
    for length in dict.fromkeys(whole_numbers(sequences)):
        if job is not None and not _hangs_on_length(job):
            known[length] = length
            continue
        try:
            job = job_of(scenario.replace(train=scenario.train.replace(sequence_length=length)), model, gpu)
            known[length] = job.train.sequence_length
        except ScenarioError as problem:
            refusals[length], refusal = str(problem), problem
    if job is None:
        raise refusal or ScenarioError("train.sequence_length", "no length is given")
    if not refusals and all(length == taken for length, taken in known.items()):
        return job, sequences, refusals
    return job, [known.get(length, job.train.sequence_length) for length in whole_numbers(sequences)], refusals


def _hangs_on_length(job: Job) -> bool:
    """Whether a length may be refused, or stand for a shorter one."""
    train = job.train
    return train.context_parallel_size > 1 or bool(train.images_per_sequence) or bool(train.sample_lengths)
