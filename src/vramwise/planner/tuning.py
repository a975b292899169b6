"""How a model is trained on a machine: by which method, with how many sequences of how many tokens in a micro-batch.

`full` is what it is everywhere: the framework's own defaults, as `--task train` alone answers. Adapters stand on
checkpointed layers, as people run them where memory is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate, needs_together
from vramwise.hardware import find_gpu
from vramwise.largest import largest_within
from vramwise.models import Model
from vramwise.models.lengths import model_length, reads_tokens
from vramwise.models.operations.experts import ExpertMlps
from vramwise.planner.machine import Machine, machine_of
from vramwise.planner.ways import Question, Way, scenario_of, tried
from vramwise.records import record
from vramwise.training_parts import weights_held

USUAL_LENGTH = 2048
LEAST_LENGTH = 256
MOST_GPUS = 1024
MOST_UNLINKED_GPUS = 8  # of one machine: without links between nodes nobody shards over more
Wanted = Callable[[str], bool]
"""Whether a training by a method is of any use to who asks."""
_MOST_STEPS = 12
_MOST_SAMPLES = 100_000
CHECKPOINTED: Mapping[str, object] = {"checkpointing": "full"}
SHARDED: Mapping[str, object] = {"fsdp": "full-shard"}


@record
class Method:
    """A way to train, with the least bytes of a parameter that are on one card, or shared by all."""

    name: str
    title: str
    precision: str
    settings: Mapping[str, object]
    bytes_per_parameter: float

    def may_fit(self, num_parameters: int, machine: Machine) -> bool:
        """Whether what shards hold of so many parameters alone leaves any room on the cards."""
        return self.bytes_per_parameter * num_parameters <= machine.usable_bytes * machine.num_gpus


QLORA = Method("qlora", "QLoRA, checkpointing", "nf4", {"method": "qlora", "checkpointing": "full"}, 0.5)
LORA = Method("lora", "LoRA 16 bit, checkpointing", "16 bit", {"method": "lora", "checkpointing": "full"}, 2.0)
FULL = Method("full", "full", "16 bit", {"method": "full"}, 8.0)
METHODS = (QLORA, LORA, FULL)
_QLORA_OF_EXPERTS = replace(
    QLORA,
    title="QLoRA of experts too",
    precision="nf4, experts too",
    settings={**QLORA.settings, "quantize_experts": True},
)
"""Where experts are one fused tensor, bitsandbytes leaves them in 16 bit unless a framework quantizes them itself."""


def usual_length(model: Model) -> int:
    """Tokens of a sequence in a step that nobody sized."""
    return min(USUAL_LENGTH, model_length(model))


def best_step(question: Question, method: Method, *, replays: bool = True) -> Way:
    """The largest micro-batch of usual sequences that surely fits, else the longest sequence alone that does.

    Where neither fits, the answer for one usual sequence. What is returned has an answer of its own, replay included.
    """
    ways = list(_ways(question, method))
    best = _best_of([way for way in ways if _may_fit(question, way)], question, replays=replays)
    if best is not None and best.fits:
        return best
    found = [best] if best is not None else []
    too_large = _best_of([way for way in ways if not _may_fit(question, way)], question, replays=replays)
    return max([*found, *([too_large] if too_large is not None else [])], key=_rank)


def fitting_step(question: Question, method: Method, *, replays: bool = True) -> Way | None:
    """The same among the settings whose weights leave any room on a card; None, without an estimate, where none do."""
    return _best_of([way for way in _ways(question, method) if _may_fit(question, way)], question, replays=replays)


def _best_of(ways: Sequence[Way], question: Question, *, replays: bool) -> Way | None:
    best: Way | None = None
    for way in ways:
        found = _sized(question, way, replays=replays)
        if best is None or _rank(found) > _rank(best):
            best = found
        if best.is_sure and tokens_of(best, question.model) in (0, usual_length(question.model)):
            break
    return best


def _may_fit(question: Question, way: Way) -> bool:
    """Whether what a card holds of the weights throughout leaves any room."""
    return _held_bytes(question, way) <= question.machine.usable_bytes


def _held_bytes(question: Question, way: Way) -> int:
    """What a card holds of the weights throughout; 0 where the settings are refused."""
    try:
        return weights_held({"model": question.name, **way.scenario})
    except VramwiseError:
        return 0


def _ways(question: Question, method: Method) -> Iterator[Way]:
    """The method's settings, first as they are, then over shared weights, then with experts quantized as well."""
    variants = [method]
    if method is QLORA and question.model.has(ExpertMlps):
        variants.append(_QLORA_OF_EXPERTS)
    for variant in variants:
        for sharing in _sharings(question.machine, method):
            yield Way("train", method.name, variant.precision, {**variant.settings, **sharing}, question.machine)


