"""Measured cases in the form that `vramwise accuracy` reads, with the versions of everything that ran."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from vramwise.errors import SourceError
from vramwise.files import append_text, open_to_read, shown_path
from vramwise.hardware import find_installed_gpu
from vramwise.measure.outcome import Measured

QUANTITIES: Final = ("weights", "kv_cache_bytes", "peak_allocated", "peak_reserved", "nvidia_smi", "oom")


def case_of(measured: Measured, scenario: Mapping[str, Any], model_name: str, device: str) -> dict[str, Any]:
    """One run as a measured case. On a CPU nothing of the driver is known, and `extra.device` says so."""
    result, facts = measured.result, measured.facts
    versions = dict(facts.get("versions", {}))
    table = {**scenario, **_card(facts)}
    key = sha256(json.dumps([table, versions, facts.get("gpu")], sort_keys=True, default=str).encode()).hexdigest()[:10]
    numbers = {name: result.quantities[name].expected for name in QUANTITIES if name in result.quantities}
    printed = ", ".join(f"{name} {value}" for name, value in numbers.items())
    return {
        "id": f"measured-{_plain(model_name)}-{scenario['task']}-{key}",
        "scenario": table,
        "measured": numbers,
        "source": "vramwise measure",
        "quote": printed,
        "confidence": "high",
        "specified": "full",
        "engine_version": f"transformers {versions.get('transformers', '')}".strip(),
        "extra": {
            "device": facts.get("gpu") or device,
            "versions": versions,
            "cuda": facts.get("cuda"),
            "driver": facts.get("driver"),
            "context_bytes": facts.get("context_bytes"),
            "steps": measured.steps,
            "moments": {phase.name: phase.bytes for phase in result.phases},
            "class": facts.get("class"),
        },
        "notes": ["random weights made from the config", *result.notes],
    }


def save_case(path: str, case: Mapping[str, object]) -> None:
    """Add a case to a file; its id gets a number where the file has it already. Raises SourceError."""
    file = Path(path)
    try:
        known = _ids(file)
        number, name = 1, str(case["id"])
        while (name if number == 1 else f"{name}-{number}") in known:
            number += 1
        row = {**case, "id": name if number == 1 else f"{name}-{number}"}
        append_text(path, json.dumps(row) + "\n")
    except OSError as error:
        raise SourceError(f"{shown_path(path)}: cannot be written ({error.strerror or error})") from None


def _ids(file: Path) -> set[str]:
    if not file.exists():
        return set()
    found = set()
    with open_to_read(file) as lines:
        for line in lines:
            try:
                found.add(str(json.loads(line)["id"]))
            except (ValueError, KeyError, TypeError):
                continue
    return found


def _card(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The card by its catalog id where it is known, and its exact total."""
    name, total = facts.get("gpu"), facts.get("gpu_total_bytes")
    if not name:
        return {}
    found: dict[str, object] = {"gpu_total_bytes": total} if total else {}
    try:
        return {"gpu": find_installed_gpu(str(name), total).gpu.id, **found}
    except Exception:  # a card that the catalog does not know keeps its total alone
        return found


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "-" for c in name.rsplit("/", 1)[-1].lower())[:60]
