"""Pieces that every engine's answer shares: facts, capacity, context, sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from vramwise.hardware import Gpu, MemoryEstimate, context_bytes, context_of_torch
from vramwise.models import Model
from vramwise.result import Capacity, ModelFacts, Node, Phase, Quantity, Rank, Result, Verdict
from vramwise.scenario import Scenario
from vramwise.units import GIB, format_bytes


def facts(model: Model, source: str) -> ModelFacts:
    """The model in numbers; nothing is trained."""
    return ModelFacts(model.id, model.num_parameters, model.num_active_parameters, 0, source)


_contexts: dict[str, Node] = {}


def context_node(gpu: Gpu | None, *, of_torch: bool = False) -> Node:
    """CUDA context and loaded kernels of the process; `of_torch`: of one that runs torch and no engine."""
    if of_torch:
        return _node_of(context_of_torch(gpu))
    name = gpu.id if gpu is not None else ""
    if name not in _contexts:
        _contexts[name] = _node_of(context_bytes(gpu))
    return _contexts[name]


def _node_of(context: MemoryEstimate) -> Node:
    return Node(
        "CUDA context", context.expected, "calibrated", context.low, context.high,
        formula=context.rule, source=context.source,
    )  # fmt: skip


def interval(node: Node) -> Quantity:
    """A node as a quantity."""
    return Quantity(node.low, node.bytes, node.high)


def amount(size: float) -> str:
    """Bytes as a person reads them in a sentence."""
    return format_bytes(round(size), "GiB" if abs(size) >= GIB // 10 else "MiB")


def resolved(scenario: Scenario, table: str, settings: Any) -> dict[str, Any]:
    """The scenario with the engine's own values written in."""
    return replace(scenario, **{table: settings}).to_dict() if table else scenario.to_dict()


def peak_of(phases: Iterable[Phase]) -> Phase:
    """The moment with the most bytes, the last one of several."""
    return max(reversed(tuple(phases)), key=lambda phase: phase.bytes)


def card_notes(gpu: Gpu | None, stored_dtype: str, quantization: str | None) -> tuple[str, ...]:
    """What the card cannot compute with."""
    if gpu is None:
        return ()
    notes = []
    if stored_dtype == "bf16" and gpu.supports("bf16") is False:
        notes.append(f"{gpu.name} has no bf16: set dtype to fp16 (same size)")
    if quantization is not None and quantization.startswith("fp8") and gpu.supports("fp8_weights") is False:
        notes.append(f"{gpu.name} runs no fp8 weights: engines refuse them")
    return tuple(notes)


def assemble(
    scenario: Mapping[str, object], model: Model, source: str, quantities: Mapping[str, Quantity],
    phases: tuple[Phase, ...], capacity: Capacity | None, verdict: Verdict | None, notes: Iterable[str],
    ranks: tuple[Rank, ...] | None = None,
) -> Result:  # fmt: skip
    """The result, with its largest moment as the peak and, unless told otherwise, one kind of rank."""
    peak = peak_of(phases)
    return Result(
        scenario=scenario,
        model=facts(model, source),
        quantities=quantities,
        phases=phases,
        peak_phase=peak.name,
        ranks=ranks if ranks is not None else (Rank("every GPU", peak.bytes),),
        capacity=capacity,
        verdict=verdict,
        notes=tuple(notes),
    )
