"""A run as a measured case that may be given to others: no path, no user, no host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vramwise.site.run import Run

_PATH = re.compile(r"[/~\\]|\.\.?[/\\]|[A-Za-z]:[/\\]|file:")
_NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
_OWN = frozenset({"_name_or_path", "model_path", "name_or_path"})
"""Keys of a config.json that say where somebody kept it."""


def is_public_name(model: str) -> bool:
    """Whether a model's name may be that of a catalog or a hub, and is no path."""
    return bool(_NAME.fullmatch(model)) and not _PATH.match(model)


def portable(value: object) -> object:
    """A scenario or config without what names a place on somebody's machine."""
    if isinstance(value, Mapping):
        kept = {key: portable(one) for key, one in value.items() if key not in _OWN and not _is_path(one)}
        return {key: one for key, one in kept.items() if one is not None}
    if isinstance(value, list | tuple):
        return [portable(one) for one in value if not _is_path(one)]
    return value


def case_of(run: Run) -> dict[str, Any] | None:
    """The measured case of a run; None where it holds no counters."""
    if not run.scenario or not run.measured:
        return None
    programs = dict.fromkeys(f"{term.program} {term.version}" for term in run.terms)
    case = {
        "id": f"site-{run.id}", "scenario": dict(run.scenario), "measured": dict(run.measured),
        "source": f"vramwise {run.command} --calibrate",
        "quote": ", ".join(f"{name} {value}" for name, value in run.measured.items()),
        "confidence": "high", "unstated": [], "engine_version": ", ".join(programs),
        "extra": {name: text for name, text in (("driver", run.driver), ("cuda", run.cuda)) if text},
    }  # fmt: skip
    return case | ({"precision_bytes": dict(run.precision)} if run.precision else {})


def _is_path(value: object) -> bool:
    return isinstance(value, str) and _PATH.match(value) is not None
