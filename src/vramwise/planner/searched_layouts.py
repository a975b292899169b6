"""Every layout of a training over some cards, with every micro-batch at once: what fits, and how fast it is.

Layouts and kinds of checkpointing are structures, each recorded once; their micro-batches are columns
(vramwise.points), on which the code of the estimate runs, so that what is needed is that of an estimate of each, to the
byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate, fits_at_no_size, needs_together
from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.planner.beside import WORTH_BESIDE, Beside
from vramwise.planner.card_precision import for_the_card
from vramwise.planner.changes import changed, rows_of_a_sample
from vramwise.planner.combinations import Seen
from vramwise.planner.layouts import layouts
from vramwise.planner.option import RECOMPUTE, Wishes
from vramwise.planner.saved_search import Candidate, SavedSearch, key_of
from vramwise.points.needs import ManyNeeds
from vramwise.records import record
from vramwise.result import VERDICT_WORDS, VerdictWord
from vramwise.scenario import Scenario
from vramwise.training_parts import tokens_per_second
from vramwise.verdict import word_of

MICRO_BATCHES = tuple(range(1, 33))
"""Fewer than columns take arrays for: lists are as quick, and NumPy alone takes a tenth of a second to come."""
_alone = partial(estimate, replays=False)


@record
class _Need:
    """What one micro-batch needs; None where that is refused."""

    needed_bytes: int | None
    word: VerdictWord | None

    @property
    def fits(self) -> bool:
        return self.word is not None and self.word != "does not fit"


@record
class Found:
    """What fits the cards, sure and fast ones first; `is_whole`: whether all layouts were searched."""

    candidates: list[Candidate]
    is_whole: bool


def searched(
    scenario: Scenario, model: Model, wishes: Wishes, seen: Seen, saved: SavedSearch | None = None,
    beside: Beside | None = None,
) -> Found:  # fmt: skip
    """What fits the scenario's cards; a KeyboardInterrupt ends the search with what was found.

    `beside`: processes that search layouts beside one another, where there are many.
    """
    saved, found, is_whole = saved or SavedSearch(), list[Candidate](), True
    every = {key_of(scenario, layout): layout for layout in layouts(scenario, model, scenario.num_gpus)}
    new = [layout for key, layout in every.items() if not saved.has(key)]
    several = beside is not None and beside.are_several and len(new) >= WORTH_BESIDE
    answers = beside.in_order(partial(_counted, scenario, wishes), new) if beside is not None and several else None

    def search(layout: Mapping[str, object]) -> Iterable[Candidate]:
        if answers is None:
            return _of_layout(scenario, layout, wishes, seen)
        candidates, many = next(answers)
        for _ in range(many):
            seen(0)
        return candidates

    try:
        for key, layout in every.items():
            found += saved.of(key, partial(search, layout))
    except KeyboardInterrupt:
        is_whole = False
    found.sort(key=lambda one: (VERDICT_WORDS.index(one.word), -one.tokens_per_second))
    return Found(found, is_whole)


def _counted(scenario: Scenario, wishes: Wishes, layout: Mapping[str, object]) -> tuple[list[Candidate], int]:
    """What fits of a layout, and how many scenarios that took."""
    numbers: list[int] = []
    return list(_of_layout(scenario, layout, wishes, numbers.append)), len(numbers)


def _of_layout(
    scenario: Scenario, layout: Mapping[str, object], wishes: Wishes, seen: Seen
) -> Iterator[Candidate]:  # fmt: skip
    kinds = [*_checkpointing(scenario, wishes)]
    for kind in reversed(kinds):
        structure = {**layout, **kind}
        needs = {} if set(structure) & wishes.keep else _needs(scenario, structure, wishes, seen)
        fitting = {batch: need for batch, need in needs.items() if need.fits}
        if not fitting and kind is kinds[-1]:
            return  # what recomputes most needs least
        yield from _faster_and_faster(scenario, structure, fitting)


def _faster_and_faster(
    scenario: Scenario, structure: Mapping[str, object], fitting: Mapping[int, _Need]
) -> Iterator[Candidate]:  # fmt: skip
    """The micro-batches that are faster than smaller ones: powers of two, and the largest that fits."""
    fastest = 0.0
    for batch, need in fitting.items():
        if batch & (batch - 1) and batch != max(fitting):
            continue
        values = _with_batch(scenario, structure, batch)
        try:
            rate = tokens_per_second(for_the_card(changed(scenario, values)))
        except VramwiseError:
            continue
        if (rate or 0.0) <= fastest and fastest:
            return
        fastest = rate or 0.0
        if need.needed_bytes is not None and need.word is not None:
            yield Candidate(values, need.needed_bytes, need.word, fastest)


def _micro_batches(scenario: Scenario) -> list[int]:
    """The sizes to try: whole samples."""
    return [size for size in MICRO_BATCHES if size % rows_of_a_sample(scenario.train) == 0]


def _needs(
    scenario: Scenario, structure: Mapping[str, object], wishes: Wishes, seen: Seen
) -> dict[int, _Need]:  # fmt: skip
    """What every micro-batch needs; those that accumulate gradients are a structure apart from those that do not."""
    stated = scenario.train.micro_batch_size
    sizes = [stated] if "micro_batch_size" in wishes.keep else sorted({stated, *_micro_batches(scenario)})
    found: dict[int, _Need] = {}
    groups: dict[bool, list[int]] = {}
    for batch in sizes:
        steps = _with_batch(scenario, structure, batch).get(
            "gradient_accumulation_steps", scenario.train.gradient_accumulation_steps
        )
        groups.setdefault(steps != 1, []).append(batch)
        seen(0)
    for batches in groups.values():
        found |= _needs_of(scenario, structure, batches)
    return dict(sorted(found.items()))


def _needs_of(scenario: Scenario, structure: Mapping[str, object], batches: Sequence[int]) -> dict[int, _Need]:
    try:
        base = for_the_card(changed(scenario, _with_batch(scenario, structure, batches[0])))
        if fits_at_no_size(base):
            return {}
        many = needs_together(base, batches, None, ends=True) if len(batches) > 1 else None
    except VramwiseError:
        return {}
    if many is None:
        return _one_by_one(scenario, structure, batches)
    return {batch: _need_at(many, place, scenario, structure, batch) for place, batch in enumerate(batches)}


def _need_at(
    many: ManyNeeds, place: int, scenario: Scenario, structure: Mapping[str, object], batch: int
) -> _Need:  # fmt: skip
    if int(many.phases[place]) < 0 or many.usable_bytes is None or many.high_bytes is None:
        return _estimated(scenario, structure, batch)
    needed, high = int(many.needed_bytes[place]), int(many.high_bytes[place])
    return _Need(needed, word_of(needed, high, many.usable_bytes) if many.runs else "does not fit")


def _one_by_one(scenario: Scenario, structure: Mapping[str, object], batches: Sequence[int]) -> dict[int, _Need]:
    """Powers of two by estimates of their own, up to the first that does not fit."""
    found: dict[int, _Need] = {}
    for batch in batches:
        if not batch & (batch - 1) or len(batches) == 1:
            found[batch] = _estimated(scenario, structure, batch)
            if not found[batch].fits:
                break
    return found


def _estimated(scenario: Scenario, structure: Mapping[str, object], batch: int) -> _Need:
    try:
        result = _alone(for_the_card(changed(scenario, _with_batch(scenario, structure, batch))))
    except VramwiseError:
        return _Need(None, None)
    return _Need(int(result.needed.expected), None if result.verdict is None else result.verdict.word)


def _with_batch(scenario: Scenario, structure: Mapping[str, object], batch: int) -> dict[str, object]:
    """The structure with a micro-batch, and as many of them as make the optimizer's batch no smaller than asked for."""
    stated = scenario.train.micro_batch_size
    values = {**structure} if batch == stated else {**structure, "micro_batch_size": batch}
    train = scenario.train.replace(**values)
    if train.pipeline_parallel_size > 1 or batch == stated:
        return values
    ranks = max(1, scenario.num_gpus // (train.tensor_parallel_size * train.context_parallel_size))
    asked = scenario.train.micro_batch_size * scenario.train.gradient_accumulation_steps
    steps = -(-asked // (train.micro_batch_size * ranks))
    return values if steps == scenario.train.gradient_accumulation_steps else {
        **values, "gradient_accumulation_steps": steps
    }  # fmt: skip


def _checkpointing(scenario: Scenario, wishes: Wishes) -> Iterator[Mapping[str, object]]:
    """As asked, and what recomputes more; nothing else where that is to stay."""
    present = scenario.train.checkpointing
    yield {}
    if "checkpointing" in wishes.keep:
        return
    for kind in RECOMPUTE[RECOMPUTE.index(present) + 1 : RECOMPUTE.index(wishes.most_recompute) + 1]:
        if kind == "selective" and not framework_of(scenario.train).sharding.cuts:
            continue
        yield {"checkpointing": kind, "recompute": ()}
