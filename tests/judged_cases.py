"""What became of each measured case when the pages were last written: accuracy/judged.jsonl, a line for each.

A normal run estimates a part of the cases, the same every time, and takes the others from there, so that the pages'
tables are held whole; a thorough run estimates all. `python tests/test_readme.py` writes the lines anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from by_turns import has_turn
from vramwise.accuracy.cases import Case
from vramwise.accuracy.comparison import Comparison, Estimate, Failure, OomComparison, Outcome, compare
from vramwise.files import written

LINES = Path(__file__).parent / "accuracy" / "judged.jsonl"
EVERY = 6
OUT_OF_DATE = "python tests/test_readme.py"
Line = dict[str, Any]


def judging(found: dict[str, Line], *, is_held: bool) -> Callable[[Case, Estimate], Outcome]:
    """`compare` that estimates each case once: `found` has the line of each that was.

    `is_held`: they are those of the file, from which a normal run takes what has no turn.
    """

    def judged(case: Case, estimate: Estimate) -> Outcome:
        name = f"{Path(case.file).stem}/{case.id}"
        line = found.get(name)
        if line is None and is_held and not has_turn(name, EVERY):
            line = _lines()[name]
        if line is None:
            line = found[name] = line_of(compare(case, estimate))
            assert not is_held or _lines()[name] == json.loads(json.dumps(line)), f"{name}: {OUT_OF_DATE}"
        assert line["of"] == _of(case), f"{name}: {OUT_OF_DATE}"
        return outcome_of(case, line)

    return judged


def write(fresh: dict[str, Line]) -> None:
    with written(LINES) as out:
        for name, line in sorted(fresh.items()):
            out.write(json.dumps({"id": name, **line}, separators=(",", ":")) + "\n")


@cache
def _lines() -> dict[str, Line]:
    return {line.pop("id"): line for line in map(json.loads, LINES.read_text("utf-8").splitlines())}


def _of(case: Case) -> int:
    """What the line was made of: the scenario, whose number it leaves out, and what was measured of it."""
    of = [case.scenario, case.source_name, sorted(case.measured), case.extra.get("device"), case.rig_floor_bytes]
    return crc32(json.dumps(of, sort_keys=True).encode())


def line_of(outcome: Outcome) -> Line:
    line: Line = {"of": _of(outcome.case)}
    if outcome.failure is not None:
        line["failure"] = [outcome.failure.type, outcome.failure.message]
    if outcome.comparisons:
        line["said"] = {one.quantity: [one.low, one.expected, one.high] for one in outcome.comparisons}
    if outcome.oom is not None:
        line["oom"] = [outcome.oom.expected, outcome.oom.probability]
    if outcome.missing:
        line["missing"] = list(outcome.missing)
    return line


def outcome_of(case: Case, line: Line) -> Outcome:
    said = line.get("said", {}).items()
    oom = line.get("oom")
    return Outcome(
        case,
        tuple(Comparison(case, name, case.measured[name], *ends) for name, ends in said),
        None if oom is None else OomComparison(case, bool(case.measured["oom"]), *oom),
        tuple(line.get("missing", ())),
        Failure(*line["failure"]) if "failure" in line else None,
    )
