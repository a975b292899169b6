"""An engine's share of the card as its parts, and what lies outside it: each part stands on one side, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from vramwise.hardware import Gpu
from vramwise.result import Result
from vramwise.scenario.definition import ServeSettings

SHARE_KEYS: Mapping[str, str] = {
    "vllm": "gpu_memory_utilization",
    "sglang": "mem_fraction_static",
    "tensorrt-llm": "gpu_memory_utilization",
    "tgi": "gpu_memory_utilization",
}
"""The engines that fill a share of the card with a pool of cache tokens, and the key of that share."""
IN_PARTS = frozenset({"vllm", "sglang"})
"""Of these, those whose share is told as its parts."""
_LABELS = {"vllm": {"weights": "model weights"}}
Part = tuple[str, int]


@dataclass(frozen=True, slots=True)
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


def share_of(result: Result, settings: ServeSettings, gpu: Gpu | None) -> Share | None:
    """The share of an answer on a known card; None where its parts are not told or the cache's size is given."""
    name = SHARE_KEYS[settings.engine] if settings.engine in IN_PARTS else None
    fraction = result.scenario["serve"].get(name) if name is not None else None
    if name is None or fraction is None or result.capacity is None or settings.kv_cache_memory_bytes:
        return None
    held = {child.name: child.bytes for child in result.phases[-1].components.children}
    card = result.capacity.usable_bytes
    if settings.engine == "sglang":
        card -= held["CUDA context" if "CUDA context" in held else "outside torch"]
        inside = {"weights", "state pool", "KV cache"}
    else:
        inside = _of_vllm(settings, gpu)
    labels = _LABELS.get(settings.engine, {})
    taken = _taken_by_graphs(result)
    parts = []
    for part, size in held.items():
        if part.startswith("profile run"):
            parts.append(("activation peak", size + taken, True))
        elif part == "CUDA graphs" and taken:
            parts.append(("CUDA graphs beyond the activation's", size - taken, part in inside))
        elif size or part == "KV cache":
            parts.append((labels.get(part, part), size, part in inside))
    parts.sort(key=lambda part: part[0] == "KV cache")  # what is left for it comes last
    return Share(
        name, float(fraction), card,
        tuple((label, size) for label, size, within in parts if within),
        tuple((label, size) for label, size, within in parts if not within),
    )  # fmt: skip


def _taken_by_graphs(result: Result) -> int:
    """Bytes that the profile run took and that graphs beside the share lie in, on a card without room for both."""
    sizes = {
        phase.name: sum(child.bytes for child in phase.components.children if child.name.startswith("profile run"))
        for phase in result.phases
    }
    return sizes["profile run"] - sizes["decode"] if "profile run" in sizes else 0


def _of_vllm(settings: ServeSettings, gpu: Gpu | None) -> set[str]:
    """The parts that a version of vLLM charges to its budget."""
    from vramwise.serving.vllm.settings import version_and_profile

    profile = version_and_profile(settings, gpu)[1]
    inside = {"weights", "sampler state", "non-torch", "KV cache"}
    if profile.counts_context:
        inside.add("CUDA context")
    if profile.graphs_in_budget:
        inside.add("CUDA graphs")
    return inside
