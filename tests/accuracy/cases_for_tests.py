"""Small case files and estimates with known numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vramwise.accuracy import Case, Outcome, compare
from vramwise.result import ModelFacts, Quantity, Result


def case(id_: str = "a", **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "scenario": {"model": "m", "task": "serve", "serve": {"engine": "vllm"}},
        "measured": {"weights": 100},
        "source": "owner/repository issue #1",
        **changes,
    }


def write_cases(path: Path, *lines: dict[str, Any] | str) -> Path:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def result(**quantities: Quantity | int | float) -> Result:
    return Result(
        scenario={},
        model=ModelFacts("m", 1, 1, 0, "test"),
        quantities={
            name: value if isinstance(value, Quantity) else Quantity.exact(value) for name, value in quantities.items()
        },
    )


def outcome(
    error_percent: int,
    *,
    width_percent: int = 0,
    engine: str = "vllm",
    source: str = "owner/repository",
    quantity: str = "weights",
    specified: str = "",
) -> Outcome:
    """100 bytes measured, and an estimate that is `error_percent` off, give or take half the width."""
    expected = 100 + error_percent
    interval = Quantity(expected - width_percent / 2, expected, expected + width_percent / 2)
    measured = Case(
        id=f"{engine}{error_percent}",
        scenario={"task": "serve", "serve": {"engine": engine}},
        measured={quantity: 100},
        source=source,
        specified=specified,
    )
    return compare(measured, lambda scenario: result(**{quantity: interval}))
