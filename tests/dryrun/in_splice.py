"""Runs each case with all of its layers and with few: `in_splice.py CASES.json` prints what both say.

CASES.json: {name: {"config": config.json's values, "task": …, "settings": {…}}}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from vramwise.dryrun import libraries
from vramwise.dryrun.events import Log
from vramwise.dryrun.moments import moments_of
from vramwise.dryrun.recorder import Replay, replayed
from vramwise.dryrun.repeated import repeated_layers
from vramwise.dryrun.splice import in_order
from vramwise.dryrun.whose import TRANSFORMERS
from vramwise.dryrun.worker import short_run, whole_run
from vramwise.estimation import estimate
from vramwise.measure.job import Job, Report
from vramwise.scenario import Scenario
from vramwise.scenario.definition import table_of

CARD = {"name": "NVIDIA H100 80GB HBM3", "total_bytes": 80 * 2**30, "capability": (9, 0)}


def without_lines(moments: list[dict[str, Any]]) -> Any:
    """Moments without the lines that asked, which are those of this file."""
    return json.loads(json.dumps(moments), object_hook=lambda one: {k: v for k, v in one.items() if k != "line"})


def said(report: Report, log: Log, _: Replay | None) -> dict[str, Any]:
    replay = replayed(log)
    return {
        "peak_allocated": replay.peak_allocated, "peak_reserved": replay.peak_reserved,
        "moments": without_lines(moments_of(replay)), "sizes": report.sizes, "failure": report.failure,
        "parameters": [report.facts.get("num_parameters"), report.facts.get("num_trainable_parameters")],
        "events": hash(tuple(in_order(log))), "sizes of all": hash(tuple(life.size for life in log.lives)),
    }  # fmt: skip


def job_of(case: dict[str, Any]) -> Job:
    task = case.get("task", "train")
    table = {"model": case["config"], "task": task, table_of(task): case["settings"]}
    return Job(case["config"], "a model", estimate(Scenario.from_dict(table)).scenario, "cuda:0", 2)


def asked_of(job: Job) -> dict[str, Any]:
    """What the worker is asked of a job."""
    return {
        "job": {f: getattr(job, f) for f in Job.__slots__}, "card": CARD, "workspace_bytes": 2**25,
        "library": TRANSFORMERS,
    }  # fmt: skip


def answer(case: dict[str, Any]) -> dict[str, Any]:
    job = job_of(case)
    asked = asked_of(job)
    short, layers = short_run(asked), repeated_layers(job)
    return {
        "few": None if short is None else said(*short), "all": said(*whole_run(asked)),
        "depth": None if layers is None else [layers.first, layers.period, layers.depth, layers.times],
    }  # fmt: skip


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cases = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    module, loaded = libraries._module, list[str]()
    libraries._module = lambda name: (loaded.append(name), module(name))[1]  # type: ignore[assignment]
    found: dict[str, Any] = {name: answer(case) for name, case in cases.items()}
    found["loads"] = sorted({*loaded})
    out.write(json.dumps(found))
    out.flush()
    os._exit(0)
