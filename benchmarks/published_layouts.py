"""Where published layouts stand among those that the planner finds: python benchmarks/published_layouts.py [WORD]

Every multi-node case of cases/throughput.jsonl (ids with WORD in them) is searched as `vramwise plan` does, on its
own cards, with its optimizer's batch. `rank` is the run's place by predicted speed among all candidates; `of its
kind` among those with its own checkpointing, without sequence parallelism and a distributed optimizer where the run
had none, as papers of 2021 did not; of these only what still fits counts before it. A run below the best tenth of
either gets a note: what the fastest one does otherwise, of which part of the step it takes less for that, and what the
prediction does not count in such a change."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from vramwise import Wishes, estimate
from vramwise.accuracy import Case, read_cases
from vramwise.errors import VramwiseError
from vramwise.estimation import described_model
from vramwise.planner.changes import changed
from vramwise.planner.searched_layouts import searched
from vramwise.records import record
from vramwise.scenario import Scenario, TrainSettings
from vramwise.training_parts import parts_of_step, tokens_per_second

CASES = Path(__file__).parent / "cases" / "throughput.jsonl"
_PLAIN = {
    "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "context_parallel_size": 1, "sequence_parallel": False,
    "num_microbatches": None, "virtual_pipeline_parallel_size": 1, "pipeline_schedule": "1f1b", "fsdp": "none",
    "checkpointing": "none", "recompute": (), "distributed_optimizer": False, "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
}  # fmt: skip
_NEWER = ("sequence_parallel", "distributed_optimizer")
_NOT_COUNTED: tuple[tuple[Callable[[TrainSettings, TrainSettings], bool], str], ...] = (
    (lambda own, other: other.tensor_parallel_size < own.tensor_parallel_size,
     "collectives of tensor parallelism that run beside products: layers are taken to wait for all of them"),
    (lambda own, other: other.fsdp != "none" and other.tensor_parallel_size < own.tensor_parallel_size,
     "products that gathers beside them slow down, and ranks that wait for the slowest of more"),
    (lambda own, other: other.pipeline_parallel_size > own.pipeline_parallel_size, "sends between stages"),
    (lambda own, other: other.micro_batch_size < own.micro_batch_size,
     "gaps between kernels, of which smaller micro-batches have more"),
    (lambda own, other: other.micro_batch_size > own.micro_batch_size,
     "memory that fragmentation takes: runs leave room that a larger micro-batch fills"),
    (lambda own, other: other.checkpointing != own.checkpointing,
     "memory that fragmentation takes: runs recompute more than they must to be safe"),
    (lambda own, other: other.sequence_parallel and not own.sequence_parallel,
     "when it was made: the run is older than sequence parallelism (arXiv 2205.05198)"),
    (lambda own, other: other.distributed_optimizer and not own.distributed_optimizer,
     "when it was made: the run has no distributed optimizer"),
    (lambda own, other: True, "a host that is slower than the card"),
)  # fmt: skip
"""What may be otherwise than predicted (speed/step_time.py, what it does not count), by what another layout changes."""
_SHOWN = tuple(key for key in _PLAIN if key not in ("recompute", "num_microbatches", "gradient_accumulation_steps"))


def batch_of(scenario: Scenario) -> int:
    """Sequences of an optimizer step."""
    train = scenario.train
    many = max(train.num_microbatches or 1, train.gradient_accumulation_steps)
    return train.micro_batch_size * many * ranks_of(scenario)


def ranks_of(scenario: Scenario) -> int:
    """Ranks that read samples of their own."""
    train = scenario.train
    together = train.tensor_parallel_size * train.pipeline_parallel_size * train.context_parallel_size
    return max(1, scenario.num_gpus // together)


def candidates(own: Scenario) -> Iterator[tuple[float, Scenario]]:
    """What the planner finds, each with the run's own batch where that divides."""
    base = own.replace(train=own.train.replace(**_PLAIN))
    for one in searched(base, described_model(own.model)[1], Wishes("train"), lambda number: None).candidates:
        made = changed(base, one.values)
        many, rest = divmod(batch_of(own), made.train.micro_batch_size * ranks_of(made))
        if rest or many < made.train.pipeline_parallel_size:
            continue
        key = "num_microbatches" if made.train.pipeline_parallel_size > 1 else "gradient_accumulation_steps"
        try:
            made = changed(made, {key: many})
            yield tokens_per_second(made) or 0.0, made
        except VramwiseError:
            continue


