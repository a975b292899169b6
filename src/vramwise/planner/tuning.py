"""How a model is trained on a machine: by which method, with how many sequences of how many tokens in a micro-batch.

`full` is what it is everywhere: the framework's own defaults, as `--task train` alone answers. Adapters stand on
checkpointed layers, as people run them where memory is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.hardware import find_gpu
from vramwise.largest import largest_within
from vramwise.models import Model
from vramwise.models.lengths import model_length, reads_tokens
from vramwise.models.operations.experts import ExpertMlps
from vramwise.planner.machine import Machine, machine_of
from vramwise.planner.ways import Question, Way, scenario_of, tried
from vramwise.records import record
from vramwise.result import VerdictWord
from vramwise.training_parts import at_any_size
from vramwise.verdict import word_of

if TYPE_CHECKING:
    from vramwise.training.many import AnySize

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


class Need(NamedTuple):
    """Whether a size fits, and the high end of what it needs."""

    word: VerdictWord
    high: int


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
    ways = [_Sizes(question, way) for way in _ways(question, method)]
    best = _best_of([way for way in ways if way.may_fit], replays=replays)
    if best is not None and best.fits:
        return best
    too_large = _best_of([way for way in ways if not way.may_fit], replays=replays)
    return max((one for one in (best, too_large) if one is not None), key=_rank)


def fitting_step(question: Question, method: Method, *, replays: bool = True) -> Way | None:
    """The same among the settings whose weights leave any room on a card; None, without an estimate, where none do."""
    ways = (_Sizes(question, way) for way in _ways(question, method))
    return _best_of([way for way in ways if way.may_fit], replays=replays)


def _best_of(ways: Sequence[_Sizes], *, replays: bool) -> Way | None:
    best: Way | None = None
    for way in ways:
        found = _sized(way, replays=replays)
        if best is None or _rank(found) > _rank(best):
            best = found
        if best.is_sure and tokens_of(best, way.question.model) in (0, usual_length(way.question.model)):
            break
    return best


class _Sizes:
    """A way at any size: what it needs, its settings decided once, and the whole answer for the size that is taken."""

    def __init__(self, question: Question, way: Way) -> None:
        self.question, self.way = question, way
        self._any: AnySize | None = None
        with suppress(VramwiseError):
            self._any = at_any_size(scenario_of(question, way))
        self._needs: dict[tuple[int, int | None], Need | None] = {}

    @property
    def held_bytes(self) -> int:
        """What a card holds of the weights throughout; 0 where the settings are refused."""
        return 0 if self._any is None else self._any.held_bytes

    @property
    def may_fit(self) -> bool:
        """Whether these leave any room."""
        return self.held_bytes <= self.question.machine.usable_bytes

    @property
    def fits_at_no_size(self) -> bool:
        """Whether it is refused, or has no room for what no size changes."""
        return self._any is None or self._any.least_bytes > self.question.machine.usable_bytes

    def at(self, batch: int, tokens: int | None, *, replays: bool = False) -> Way:
        """The whole answer."""
        return _at(self.question, self.way, batch, tokens, replays=replays)

    def need(self, batch: int, tokens: int | None) -> Need | None:
        """What a size needs; None where it is refused."""
        if (batch, tokens) not in self._needs:
            self._needs[batch, tokens] = self._need(batch, tokens)
        return self._needs[batch, tokens]

    def _need(self, batch: int, tokens: int | None) -> Need | None:
        room = self.question.machine.usable_bytes
        if self._any is None or self._any.needed is None or self.question.estimate is not estimate:
            found = self.at(batch, tokens)
            return None if found.result is None else Need(found.word, int(found.result.needed.high))
        try:
            expected, high = self._any.needed(batch, tokens)
        except VramwiseError:
            return None
        return Need(word_of(expected, high, room) if self._any.runs else "does not fit", high)


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


def _sized(way: _Sizes, *, replays: bool) -> Way:
    """The way at the largest size that fits: as many usual sequences as surely do, else the longest that does alone."""
    model = way.question.model
    usual = usual_length(model) if reads_tokens(model) else None
    if way.fits_at_no_size:
        return way.at(1, usual)
    most = _most_samples(way, usual)
    tokens = usual if most or usual is None else _longest(way, usual)
    return _verified(way, most or 1, tokens, replays=replays)


def _longest(way: _Sizes, usual: int) -> int:
    """Tokens of the longest sequence that surely fits alone, else that fits, else the usual ones."""
    tight: int | None = None
    length = usual
    while (need := way.need(1, length)) is not None:
        if need.word == "fits":
            return length
        if need.word == "tight" and tight is None:
            tight = length
        if length // 2 < LEAST_LENGTH:
            break
        length //= 2
    return tight or usual


def _at(question: Question, way: Way, batch: int, tokens: int | None, *, replays: bool = False) -> Way:
    return tried(question, _sized_as(way, batch, tokens), replays=replays)


def _sized_as(way: Way, batch: int, tokens: int | None) -> Way:
    sizes = {"micro_batch_size": batch, **({} if tokens is None else {"sequence_length": tokens})}
    return replace(way, settings={**way.settings, **sizes})


def _most_samples(way: _Sizes, tokens: int | None) -> int:
    """The largest micro-batch that surely fits; 0 where a single sample does not.

    Two are tried first where weights leave half of the room: a single sample has operations of its own, which are
    recorded for nothing where more fit.
    """
    room = way.question.machine.usable_bytes

    def high(batch: int) -> int:
        need = way.need(batch, tokens)
        return room + 1 if need is None else need.high

    least = 2 if 2 * way.held_bytes <= room else 1
    need = way.need(least, tokens)
    if need is not None and need.word == "fits" and need.high <= room:
        return largest_within(high, room, _MOST_SAMPLES, (least, need.high))
    alone = way.need(1, tokens)
    return int(alone is not None and alone.word == "fits")


def _verified(way: _Sizes, batch: int, tokens: int | None, *, replays: bool) -> Way:
    """The way's whole answer at a size; where a replay finds no room for it, at the next smaller ones."""
    need = way.need(batch, tokens)
    if not replays or need is None or need.word == "does not fit":
        return way.at(batch, tokens)
    for _ in range(_MOST_STEPS):
        whole = way.at(batch, tokens, replays=True)
        if whole.is_sure if need is not None and need.word == "fits" else whole.fits:
            break
        smaller = _smaller(batch, tokens)
        if smaller is None:
            break
        batch, tokens = smaller
        need = way.need(batch, tokens)
    return whole


def _smaller(batch: int, tokens: int | None) -> tuple[int, int | None] | None:
    """The next smaller size: fewer sequences, then a shorter one; None where there is none."""
    if batch > 1:
        return max(1, min(batch - 1, batch * 15 // 16)), tokens
    if tokens is not None and tokens // 2 >= LEAST_LENGTH:
        return 1, tokens // 2
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
