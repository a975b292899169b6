"""The process of dry runs: `python -m vramwise.dryrun.worker JOBS.json`; one line of JSON for each job on its output.

A run that fails is a line that says why. What libraries print goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramwise.dryrun.card import Card
from vramwise.measure.job import Job


def main(argv: list[str]) -> int:
    """Run every job of the file."""
    asked = json.loads(Path(argv[0]).read_text("utf-8"))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    for one in asked:
        answers.write(json.dumps(answer(one)) + "\n")
        gc.collect()
    return 0


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """One dry run's report, moments and reserved memory; files where they were asked for."""
    from vramwise.dryrun.moments import moments_of
    from vramwise.dryrun.recorder import replayed
    from vramwise.dryrun.run import DryRun

    card = asked["card"]
    run = DryRun(
        Job(**asked["job"]), Card(card["name"], card["total_bytes"], tuple(card["capability"])),
        asked["workspace_bytes"], lambda *_: None,
    )  # fmt: skip
    report = run.report()
    replay = run.recorder.replay
    found: dict[str, Any] = {"report": asdict(report), "moments": [], "stuck": None}
    if replay is None or report.failure:
        return found
    log, expandable = run.session.watcher.log, bool(asked["expandable"])
    if expandable:
        replay = replayed(log, expandable=True)
    found["moments"] = moments_of(replay)
    found["peak_reserved"], found["peak_allocated"] = replay.peak_reserved, replay.peak_allocated
    room = asked["room_bytes"]
    if room is not None and replay.peak_reserved > room and not expandable:
        found["stuck"] = replayed(log, max(0, room)).stuck
    if asked.get("snapshot"):
        from vramwise.dryrun.snapshot import write_snapshot

        write_snapshot(Path(asked["snapshot"]), log)
    if asked.get("flame"):
        from vramwise.dryrun.flame import write_flame

        write_flame(Path(asked["flame"]), replay)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
