"""A log as a measured case: what its engine printed, with the scenario behind it and the lines that say so."""

from __future__ import annotations

import json
from hashlib import sha256

from vramwise.errors import UsageError
from vramwise.interop.logs.comparison import Comparison
from vramwise.result import COUNTS, FRACTIONS, QUANTITIES
from vramwise.sources.portable import portable_scenario

SOURCE = "a start-up log (say whose: repository and file, issue or run)"
"""What stands for the source until the contributor says it."""


def case_of_log(comparison: Comparison) -> dict[str, object]:
    """The case, without a path of the machine. Raises UsageError for a log that prints nothing that is estimated.

    The source is for whoever adds the case to state, and what is `unstated`.
    """
    reading = comparison.reading
    printed = {name: one for name, one in reading.printed.items() if name in QUANTITIES}
    if not printed:
        raise UsageError("--save-case: the log prints no quantity that is estimated")
    scenario = portable_scenario(comparison.asked)
    measured = {name: one.value if name in FRACTIONS else round(one.value) for name, one in printed.items()}
    said = json.dumps([scenario, measured], sort_keys=True)
    rounded: dict[str, dict[str, int | float]] = {"precision_bytes": {}, "precision": {}}
    for name, one in printed.items():
        in_bytes = name not in COUNTS and name not in FRACTIONS
        rounded["precision_bytes" if in_bytes else "precision"][name] = (
            round(one.precision) if in_bytes else one.precision
        )
    return {
        "id": f"log-{reading.engine}-{sha256(said.encode()).hexdigest()[:10]}",
        "scenario": scenario,
        "measured": measured,
        **{key: table for key, table in rounded.items() if table},
        "source": SOURCE,
        "quote": " | ".join(dict.fromkeys(one.line for one in printed.values())),
        "confidence": "high",
        "unstated": [] if comparison.asked.gpu else ["gpu"],
        **({"engine_version": reading.version} if reading.version else {}),
    }
