"""How long one estimate takes in a Python that has answered before: median, 90th percentile and worst, by task.

    python benchmarks/warm.py [--count 400]

Every scenario differs from the others in its sizes; the models repeat. Time is CPU time of this process, so that a
busy machine does not count. An answer is the whole `Result`, with every term of every moment.
"""

from __future__ import annotations

import argparse
import itertools
import time

import processes
import scenarios

from vramwise import estimate
from vramwise.errors import VramwiseError

MOST_MS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=400)
    args = parser.parse_args()
    print(f"{processes.machine()}; {args.count} scenarios of {len(scenarios.MODELS)} models a task")
    print(f"{'task':<10}{'median':>11}{'90 %':>11}{'worst':>11}{'refused':>9}")
    for task in scenarios.TASKS:
        asked = list(itertools.islice(scenarios.variations(task), args.count))
        for one in asked[: len(scenarios.MODELS) * len(scenarios.GPUS)]:
            timed(one)
        took = [timed(one) for one in asked]
        spent = sorted(ms for ms, answered in took if answered)
        refused = sum(not answered for _, answered in took)
        figures = "".join(f"{value:>8.2f} ms" for value in _figures(spent)) if spent else " " * 33
        print(f"{task:<10}{figures}{refused:>9}")
    print(f"goal: at most {MOST_MS} ms")


def timed(scenario: scenarios.Scenario) -> tuple[float, bool]:
    """CPU milliseconds of one estimate, and whether it was answered (some ask for what an engine cannot do)."""
    start = time.process_time()
    try:
        estimate(scenario)
    except VramwiseError:
        return 1e3 * (time.process_time() - start), False
    return 1e3 * (time.process_time() - start), True


def _figures(spent: list[float]) -> tuple[float, float, float]:
    return spent[len(spent) // 2], spent[len(spent) * 9 // 10], spent[-1]


if __name__ == "__main__":
    main()
