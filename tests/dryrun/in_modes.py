"""Runs each case of `in_modes.py CASES.json` (as in_splice.py's) with the quicker mode and with torch's own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from in_splice import asked_of, job_of, said

from vramwise.dryrun import fake_mode
from vramwise.dryrun.worker import whole_run


def run(case: dict[str, Any]) -> dict[str, Any]:
    return said(*whole_run(asked_of(job_of(case))))


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
