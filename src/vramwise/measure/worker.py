"""The process that runs one job: `python -m vramwise.measure.worker JOB.json OUT_FOLDER`.

It writes lines of JSON to a file of its own in the folder (one a rank): progress while it runs, the report last. Going
out of memory is a report, not a failure; an interrupt reports what is finished.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from vramwise.measure.job import Job, Report
from vramwise.measure.libraries import library, versions
from vramwise.measure.local_run import LocalRun


def main(argv: list[str]) -> int:
    """Run one job, or answer what devices there are (`probe`)."""
    if argv == ["probe"]:
        print(json.dumps(devices()))
        return 0
    job, folder = Job.read(Path(argv[0])), Path(argv[1])
    rank = int(os.environ.get("RANK", "0"))
    with open(folder / f"rank-{rank}.jsonl", "a", encoding="utf-8", buffering=1) as out:

        def say(event: str, **fields: object) -> None:
            out.write(json.dumps({"event": event, **fields}) + "\n")

        say("start")
        report = run(job, lambda done, of: say("step", done=done, of=of))
        say("report", **asdict(report))
    return 0


def devices() -> dict[str, object]:
    """GPUs that torch sees, without running anything on them."""
    torch = library("torch")
    found = []
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(i)
            found.append({"name": properties.name, "total_bytes": int(properties.total_memory)})
    return {"gpus": found, "versions": versions()}


def run(job: Job, progress: object) -> Report:
    """Run a job in this process and say what it took."""
    library("torch")
    if job.num_processes > 1:
        from vramwise.measure.parallel import on_every_rank

        return on_every_rank(job, progress)
    return LocalRun(job, progress).report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
