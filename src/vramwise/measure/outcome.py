"""A run's report as a `Result` whose numbers are measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Final

from vramwise.errors import VramwiseError
from vramwise.measure.attribution import ModuleShare, module_shares
from vramwise.measure.diagnosis import Diagnosis, diagnose_text
from vramwise.measure.job import Job, Report
from vramwise.result import Capacity, ModelFacts, Node, Phase, Quantity, Rank, Result

REST: Final = "activations and temporaries"
WHOLE_STEP: Final = 2
"""Steps from this one on have the optimizer's states; earlier ones only where nothing else was finished."""

_KEPT: Final = ("weights", "buffers", "optimizer states", "gradient buckets", "inputs", "KV cache")
_BUILDING: Final = "0|load"
_HELD: Final = "0|loaded"
_POINTS: Final = {"backward": "forward end", "clipping": "backward end", "optimizer step": "backward end"}
"""Marks whose start is a moment of its own: what is held when forward or backward is over."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, or several of one scenario: the result, what modules kept, runs out of memory, and the environment.

    `broken`: it ended for another reason than memory; the result's notes have the words. `ranks`: a result a rank of
    the first run, where it had several.
    """

    result: Result
    modules: tuple[ModuleShare, ...]
    failures: tuple[Diagnosis, ...]
    facts: Mapping[str, Any]
    steps: int
    interrupted: bool
    broken: bool = False
    ranks: tuple[Result, ...] = ()


