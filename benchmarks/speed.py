"""Predicted tokens a second of published trainings, by where they were published: python benchmarks/speed.py

`error` is of the answer as it stands, whose shares of the data sheets were set by llm-foundry's runs alone. For `left
out` the source's own runs are left out whole: what the others of the same generation of cards are off by, the median of
their medians, scales its predictions, so that llm-foundry's are judged by what the others say too. `inside`: how many
the interval holds; `fits`: how many of the layouts, which all ran, are judged to fit.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from vramwise import estimate
from vramwise.accuracy import read_cases
from vramwise.hardware import find_gpu
from vramwise.records import record

CASES = Path(__file__).parent / "cases" / "throughput.jsonl"


@record
class Run:
    """A published run beside its answer: predicted over measured tokens a second, whether the interval holds it."""

    source: str
    generation: str
    ratio: float
    is_inside: bool
    fits: bool


def runs() -> list[Run]:
    """Every case, by the words in front of its source's first bracket, table or path."""
    found = []
    for case in read_cases(CASES):
        result = estimate(case.scenario, replays=False)
        rate, measured = result.quantities["tokens_per_second"], float(case.measured["tokens_per_second"])
        gpu = find_gpu(str(result.scenario["gpu"])).gpu
        found.append(
            Run(
                source_of(case.source), str(gpu.compute_capability), float(rate.expected) / measured,
                float(rate.low) <= measured <= float(rate.high),
                result.verdict is not None and result.verdict.fits,
            )
        )  # fmt: skip
    return found


def source_of(text: str) -> str:
    """The publication: the paper or repository without its table or file."""
    return (
        text.split(" (")[0]
        .split(" Table")[0]
        .split(" benchmarks/")[0]
        .split(" scripts/")[0]
        .split(" arXiv")[0]
        .split(" trans")[0]
    )


def left_out(source: str, generation: str, every: list[Run]) -> float | None:
    """What the other sources' predictions are off by on these cards; None where there is no other."""
    others: dict[str, list[float]] = {}
    for run in every:
        if run.generation == generation and run.source != source:
            others.setdefault(run.source, []).append(run.ratio)
    return statistics.median(map(statistics.median, others.values())) if others else None


def main() -> None:
    """Measure and print."""
    every = runs()
    heads = ("cards", "runs", "error", "|error|", "left out", "inside", "fits")
    print(f"{'source':<28}" + "".join(f"{head:>9}" for head in heads))
    groups = list(dict.fromkeys((run.source, run.generation) for run in every))
    outside: list[float] = []
    for source, generation in groups:
        own = [run for run in every if (run.source, run.generation) == (source, generation)]
        errors = [run.ratio - 1 for run in own]
        factor = left_out(source, generation, every)
        again = [] if factor is None else [abs(run.ratio / factor - 1) for run in own]
        outside += again
        said = f"{statistics.median(again):.1%}" if again else "–"
        inside, fits = sum(run.is_inside for run in own), sum(run.fits for run in own)
        figures = [f"{statistics.median(errors):+.1%}", f"{statistics.median(map(abs, errors)):.1%}", said]
        figures += [f"{inside}/{len(own)}", f"{fits}/{len(own)}"]
        print(f"{source:<28}{generation:>9}{len(own):>9}" + "".join(f"{figure:>9}" for figure in figures))
    unset = [run for run in every if "llm-foundry" not in run.source]
    print(
        f"sources that set nothing: median {statistics.median(abs(run.ratio - 1) for run in unset):.1%}, "
        f"{sum(run.is_inside for run in unset)} of {len(unset)} inside; every source left out whole: "
        f"median {statistics.median(outside):.1%}, 90 % within {sorted(outside)[int(0.9 * len(outside))]:.1%}"
    )


if __name__ == "__main__":
    main()
