"""What becomes of a setting whose owner is not there: the one rule, for training and serving alike."""

from __future__ import annotations

from collections.abc import Collection

from vramwise.engines import engine_named
from vramwise.errors import ScenarioError
from vramwise.scenario.nested import called
from vramwise.scenario.owners import Owner, Owners
from vramwise.scenario.settings import Settings, ownership_of


def check_owners(settings: Settings, path: str, *, but: Collection[str] = ()) -> tuple[str, ...]:
    """Notes for settings that change nothing: their owner is absent, or leaves them out of the answer.

    Settings that hold their default contradict nothing, nor do those of `but`. Raises ScenarioError for a setting of an
    absent owner that refuses it.
    """
    notes = []
    engine = getattr(settings, "engine", None)
    record = engine_named(engine) if engine is not None else None
    for key in sorted(settings.explicit.difference(but)):
        whose = ownership_of(type(settings))[key]
        if not settings.changes(key):
            continue
        lacks = record is not None and key in record.lacks
        left_out = record is not None and key in record.uncounted
        left_out = left_out or any(is_there(owner, settings) for owner in whose.uncounted)
        if not lacks and not left_out and any(is_there(owner, settings) for owner in whose.owners):
            continue
        if left_out and not lacks:
            notes.append(f"{key} of {engine} is accepted, and left out of the answer")
        elif whose.owners:
            why = _why(settings, whose.all)
            if whose.owners[0].refuses:
                raise ScenarioError(f"{path}.{key}", why + _instead(settings, key, path))
            notes.append(f"{key} changed nothing here: it {why}")
    return tuple(notes)


def is_there(owner: Owner, settings: Settings) -> bool:
    """Whether an owner is there under these settings."""
    within = owner.within is None or is_there(owner.within, settings)
    return within and owner.is_there(getattr(settings, owner.key))


def _why(settings: Settings, owners: Owners) -> str:
    """Why none of these owners is there."""
    first = owners[0]
    if first.within is not None and not is_there(first.within, settings):
        return _why(settings, (first.within,))
    value = getattr(settings, first.key)
    if first.needs not in first.values:
        return f"needs {first.needs}; it is {'not set' if value is None else value}"
    names = [owner.needs for owner in owners if owner.key == first.key and not _runs_another(owner)]
    kind = first.key if len(names) == 1 else f"{first.key}s"
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"belongs to the {kind} {listed}; the {first.key} is {value}"


def _runs_another(owner: Owner) -> bool:
    """Whether it is an engine that runs another, whose name stands for both."""
    return owner.key == "engine" and bool(engine_named(owner.needs).runs)


def _instead(settings: Settings, key: str, path: str) -> str:
    """The way out: what the same is called where the settings stand."""
    own = called(key, path, getattr(settings, "engine", None))
    whose = ownership_of(type(settings)).get(own or "")
    elsewhere = whose is not None and whose.owners and not any(is_there(owner, settings) for owner in whose.owners)
    return "" if own is None or elsewhere else f": set {own}"