def may_be_tuned(num_parameters: int, machine: Machine, wanted: Wanted) -> bool:
    """Whether a model may be trained on the machine by a method that is wanted, as far as its weights alone say."""
    return any(wanted(one.name) and one.may_fit(num_parameters, machine) for one in METHODS)


def one_step(question: Question, method: Method) -> Way:
    """The answer for one usual sequence, by the calibrated ratio of reserved memory: many cards in little time."""
    tokens = usual_length(question.model) if reads_tokens(question.model) else None
    return max((_at(question, way, 1, tokens) for way in _ways(question, method)), key=_rank)


def best_tuning(question: Question, wanted: Wanted | None = None, *, replays: bool = True) -> Way | None:
    """The method that changes most of the model and surely fits, else what fits tightly; None where none does.

    What shards hold of the weights and their states alone rules a method out before it is tried. `wanted`: who asks has
    use for these methods alone; None too as soon as it can be none of them.
    """
    tight: Way | None = None
    methods = [one for one in reversed(METHODS) if one.may_fit(question.model.num_parameters, question.machine)]
    for place, method in enumerate(methods):
        further = (*([tight.method] if tight is not None else []), *(one.name for one in methods[place:]))
        if wanted is not None and not any(map(wanted, further)):
            return None
        way = fitting_step(question, method, replays=replays)
        if way is not None and way.is_sure:
            return way
        tight = tight or (way if way is not None and way.fits else None)
    return tight


def _rank(way: Way) -> tuple[bool, bool, int]:
    return way.is_sure, way.fits, -(way.needed_bytes or 1 << 62)


def _sharings(machine: Machine, method: Method) -> Iterator[Mapping[str, object]]:
    """How several cards share a job: each a copy of its own where adapters train, and weights cut up."""
    if machine.num_gpus == 1:
        yield {}
        return
    if method is not FULL:
        yield {}
    yield SHARDED