_ALONE = ("    no other: no layout that is searched has this batch here",)


@record
class Judged:
    """The places of a run among all candidates and among those of its kind, and notes where these are low."""

    place: tuple[int, int]
    of_its_kind: tuple[int, int]
    notes: tuple[Sequence[str], ...]


def judged(own: Scenario) -> Judged:
    """Where a run stands."""
    rate = tokens_per_second(own) or 0.0
    found = sorted(candidates(own), key=lambda one: -one[0])
    alike = _of_its_kind(own, rate, found)
    places = tuple((1 + sum(other > rate for other, _ in those), len(those)) for those in (found, alike))
    notes: list[Sequence[str]] = [] if found else [_ALONE]
    for name, place, those in zip(("of all", "of its kind"), places, (found, alike), strict=True):
        if those and is_low(place):
            notes.append(note(name, own, rate, *those[0]))
    return Judged(*places, tuple(notes))


def is_low(place: tuple[int, int]) -> bool:
    """Whether a place is below the best tenth."""
    return place[0] > max(1, place[1] // 10)


def note(name: str, own: Scenario, rate: float, best: float, made: Scenario) -> Sequence[str]:
    """Why another layout is predicted to be faster, and what is not counted in that."""
    values = ((key, getattr(made.train, key), getattr(own.train, key)) for key in _SHOWN)
    other = ", ".join(f"{key} {value} for {theirs}" for key, value, theirs in values if value != theirs)
    left_out = [words for holds, words in _NOT_COUNTED if holds(own.train, made.train)]
    return (
        f"    {name}: {best / rate - 1:+.0%} with {other or 'the same'}",
        f"        preferred for {gains(parts_of_step(own), parts_of_step(made)) or 'less than 0.5 % of any part'}",
        *(f"        not counted: {words}" for words in left_out),
    )


def gains(own: Mapping[str, float], made: Mapping[str, float]) -> str:
    """The parts of a step that take less, as shares of the run's step, the largest first."""
    whole, other = sum(own.values()), sum(made.values())
    less = {name: own.get(name, 0.0) / whole - made.get(name, 0.0) / other for name in (*own, *made)}
    shown = [(name, share) for name, share in sorted(less.items(), key=lambda one: -one[1]) if share >= 0.005]
    return ", ".join(f"{name} ({own.get(name, 0.0) / whole:.0%} of the step, {made.get(name, 0.0) / other:.0%} of its)"
                     for name, _ in shown)  # fmt: skip


def multi_node(word: str = "") -> Iterator[tuple[Case, Scenario]]:
    """The published runs over several nodes."""
    for case in read_cases(CASES):
        own = case.scenario if isinstance(case.scenario, Scenario) else Scenario.from_dict(case.scenario)
        if word in case.id and own.num_gpus > own.gpus_per_node:
            yield case, own


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="")
    word = parser.parse_args().word
    print(f"{'case':<46}{'rank':>12}{'of its kind':>14}")
    for case, own in multi_node(word):
        found = judged(own)
        shown = [f"{place}/{many}" for place, many in (found.place, found.of_its_kind)]
        print(f"{case.id:<46}{shown[0]:>12}{shown[1]:>14}", *chain(*found.notes), sep="\n", flush=True)


def _of_its_kind(own: Scenario, rate: float, found: list[tuple[float, Scenario]]) -> list[tuple[float, Scenario]]:
    alike = []
    for faster, made in found:
        if made.train.checkpointing != own.train.checkpointing:
            continue
        newer = {key: False for key in _NEWER if getattr(made.train, key) and not getattr(own.train, key)}
        if newer:
            made = changed(made, newer)
            faster = tokens_per_second(made) or 0.0
            verdict = estimate(made, replays=False).verdict if faster > rate else None
            if verdict is not None and not verdict.fits:
                continue
        alike.append((faster, made))
    return sorted(alike, key=lambda one: -one[0])


if __name__ == "__main__":
    main()
