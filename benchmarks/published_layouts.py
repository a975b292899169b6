"""Where published layouts stand among those that the planner finds: python benchmarks/published_layouts.py [WORD]

Every multi-node case of cases/throughput.jsonl (ids with WORD in them) is searched as `vramwise plan` does, on its
own cards, with its optimizer's batch. `rank` is the run's place by predicted speed among all candidates; `of its
kind` among those with its own checkpointing, without sequence parallelism and a distributed optimizer where the run
had none, as papers of 2021 did not; of these only what still fits counts before it. A run below the best tenth gets a
note: what the fastest of its kind does otherwise."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from vramwise import Wishes, estimate
from vramwise.accuracy import read_cases
from vramwise.errors import VramwiseError
from vramwise.estimation import described_model, tokens_per_second
from vramwise.planner.changes import changed
from vramwise.planner.searched_layouts import searched
from vramwise.scenario import Scenario

CASES = Path(__file__).parent / "cases" / "throughput.jsonl"
_PLAIN = {
    "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "context_parallel_size": 1, "sequence_parallel": False,
    "num_microbatches": None, "virtual_pipeline_parallel_size": 1, "pipeline_schedule": "1f1b", "fsdp": "none",
    "checkpointing": "none", "recompute": (), "distributed_optimizer": False, "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
}  # fmt: skip
_NEWER = ("sequence_parallel", "distributed_optimizer")
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


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="")
    word = parser.parse_args().word
    print(f"{'case':<46}{'rank':>12}{'of its kind':>14}")
    for case in read_cases(CASES):
        own = case.scenario if isinstance(case.scenario, Scenario) else Scenario.from_dict(case.scenario)
        if word not in case.id or own.num_gpus <= own.gpus_per_node:
            continue
        rate = tokens_per_second(own) or 0.0
        found = sorted(candidates(own), key=lambda one: -one[0])
        alike = _of_its_kind(own, rate, found)
        place = 1 + sum(other > rate for other, _ in found)
        among = 1 + sum(other > rate for other, _ in alike)
        print(f"{case.id:<46}{f'{place}/{len(found)}':>12}{f'{among}/{len(alike)}':>14}", flush=True)
        if alike and among > max(1, len(alike) // 10):
            best, made = alike[0]
            values = ((key, getattr(made.train, key), getattr(own.train, key)) for key in _SHOWN)
            other = ", ".join(f"{key} {value} for {theirs}" for key, value, theirs in values if value != theirs)
            print(f"    {best / rate - 1:+.0%} with {other}", flush=True)


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