def _sized(question: Question, way: Way, *, replays: bool) -> Way:
    """The way at the largest size that fits."""
    if not reads_tokens(question.model):
        return _verified(question, _most_samples(question, way, None), replays=replays)
    usual = usual_length(question.model)
    one = _most_samples(question, way, usual)
    if one.result is None:
        return one
    if one.is_sure:
        return _verified(question, one, replays=replays)
    shorter = [one]
    while not shorter[-1].is_sure and tokens_of(shorter[-1], question.model) // 2 >= LEAST_LENGTH:
        shorter.append(_at(question, way, 1, tokens_of(shorter[-1], question.model) // 2))
    fitting = [found for found in shorter if found.fits]
    best = next((found for found in fitting if found.is_sure), fitting[0] if fitting else one)
    return _verified(question, best, replays=replays)


def _at(question: Question, way: Way, batch: int, tokens: int | None, *, replays: bool = False) -> Way:
    return tried(question, _sized_as(way, batch, tokens), replays=replays)


def _sized_as(way: Way, batch: int, tokens: int | None) -> Way:
    sizes = {"micro_batch_size": batch, **({} if tokens is None else {"sequence_length": tokens})}
    return replace(way, settings={**way.settings, **sizes})


def _most_samples(question: Question, way: Way, tokens: int | None) -> Way:
    """The way with the largest micro-batch that surely fits, else with a single sample.

    Two are tried first where weights leave half of the room: a single sample has operations of its own, which are
    recorded for nothing where more fit.
    """
    room = question.machine.usable_bytes
    least = 2 if 2 * _held_bytes(question, way) <= room else 1
    found = _at(question, way, least, tokens)
    if not found.is_sure or _highest_need(found, room) > room:
        return found if least == 1 else _at(question, way, 1, tokens)

    def need(batch: int) -> int:
        known = _need_alone(question, _sized_as(way, batch, tokens))
        return _highest_need(_at(question, way, batch, tokens), room) if known is None else known

    most = largest_within(need, room, _MOST_SAMPLES, (least, _highest_need(found, room)))
    return _at(question, way, most, tokens) if most > least else found


def _need_alone(question: Question, way: Way) -> int | None:
    """The high end of what an estimate of it says that it needs, without the rest of the answer; None where that alone
    has no such number."""
    if question.estimate is not estimate:
        return None
    try:
        many = needs_together(scenario_of(question, way), [batch_of(way)], None, ends=True)
    except VramwiseError:
        return None
    if many is None or many.high_bytes is None or int(many.phases[0]) < 0:
        return None
    return int(many.high_bytes[0])


def _highest_need(way: Way, room: int) -> int:
    """The high end of what it needs; more than the room where it has no answer."""
    return int(way.result.needed.high) if way.result is not None else room + 1


def _verified(question: Question, way: Way, *, replays: bool) -> Way:
    """The way with its full answer; where a replay finds no room for a size, with the next smaller ones."""
    if not way.fits or not replays:
        return way
    for _ in range(_MOST_STEPS):
        whole = tried(question, way)
        if whole.is_sure if way.is_sure else whole.fits:
            return whole
        smaller = _smaller(question, way)
        if smaller is None:
            return whole
        way = smaller
    return whole


def _smaller(question: Question, way: Way) -> Way | None:
    batch, tokens = batch_of(way), tokens_of(way, question.model)
    if batch > 1:
        fewer = max(1, min(batch - 1, batch * 15 // 16))
        return _at(question, way, fewer, tokens if reads_tokens(question.model) else None)
    if reads_tokens(question.model) and tokens // 2 >= LEAST_LENGTH:
        return _at(question, way, 1, tokens // 2)
    return None


def batch_of(way: Way) -> int:
    """Sequences in a micro-batch."""
    return int(str(way.settings.get("micro_batch_size", 1)))


def tokens_of(way: Way, model: Model) -> int:
    """Tokens of a sequence; of a model of images alone 0."""
    if not reads_tokens(model):
        return 0
    return int(str(way.settings.get("sequence_length") or usual_length(model)))


def fewest_cards(question: Question, card: str, *, replays: bool = True) -> Way | None:
    """Full training of one usual sequence a card on the fewest cards of a kind that hold it.

    On one as it is, or with checkpointing; over several shared out by FSDP, with checkpointing. Numbers are powers of
    two, which models and batches divide over. None where no number is enough, or none has an answer.
    """
    gpu = find_gpu(card).gpu
    most = MOST_GPUS if gpu.is_linked else MOST_UNLINKED_GPUS
    tight: Way | None = None
    for machine in (machine_of(gpu=card, num_gpus=1 << power) for power in range(most.bit_length())):
        for more in _of_a_cluster(machine.num_gpus):
            way = Way("train", FULL.name, FULL.precision, {**FULL.settings, **more}, machine)
            tokens = usual_length(question.model) if reads_tokens(question.model) else None
            here = replace(question, machine=machine)
            found = _at(here, way, 1, tokens)
            if found.fits and replays:
                found = tried(here, found)
            if found.is_sure:
                return found
            tight = tight or (found if found.fits else None)
    return tight


def _of_a_cluster(num_gpus: int) -> tuple[Mapping[str, object], ...]:
    return ({}, CHECKPOINTED) if num_gpus == 1 else ({**SHARDED, **CHECKPOINTED},)
