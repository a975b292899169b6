"""Estimated beside measured: counters, moments and the terms of each moment, with what explains the difference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vramwise.measure.outcome import REST
from vramwise.result import Node, Phase, Quantity, Result
from vramwise.units import format_bytes

OUTSIDE_TENSORS: Final = frozenset({"CUDA context", "NCCL"})
WORKSPACES: Final = frozenset({"library workspace", "library workspaces"})
COUNTERS: Final = ("weights", "kv_cache_bytes", "peak_allocated", "peak_reserved", "non_torch", "nvidia_smi")

_MOMENTS: Final[dict[str, tuple[str, ...]]] = {
    "load": ("load",),
    "loss": ("loss", "forward return"),
    "forward end": ("forward end",),
    "backward": ("backward: head", "backward: layers", "backward end"),
    "backward end": ("backward end",),
    "clipping": ("clipping",),
    "optimizer step": ("optimizer step",),
    "prefill": ("prefill",),
    "decode": ("decode",),
}
"""Measured moments and the estimate's that lie within them; its largest is the one to compare with."""

_TERMS: Final = {
    "weights": "weights",
    "adapters": "weights",
    "gathered weights": "weights",
    "buffers": "buffers",
    "step counters": "step counters",
    "optimizer states": "optimizer states",
    "master weights": "optimizer states",
    "gradients": "gradients",
    "gradient buckets": "gradient buckets",
    "inputs": "inputs",
    "KV cache": "KV cache",
}

_NOT_ALWAYS_TOLD: Final = ("gradients", "gradient buckets", "inputs", "KV cache")
"""Terms that CUDA's counters cannot always tell from the rest; the estimate's go with the rest where they do not."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison: bytes, and how deep it stands (0 counter or moment, 1 term of the one above)."""

    name: str
    estimated: int | None
    measured: int | None
    low: int | None = None
    high: int | None = None
    depth: int = 0

    @property
    def difference(self) -> int | None:
        """estimated − measured, so that an estimate that is too low is negative."""
        return None if self.estimated is None or self.measured is None else self.estimated - self.measured

    @property
    def relative(self) -> float | None:
        return self.difference / self.measured if self.difference is not None and self.measured else None

    @property
    def in_interval(self) -> bool | None:
        """Whether the measured number lies between the ends of the estimate's interval."""
        if self.measured is None or self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


def differences(estimated: Result | None, measured: Result, *, on_cpu: bool) -> list[Row]:
    """Counters first, then every measured moment with its terms.

    Measured moments count tensors, so the estimate's CUDA context and NCCL buffers are left out of its moments; on a
    CPU there are no library workspaces either.
    """
    rows = _counters(estimated, measured, on_cpu)
    left_out = OUTSIDE_TENSORS | (WORKSPACES if on_cpu else frozenset())
    for phase in measured.phases:
        other = _estimated_phase(estimated, phase.name, left_out)
        rows.append(Row(phase.name, _sum(other), phase.bytes))
        rows += _terms(other, phase)
    return rows


def largest_difference(rows: list[Row]) -> str | None:
    """A sentence on the moment that differs most and the term that explains most of it."""
    groups = _moments_with_terms(rows)
    moment = max(groups, key=lambda row: abs(row.difference or 0), default=None)
    if moment is None or not moment.difference:
        return None
    side = "less" if moment.difference < 0 else "more"
    said = f"{moment.name} differs most: the estimate has {format_bytes(abs(moment.difference), 'auto')} {side}"
    same_side = [row for row in groups[moment] if (row.difference or 0) * moment.difference > 0]
    term = max(same_side, key=lambda row: abs(row.difference or 0), default=None)
    if term is None or term.difference is None:
        return said
    return f"{said}, most of it {term.name} ({format_bytes(abs(term.difference), 'auto')})"


def _moments_with_terms(rows: list[Row]) -> dict[Row, list[Row]]:
    """Terms by the moment that they stand under; counters have none."""
    found: dict[Row, list[Row]] = {}
    moment = None
    for row in rows:
        if row.depth:
            assert moment is not None
            found.setdefault(moment, []).append(row)
        else:
            moment = row
    return found


def _counters(estimated: Result | None, measured: Result, on_cpu: bool) -> list[Row]:
    rows = []
    for name in COUNTERS:
        found = measured.quantities.get(name)
        if found is None:
            continue
        other = None if estimated is None else estimated.quantities.get(name)
        if on_cpu and name == "peak_allocated" and estimated is not None:
            other = without_workspaces(estimated)
        low, expected, high = (int(other.low), int(other.expected), int(other.high)) if other else (None, None, None)
        rows.append(Row(name, expected, int(found.expected), low, high))
    return rows


def without_workspaces(estimated: Result) -> Quantity:
    """The peak of tensors alone, as on a CPU, with what of the interval is not the workspaces'.

    The estimate adds distances to the ends as squares do, so they are taken away in the same manner; what is left is
    a share of the whole peak, and the same share of the tensors.
    """
    left_out = OUTSIDE_TENSORS | WORKSPACES
    size = max((_sum(_parts(phase.components, left_out)) or 0 for phase in estimated.phases), default=0)
    peak = estimated.quantities.get("peak_allocated", Quantity.exact(size))
    spaces = [n for phase in estimated.phases for n in phase.components.children if n.name in WORKSPACES]
    below = max((node.bytes - node.low for node in spaces), default=0)
    above = max((node.high - node.bytes for node in spaces), default=0)
    share = size / max(1, peak.expected)
    low = size - share * math.sqrt(max(0, (peak.expected - peak.low) ** 2 - below**2))
    high = size + share * math.sqrt(max(0, (peak.high - peak.expected) ** 2 - above**2))
    return Quantity.around(max(0, low), size, high)


def _estimated_phase(estimated: Result | None, name: str, left_out: frozenset[str]) -> Mapping[str, int] | None:
    if estimated is None:
        return None
    found = [_parts(phase.components, left_out) for phase in estimated.phases if phase.name in _MOMENTS.get(name, ())]
    return max(found, key=lambda parts: sum(parts.values()), default=None)


def _parts(moment: Node, left_out: frozenset[str]) -> dict[str, int]:
    """A moment's bytes by the terms that both sides know."""
    found: dict[str, int] = {}
    for child in moment.children or (moment,):
        if child.name not in left_out and child.bytes:
            term = _TERMS.get(child.name, REST)
            found[term] = found.get(term, 0) + child.bytes
    return found


def _terms(estimated: Mapping[str, int] | None, measured: Phase) -> list[Row]:
    own = _parts(measured.components, frozenset())
    if len(own) == 1 and measured.name in own:
        return []
    for name in _NOT_ALWAYS_TOLD:
        if estimated and name in estimated and name not in own:
            rest = estimated.get(REST, 0) + estimated[name]
            estimated = {key: size for key, size in estimated.items() if key != name} | {REST: rest}
    names = dict.fromkeys([*own, *(estimated or {})])
    return [
        Row(name, (estimated.get(name, 0) if estimated is not None else None), own.get(name, 0), depth=1)
        for name in names
    ]


def _sum(parts: Mapping[str, int] | None) -> int | None:
    return None if parts is None else sum(parts.values())
