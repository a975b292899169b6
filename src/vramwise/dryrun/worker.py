"""The process of dry runs: `python -m vramwise.dryrun.worker JOBS.json`; one line of JSON for each job on its output.

A run that fails is a line that says why. What libraries print goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramwise.dryrun.card import Card
from vramwise.dryrun.events import Log
from vramwise.measure.job import Job, Report

if TYPE_CHECKING:
    from vramwise.dryrun.recorder import Replay
    from vramwise.dryrun.run import DryRun

    Ran = tuple[Report, Log, Replay | None]
    """A run's report, its log, and the replay of it that was made already."""


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
    try:
        return _answered(asked)
    finally:
        gc.unfreeze()  # what a run has frozen


def _answered(asked: dict[str, Any]) -> dict[str, Any]:
    from vramwise.dryrun.recorder import replayed

    report, log, replay = short_run(asked) or whole_run(asked)
    found: dict[str, object] = {"report": asdict(report), "moments": [], "stuck": None}
    if report.failure:
        return found
    if replay is None or asked["expandable"]:
        replay = replayed(log, expandable=bool(asked["expandable"]))
    return found | played(asked, log, replay)


def whole_run(asked: dict[str, Any], job: Job | None = None) -> Ran:
    """A job run as it is."""
    card, job = asked["card"], job or Job(**asked["job"])
    run = _kind_of(str(asked.get("library")))(
        job, Card(card["name"], card["total_bytes"], tuple(card["capability"])),
        asked["workspace_bytes"], lambda *_: None,
    )  # fmt: skip
    return run.report(), run.session.watcher.log, run.recorder.replay


def _kind_of(library: str) -> type[DryRun]:
    """The run of a model that this library makes."""
    from vramwise.dryrun.classifier import ClassifierRun
    from vramwise.dryrun.embedder import EmbedderRun
    from vramwise.dryrun.pipeline import PipelineRun
    from vramwise.dryrun.run import DryRun
    from vramwise.dryrun.whose import PIPELINES
    from vramwise.scenario.names import CLASSIFIERS, EMBEDDERS

    kinds = {PIPELINES: PipelineRun, CLASSIFIERS: ClassifierRun, EMBEDDERS: EmbedderRun}
    return kinds.get(library, DryRun)


def short_run(asked: dict[str, Any]) -> Ran | None:
    """The same from two runs with few of the layers, where these repeat; None where all have to be run."""
    from vramwise.dryrun.repeated import cut, repeated_layers
    from vramwise.dryrun.splice import NotRegularError, spliced
    from vramwise.dryrun.whose import TRANSFORMERS

    job = Job(**asked["job"])
    layers = repeated_layers(job) if asked.get("library") == TRANSFORMERS else None
    if layers is None:
        return None
    few, short, _ = whole_run(asked, cut(job, layers.depth))
    more, longer, _ = whole_run(asked, cut(job, layers.depth + layers.period))
    if few.failure or more.failure:
        return None
    try:
        return grown(few, more, layers.times), spliced(short, longer, layers), None
    except NotRegularError:
        return None


def grown(few: Report, more: Report, times: int) -> Report:
    """A report whose numbers go on as they did from the first to the second, so many times."""

    def on(mine: Any, theirs: Any) -> Any:
        is_number = isinstance(mine, int) and not isinstance(mine, bool)
        return mine + times * (theirs - mine) if is_number else mine

    facts = {name: on(value, more.facts.get(name)) for name, value in few.facts.items()}
    sizes = {name: on(value, more.sizes.get(name)) for name, value in few.sizes.items()}
    return replace(few, facts=facts, sizes=sizes, records=(), notes=(), module_weights={})


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
