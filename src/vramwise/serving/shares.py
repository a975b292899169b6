"""An engine's share of the card as its parts, and what lies outside it: each part stands on one side, once."""

from __future__ import annotations

from math import ceil

from vramwise.engines import engine_named
from vramwise.hardware import Gpu
from vramwise.records import record
from vramwise.result import Phase, Result
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.packages import rules_of

Part = tuple[str, int]


@record
class Share:
    """`fraction` of `card_bytes` is `bytes`, which the parts inside make up; with those outside they are the process.

    Where the parts without the cache exceed the share, the cache is 0 and they are more than `bytes`.
    """

    name: str
    fraction: float
    card_bytes: int
    inside: tuple[Part, ...]
    outside: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        return ceil(self.card_bytes * self.fraction)


def is_told(settings: ServeSettings) -> bool:
    """Whether the engine's share of a card is told as its parts."""
    return rules_of(settings.engine).share is not None


def share_of(result: Result, settings: ServeSettings, gpu: Gpu | None) -> Share | None:
    """The share of an answer on a known card; None where its parts are not told or the cache's size is given."""
    name, told = engine_named(settings.engine).memory_share, rules_of(settings.engine).share
    fraction = result.scenario["serve"].get(name) if name is not None else None
    if name is None or told is None or fraction is None or result.capacity is None or settings.kv_cache_memory_bytes:
        return None
    held = {child.name: child.bytes for child in _running(result).components.children}
    card = _card_bytes(result, gpu, result.capacity.usable_bytes, of_free=told.of_free)
    card -= sum(held.get(part, 0) for part in told.taken_first)
    inside = told.inside(settings, gpu, result.quantities)
    taken = _taken_by_graphs(result)
    parts: list[tuple[str, int, bool]] = []
    estimate = result.quantities.get("cuda_graph_estimate")
    if "CUDA graphs" in inside and estimate is not None:
        more = min(max(0, held.get("CUDA graphs", 0) - int(estimate.expected)), held.get("CUDA graphs", 0) - taken)
        if more > 0:
            held["CUDA graphs"] -= more
            parts.append(("graphs beyond their estimate", more, False))
    for part, size in held.items():
        if part.startswith("profile run"):
            parts.append(("activation peak", size + taken, True))
        elif part == "CUDA graphs" and taken:
            parts.append(("CUDA graphs beyond the activation's", size - taken, part in inside))
        elif size or part == "KV cache":
            parts.append((told.called.get(part, part), size, part in inside))
    parts.sort(key=lambda part: part[0] == "KV cache")  # what is left for it comes last
    return Share(
        name, float(fraction), card,
        tuple((label, size) for label, size, within in parts if within),
        tuple((label, size) for label, size, within in parts if not within),
    )  # fmt: skip


def _running(result: Result) -> Phase:
    """The last moment in which the engine is awake."""
    awake = (phase for phase in reversed(result.phases) if any(c.name == "KV cache" for c in phase.components.children))
    return next(awake)


def _card_bytes(result: Result, gpu: Gpu | None, usable_bytes: int, *, of_free: bool) -> int:
    """What the share is of: the card as a process sees it, or what of it is free at the start."""
    asked = result.scenario
    seen: int = asked.get("gpu_total_bytes") or (gpu.usable_bytes if gpu is not None else None) or usable_bytes
    free: int | None = asked.get("gpu_free_bytes")
    return min(seen, free) if of_free and free is not None else seen


def _taken_by_graphs(result: Result) -> int:
    """Bytes that the profile run took and that graphs beside the share lie in, on a card without room for both."""
    sizes = {
        phase.name: sum(child.bytes for child in phase.components.children if child.name.startswith("profile run"))
        for phase in result.phases
    }
    return sizes["profile run"] - sizes["decode"] if "profile run" in sizes else 0
