"""The result of a dry run: the estimate's own terms, counted on the real module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vramwise.dryrun.recorder import REMAINDERS
from vramwise.errors import VramwiseError, clipped
from vramwise.hardware import Gpu, context_of_torch
from vramwise.hardware.room import Room
from vramwise.intervals import around
from vramwise.measure.job import Report
from vramwise.result import ModelFacts, Node, Phase, Quantity, Result, Verdict
from vramwise.training.calibration import calibrated
from vramwise.training.counters import gemm_workspace, nccl_of_groups, plus, widened
from vramwise.units import counted, format_bytes
from vramwise.verdict import verdict_of

SOURCE: Final = "dry run: every allocation of the real module, replayed through the allocator's rules"
WORKSPACE: Final = "library workspace"
_LIBRARIES: Final = ("torch", "transformers", "diffusers", "timm", "sentence-transformers", "peft")
_UNSEEN: Final = (
    "a kernel's own temporaries are not seen (flash attention's backward, sorting, reductions): the interval has room "
    "for them"
)


def workspace_bytes(gpu: Gpu | None) -> int:
    """What cuBLAS takes for one handle and stream: forward's thread has one, backward's another."""
    return int(gemm_workspace(gpu).low)


def context_node(gpu: Gpu | None) -> Node:
    """What the process takes outside of torch's allocator."""
    found = context_of_torch(gpu)
    return Node(
        "CUDA context", found.expected, "calibrated", found.low, found.high, formula=found.rule, source=found.source
    )


def outside_torch(gpu: Gpu | None, groups: int) -> Node:
    """The CUDA context, with NCCL's buffers where several ranks run."""
    context = context_node(gpu)
    return Node.group("CUDA context and NCCL", [context, nccl_of_groups(groups, gpu)]) if groups else context


def result_of(
    found: Mapping[str, Any], scenario: Mapping[str, Any], model: str, gpu: Gpu | None, room: Room | None,
    notes: Sequence[str] = (), source: str = "counted on the module that ran", groups: int = 0,
) -> Result:  # fmt: skip
    """The result of one answer of the worker; `groups`: process groups whose buffers stand beside.

    Raises VramwiseError with the worker's words where the run failed.
    """
    report = Report.from_dict(found["report"])
    if report.failure:
        raise VramwiseError(f"the dry run failed: {clipped(report.failure, 400)}")
    context = outside_torch(gpu, groups)
    phases = tuple(_phase(moment, gpu, context) for moment in found["moments"])
    quantities = _quantities(found, report, phases, context, gpu)
    peak = max(phases, key=lambda phase: phase.bytes)
    verdict, capacity = None, None
    if room is not None:
        capacity = room.capacity
        verdict = _verdict(quantities, capacity.usable_bytes, peak.name, found.get("stuck"), context)
        quantities["oom"] = Quantity.exact(verdict.headroom_bytes < 0)
    count = int(report.facts.get("num_parameters", 0))
    trainable = int(report.facts.get("num_trainable_parameters", 0)) if scenario.get("task") == "train" else 0
    return Result(
        scenario=dict(scenario),
        model=ModelFacts(model, count, count, trainable, source),
        quantities=quantities,
        phases=phases,
        peak_phase=peak.name,
        capacity=capacity,
        verdict=verdict,
        notes=(*notes, *report.remarks, _ran(report.facts), _UNSEEN),
    )


def _ran(facts: Mapping[str, Any]) -> str:
    versions = facts.get("versions", {})
    said = " · ".join(f"{name} {versions[name]}" for name in _LIBRARIES if name in versions)
    what = f"{facts['class']} itself ran" if facts.get("class") else "the script itself ran"
    return f"dry run: {what} on fake tensors, without a GPU ({said})"


def _phase(moment: Mapping[str, Any], gpu: Gpu | None, context: Node) -> Phase:
    nodes = [_term(name, size, moment, gpu) for name, size in moment["categories"].items() if size]
    return Phase(str(moment["name"]), Node.group(str(moment["name"]), [*nodes, context], source=SOURCE))


