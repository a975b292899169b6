"""The page of every measured value beside its estimate, to be looked through by engine, quantity, source and words.

What became of each case is what the accuracy page was written from: tests/accuracy/judged.jsonl, which tests hold
against today's estimates. cases.js makes the list of it in the reader's browser, from the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramwise.accuracy.cases import Case, read_cases
from vramwise.accuracy.comparison import Comparison
from vramwise.result import COUNTS, FRACTIONS
from vramwise.units import GIB

HERE = Path(__file__).parent
PAGE = """# Which runs were measured, and how far off is each estimate?

Every measured value of [the accuracy table](../accuracy.md) with its source: choose, type words of a model, a card or
a repository, sort by a click on a column's head. *Inside*: the measured value lies in the interval, as that is without
the case's own source. Sizes are GiB.

<div id="measured" data-none="This list needs JavaScript; the tables of the accuracy page do not."></div>
<script src="cases.js"></script>
"""


def pages(root: Path) -> dict[str, str]:
    """The page and the script that fills it."""
    values = [value for file in sorted((root / "benchmarks/cases").glob("*.jsonl")) for value in _values(root, file)]
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return {
        "reference/cases.md": PAGE,
        "reference/cases.js": f"const VALUES = {text};\n" + (HERE / "cases.js").read_text("utf-8"),
    }


def _values(root: Path, file: Path) -> Iterator[list[Any]]:
    """Engine, model, card, quantity, measured, estimated, error in percent, whether inside, source, id."""
    judged = _judged(root)
    for case in read_cases(file):
        if not isinstance(case, Case):
            continue
        for quantity, ends in judged[f"{file.stem}/{case.id}"].get("said", {}).items():
            one = Comparison(case, quantity, case.measured[quantity], *ends)
            unit = 1 if quantity in COUNTS or quantity in FRACTIONS else GIB
            model = case.scenario.get("model")
            error = round(100 * one.error, 1) if abs(one.error) < 1e6 else None
            said = (round(one.measured / unit, 3), round(one.expected / unit, 3), error, one.in_interval)
            card = str(case.scenario.get("gpu") or "")
            yield [case.engine, model if isinstance(model, str) else "", card, quantity, *said, case.source, case.id]


def _judged(root: Path) -> dict[str, dict[str, Any]]:
    lines = (root / "tests/accuracy/judged.jsonl").read_text("utf-8").splitlines()
    return {line["id"]: line for line in map(json.loads, lines)}
