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
from typing import TYPE_CHECKING, Any

from vramwise.dryrun.card import Card
from vramwise.dryrun.events import Log
from vramwise.measure.job import Job

if TYPE_CHECKING:
    from vramwise.dryrun.recorder import Replay


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
    log = run.session.watcher.log
    return found | played(asked, log, replayed(log, expandable=True) if asked["expandable"] else replay)


def played(asked: dict[str, Any], log: Log, replay: Replay) -> dict[str, Any]:
    """The moments of a replay and what was reserved; where a room was named, whether it was too small for a segment.

    Writes the files that were asked for.
    """
    from vramwise.dryrun.moments import moments_of
    from vramwise.dryrun.recorder import replayed

    room = asked["room_bytes"]
    is_short = room is not None and replay.peak_reserved > room and not asked.get("expandable")
    if asked.get("snapshot"):
        from vramwise.dryrun.snapshot import write_snapshot

        write_snapshot(Path(asked["snapshot"]), log)
    if asked.get("flame"):
        from vramwise.dryrun.flame import write_flame

        write_flame(Path(asked["flame"]), replay)
    return {
        "moments": moments_of(replay),
        "peak_reserved": replay.peak_reserved,
        "peak_allocated": replay.peak_allocated,
        "stuck": replayed(log, max(0, room)).stuck if is_short else None,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
