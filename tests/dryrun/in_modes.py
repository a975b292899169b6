"""Runs each case of `in_modes.py CASES.json` (as in_splice.py's) with the quicker mode and with torch's own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from in_splice import CARD, said

from vramwise.dryrun import fake_mode
from vramwise.dryrun.whose import TRANSFORMERS
from vramwise.dryrun.worker import whole_run
from vramwise.estimation import estimate
from vramwise.measure.job import Job
from vramwise.scenario import Scenario


def run(case: dict[str, Any]) -> dict[str, Any]:
    table = {"model": case["config"], "task": "train", "train": case["settings"]}
    resolved = estimate(Scenario.from_dict(table)).scenario
    job = Job(case["config"], "a model", resolved, "cuda:0", 2)
    asked = {
        "job": {f: getattr(job, f) for f in Job.__slots__}, "card": CARD, "workspace_bytes": 2**25,
        "library": TRANSFORMERS,
    }  # fmt: skip
    return said(*whole_run(asked))


if __name__ == "__main__":
    out, tested = os.fdopen(os.dup(1), "w"), fake_mode.TESTED
    os.dup2(2, 1)
    found: dict[str, Any] = {}
    for name, case in json.loads(Path(sys.argv[1]).read_text("utf-8")).items():
        for versions in (tested, ()):
            fake_mode.TESTED = versions  # type: ignore[misc]
            found.setdefault(name, []).append(run(case))
    out.write(json.dumps(found))
    out.flush()
    os._exit(0)