def _term(name: str, size: int, moment: Mapping[str, Any], gpu: Gpu | None) -> Node:
    if name == WORKSPACE:
        known = gemm_workspace(gpu)
        low, high = min(size, int(known.low)), max(size, int(known.high))
        return Node(name, size, "calibrated", low, high, source=known.source)
    if name == REMAINDERS:
        formula = "blocks larger than what was asked for, because the rest was not worth splitting off"
        return Node(name, size, "derived", formula=formula, source="c10/cuda/CUDACachingAllocator.cpp")
    parts = [_part(group) for group in moment["groups"].get(name, ())]
    return Node(name, size, "derived", source=SOURCE, children=tuple(parts))


def _part(group: Mapping[str, Any]) -> Node:
    if not group["operation"]:
        return Node(counted(group["count"], "other"), group["bytes"], "derived")
    name = " ".join(filter(None, (group["module"], group["operation"])))
    return Node(
        clipped(name, 120), group["bytes"], "derived", formula=counted(group["count"], "allocation"),
        inputs={"count": group["count"]}, source=clipped(group["line"], 200),
    )  # fmt: skip


def _quantities(
    found: Mapping[str, Any], report: Report, phases: Sequence[Phase], context: Node, gpu: Gpu | None
) -> dict[str, Quantity]:
    load = next((moment for moment in found["moments"] if moment["name"] == "load"), None)
    quantities = {}
    if report.facts.get("num_parameters"):
        quantities["params"] = Quantity.exact(int(report.facts["num_parameters"]))
    if load is not None:
        kept = load["categories"]
        on_card = sum(kept.get(name, 0) for name in ("weights", "adapters"))
        waiting = int(report.sizes.get("weights waiting", 0))
        quantities["weights"] = Quantity.exact(on_card or waiting)
        if waiting:
            quantities["host_memory"] = Quantity.exact(waiting)
    if report.sizes.get("KV cache"):
        quantities["kv_cache_bytes"] = Quantity.exact(report.sizes["KV cache"])
    largest = max(found["moments"], key=lambda moment: moment["bytes"])
    work = largest["categories"].get(WORKSPACE, 0)
    error = calibrated("profile_error_transformers")
    peak = widened(largest["bytes"] - work, error.low, error.high)
    allocated = plus(peak, _term(WORKSPACE, work, largest, gpu)) if work else peak
    cell = report.facts.get("interval")
    if cell:  # a kind of run whose kernels' own share is not that of transformers
        certain = largest["categories"].get("weights", 0)
        allocated = around("peak_allocated", allocated, str(cell), allocated.expected, certain)
    quantities["peak_allocated"] = allocated
    quantities["peak_reserved"] = reserved = _reserved(allocated, max(found["peak_reserved"], largest["bytes"]))
    quantities["nvidia_smi"] = process = plus(reserved, context)
    needed = plus(allocated, context)
    high = max(needed.high, round(process.expected))
    quantities["total_needed"] = Quantity(needed.low, needed.expected, high)
    return quantities


def _reserved(allocated: Quantity, played: int) -> Quantity:
    """What the replay reserved, with the interval that published runs have around theirs."""
    slack = calibrated("reserved_over_replayed")
    share = played / allocated.expected
    low, high = allocated.low * share * slack.low, allocated.high * share * slack.high
    expected = round(played * slack.expected)
    return Quantity(min(round(low), expected), expected, max(round(high), expected))


def _verdict(
    quantities: dict[str, Quantity], usable: int, peak: str, stuck: Sequence[Any] | None, context: Node
) -> Verdict:
    needed = quantities["total_needed"]
    reasons = []
    if stuck is not None and needed.expected <= usable:
        _, wanted, held = stuck
        expected = max(needed.expected, held + wanted + context.bytes)
        needed = quantities["total_needed"] = Quantity(needed.low, expected, max(needed.high, expected))
        reasons.append(
            f"all tensors together fit, but no free piece is as large as the {format_bytes(wanted)} that the allocator "
            "asks for next (expandable segments leave larger pieces)"
        )
    headroom = usable - needed.expected
    what = "to spare" if headroom >= 0 else "too little"
    said = f"{format_bytes(abs(int(headroom)))} {what}: {format_bytes(int(needed.expected))} needed"
    first = f"{said}, {format_bytes(usable)} usable; the peak is at: {peak}"
    return verdict_of(needed, usable, [first, *reasons])