def measured_of(job: Job, runs: Sequence[Sequence[Report]]) -> Measured:
    """The result of one or several runs of a job, each with a report a rank.

    The worst rank is the result's; among repeats the middle one, and the interval is their spread. Raises VramwiseError
    with the run's own words when it failed for another reason than memory.
    """
    reports = [report for ranks in runs for report in ranks]
    broken = next((report.failure for report in reports if report.failure), None)
    if broken is not None and not any(report.records for report in reports):
        raise VramwiseError(f"the run failed: {broken}")
    worst = [max(ranks, key=_peak) for ranks in runs]
    middle = sorted(worst, key=_peak)[(len(worst) - 1) // 2]
    failures = tuple(item for report in reports if report.oom for item in _failures(report.oom))
    phases = phases_of(job, middle)
    quantities = _quantities(job, worst)
    quantities["oom"] = Quantity.exact(any(report.oom for report in reports))
    remarks = [*middle.remarks, *([f"ended early: {broken}"] if broken else [])]
    if middle.interrupted:
        remarks.append(f"interrupted after {middle.finished_steps} of {job.steps} steps")
    result = Result(
        scenario=dict(job.scenario),
        model=ModelFacts(
            job.model_id, int(middle.facts.get("num_parameters", 0)), int(middle.facts.get("num_parameters", 0)),
            int(middle.facts.get("num_trainable_parameters", 0)), "counted on the module that ran",
        ),
        quantities=quantities,
        phases=phases,
        peak_phase=max(phases, key=lambda phase: phase.bytes).name if phases else None,
        ranks=_ranks(runs[0]) if len(runs[0]) > 1 else (),
        capacity=_capacity(middle.facts),
        notes=tuple(dict.fromkeys(remarks)),
    )  # fmt: skip
    shares = module_shares(middle.notes, middle.module_weights)
    interrupted = any(report.interrupted for report in reports)
    ranks = tuple(measured_of(job, [[report]]).result for report in runs[0]) if len(runs[0]) > 1 else ()
    return Measured(
        result, tuple(shares), failures, middle.facts, middle.finished_steps, interrupted, broken is not None, ranks
    )


def phases_of(job: Job, report: Report) -> tuple[Phase, ...]:
    """Moments of the whole steps, each at its largest, with the terms that are known."""
    rows = _whole_steps(report)
    moments: dict[str, tuple[int, Mapping[str, int]]] = {}
    for step, moment, row in rows:
        if moment in ("inputs", "end", "loaded"):
            continue
        if moment in _POINTS:
            _keep_largest(moments, _POINTS[moment], row["start"], row.get("at_start") or {})
        _keep_largest(moments, moment, row["peak"], row.get("at_peak") or {})
        del step
    order = (
        "load",
        "forward",
        "loss",
        "forward end",
        "backward",
        "backward end",
        "clipping",
        "optimizer step",
        "prefill",
        "decode",
    )
    return tuple(
        Phase(name, _tree(job, report, name, *moments[name]))
        for name in sorted(moments, key=lambda n: order.index(n) if n in order else len(order))
    )


def spread(report: Report) -> int:
    """Largest less smallest peak of the whole steps' equal moments."""
    peaks: dict[str, list[int]] = {}
    for _, moment, row in _whole_steps(report):
        peaks.setdefault(moment, []).append(row["peak"])
    return max((max(values) - min(values) for values in peaks.values()), default=0)


def _keep_largest(
    moments: dict[str, tuple[int, Mapping[str, int]]], name: str, size: int, shares: Mapping[str, int]
) -> None:
    if name not in moments or size > moments[name][0]:
        moments[name] = size, shares


def _whole_steps(report: Report) -> list[tuple[int, str, Mapping[str, Any]]]:
    rows = []
    for row in report.records:
        step, _, moment = str(row["label"]).partition("|")
        rows.append((int(step), moment, _loaded(row, report) if row["label"] == _BUILDING else row))
    last = max((step for step, _, _ in rows), default=0)
    least = min(WHOLE_STEP, last)
    return [(step, moment, row) for step, moment, row in rows if step == 0 or step >= least]


def _loaded(row: Mapping[str, object], report: Report) -> Mapping[str, object]:
    """The moment of loading: what is held after it. Random weights take more on the way (a head that is then tied to
    the embedding, a base that is then quantized) than reading a checkpoint does."""
    after = next((other for other in report.records if other["label"] == _HELD), None)
    return {**row, "peak": row["end"], "at_peak": (after or {}).get("at_start") or {}}


def _tree(job: Job, report: Report, name: str, size: int, shares: Mapping[str, int]) -> Node:
    known = {part: amount for part, amount in shares.items() if part and amount}
    if not known:  # counters do not tell tensors apart: what is constant is known, the rest is the rest
        kept = ("weights", "buffers") if name == "load" else _KEPT
        known = {part: report.sizes[part] for part in kept if report.sizes.get(part)}
        if name in ("backward end", "clipping", "optimizer step") and report.sizes.get("gradients"):
            known["gradients"] = report.sizes["gradients"]
    rest = size - sum(known.values())
    source = "torch.cuda.max_memory_allocated" if job.device.startswith("cuda") else "torch.profiler profile_memory"
    if rest < 0:
        return Node(name, size, "measured", source=source)
    leaves = [Node(part, amount, "measured") for part, amount in known.items()]
    if rest:
        leaves.append(Node(REST, rest, "measured"))
    return Node(name, size, "measured", source=source, children=tuple(leaves))


def _quantities(job: Job, reports: Sequence[Report]) -> dict[str, Quantity]:
    facts = [report.facts for report in reports]
    is_whole = all(report.finished_steps >= min(WHOLE_STEP, job.steps) or job.task == "load" for report in reports)
    found: dict[str, Iterable[int | None]] = {
        "params": [fact.get("num_parameters") for fact in facts],
        "weights": [_held_after_load(report) for report in reports],
        "kv_cache_bytes": [report.sizes.get("KV cache") if job.task == "generate" else None for report in reports],
    }
    if is_whole and not any(report.oom for report in reports):
        found |= {
            "peak_allocated": [_peak(report) for report in reports],
            "peak_reserved": [_peak_reserved(report) for report in reports],
            "nvidia_smi": [fact.get("process_bytes") for fact in facts],
            "non_torch": [_outside(fact) for fact in facts],
        }
    return {name: quantity for name, values in found.items() if (quantity := _spread(values)) is not None}


def _spread(values: Iterable[int | None]) -> Quantity | None:
    known = [value for value in values if value is not None]
    return Quantity(min(known), median_low(known), max(known)) if known else None


def _held_after_load(report: Report) -> int | None:
    return next((int(row["start"]) for row in report.records if row["label"] == _HELD), None)


def _peak(report: Report) -> int:
    return max((int(row["peak"]) for _, _, row in _whole_steps(report)), default=0)


def _peak_reserved(report: Report) -> int | None:
    rows = [row for row in report.records if row["label"] != _BUILDING]
    return max((int(row["reserved"]) for row in rows if row["reserved"] is not None), default=None)


def _outside(facts: Mapping[str, Any]) -> int | None:
    used, reserved = facts.get("process_bytes"), facts.get("reserved_at_end_bytes")
    return max(0, used - reserved) if used is not None and reserved is not None else None


def _ranks(reports: Sequence[Report]) -> tuple[Rank, ...]:
    return tuple(Rank(f"rank {i}", _peak(report)) for i, report in enumerate(reports))


def _capacity(facts: Mapping[str, Any]) -> Capacity | None:
    total = facts.get("gpu_total_bytes")
    return Capacity(str(facts.get("gpu", "")), int(total), int(total)) if total else None


def _failures(text: str) -> list[Diagnosis]:
    try:
        return diagnose_text(text)
    except VramwiseError:
        return []
