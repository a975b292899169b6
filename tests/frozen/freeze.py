"""Every number that vramwise gives for the measured cases and for 2,000 random scenarios, as it was last said.

`numbers.jsonl` has a line for each: quantities with their interval (one number where low = expected = high), bytes of
each moment, or the kind of error. What changes there is listed in CHANGELOG.md under "Numbers that changed".

    python tests/frozen/freeze.py            what is no longer so, exit 1 if anything
    python tests/frozen/freeze.py --write    freeze today's numbers (two minutes on two idle cores)
    python tests/frozen/freeze.py --draw     draw other scenarios; the old ones are lost

Only the numbers: words, notes and suggestions may get better.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.files import written

os.environ["VRAMWISE_SITE"] = ""  # what runs on this machine showed is no part of the numbers
HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios.jsonl"
NUMBERS = HERE / "numbers.jsonl"
CASES = HERE.parents[1] / "benchmarks" / "cases"
DRAWN, SEED = 2_000, 20_261_122
MOST_SHOWN = 40

Numbers = dict[str, Any]


def scenarios() -> dict[str, dict[str, Any]]:
    """Scenario of each measured case and each drawn one, by id."""
    found = {}
    for path in (*sorted(CASES.glob("*.jsonl")), SCENARIOS):
        for case in lines_of(path):
            found[f"{path.stem}/{case['id']}"] = case["scenario"]
    return found


def frozen() -> dict[str, Numbers]:
    """The numbers as they were frozen, by id."""
    return {line.pop("id"): line for line in lines_of(NUMBERS)}


def numbers_of(scenario: Mapping[str, Any]) -> Numbers:
    """What one scenario is answered with today, or the kind of error that refuses it."""
    try:
        result = estimate(dict(scenario))
    except VramwiseError as refusal:
        return {"refused": type(refusal).__name__}
    said: Numbers = {}
    for name, quantity in sorted(result.quantities.items()):
        ends = [_plain(end) for end in (quantity.low, quantity.expected, quantity.high)]
        said[name] = ends[1] if name == "oom" or len(set(ends)) == 1 else ends
    if result.phases:
        said["moments"] = {phase.name: phase.bytes for phase in result.phases}
    return said


def differences(id_: str, then: Numbers, now: Numbers) -> list[str]:
    """Each number that is another today, in a line of its own."""
    old, new = dict(_flat(then)), dict(_flat(now))
    return [f"{id_} {key}: {old.get(key)} -> {new.get(key)}" for key in {**old, **new} if old.get(key) != new.get(key)]


def _flat(numbers: Numbers, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in numbers.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}: ")
        else:
            yield f"{above}{name}", value


def _plain(number: Any) -> Any:
    return round(number, 6) if isinstance(number, float) else number


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    with written(path) as out:
        for line in lines:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


def _drawn() -> list[dict[str, Any]]:
    """Random scenarios of every kind of job, none twice, in shares of a hundred."""
    sys.path.insert(0, str(HERE.parent / "invariants"))
    from whole_scenarios import JOBS, SHARE

    drawn = (
        _some(strategy, DRAWN * SHARE[job] // 100, SEED + place) for place, (job, strategy) in enumerate(JOBS.items())
    )
    return [{"id": str(place), "scenario": scenario} for place, scenario in enumerate(chain.from_iterable(drawn))]


def _some(strategy: Any, wanted: int, first: int) -> list[dict[str, Any]]:
    """So many different scenarios of one kind, the same for each seed."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    found: dict[str, dict[str, Any]] = {}

    @seed(first)
    @settings(
        max_examples=2 * wanted, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def keep(scenario: dict[str, Any]) -> None:
        found[json.dumps(scenario, sort_keys=True)] = scenario

    keep()
    return list(found.values())[:wanted]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="freeze what is said today")
    parser.add_argument("--draw", action="store_true", help="draw other random scenarios first")
    asked = parser.parse_args()
    if asked.draw:
        write_lines(SCENARIOS, _drawn())
    whole = scenarios()
    with ProcessPoolExecutor() as pool:
        today = dict(zip(whole, pool.map(numbers_of, whole.values(), chunksize=16), strict=True))
    if asked.write or asked.draw:
        write_lines(NUMBERS, ({"id": id_, **said} for id_, said in today.items()))
        return 0
    then = frozen()
    lines = [line for id_, said in today.items() for line in differences(id_, then.get(id_, {}), said)]
    changed = {line.partition(" ")[0] for line in lines} | (then.keys() - today.keys())
    print(*lines[:MOST_SHOWN], sep="\n")
    print(f"{len(changed)} of {len(today)} scenarios are answered otherwise, {len(lines)} numbers")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
