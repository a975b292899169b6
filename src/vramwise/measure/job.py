"""What one process is to run, as JSON; and what it says while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LEAST_STEPS = 3
"""Optimizer states appear at the end of the first step, so the second is the first whole one."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: the model's config.json values, the scenario's resolved table, where and how long."""

    config: Mapping[str, object]
    model_id: str
    scenario: Mapping[str, object]
    device: str
    steps: int = LEAST_STEPS
    memory_cap_bytes: int | None = None
    history: str | None = None
    num_processes: int = 1

    @property
    def task(self) -> str:
        return str(self.scenario["task"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of the task; for `load` that of `serve`, if any."""
        found = self.scenario.get("serve" if self.task == "load" else self.task)
        return found if isinstance(found, Mapping) else {}

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def read(cls, path: Path) -> Job:
        return cls(**json.loads(path.read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found; sizes are bytes. `failure` says why it ended early, `oom` holds the allocator's words."""

    records: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[tuple[str, int], ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    module_weights: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    finished_steps: int = 0
    oom: str | None = None
    failure: str | None = None
    interrupted: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        known = {name: data[name] for name in cls.__slots__ if name in data}
        for name in ("records", "remarks"):
            known[name] = tuple(known.get(name, ()))
        known["notes"] = tuple((str(label), int(size)) for label, size in known.get("notes", ()))
        return cls(**known)
