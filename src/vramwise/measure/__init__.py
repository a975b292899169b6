"""Measuring on the user's own machine, and reading what a run that failed left behind.

`vramwise.measure` runs a scenario for real (torch, transformers, peft as installed; nothing is downloaded) and gives a
`Result` whose numbers are `measured`. It also reads torch's memory snapshots and out-of-memory messages. torch is
imported only in the processes that run a model.
"""

from __future__ import annotations

from vramwise.measure.diagnosis import Diagnosis, diagnose_snapshot, diagnose_text
from vramwise.measure.snapshot import Snapshot, snapshot_from, snapshot_from_pickle
from vramwise.measure.timeline import Timeline, timeline_of

__all__ = [
    "Diagnosis",
    "Snapshot",
    "Timeline",
    "diagnose_snapshot",
    "diagnose_text",
    "snapshot_from",
    "snapshot_from_pickle",
    "timeline_of",
]
