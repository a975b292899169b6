"""Everything that is said of one trace and of several, as the JSON of `vramwise profile --json` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vramwise.utilization.profiler.collectives import Collective, collective_table, collectives
from vramwise.utilization.profiler.decomposition import COMPUTE, classes_by_name, decompose, named_class, percent
from vramwise.utilization.profiler.hta import hta_figures, last_step_start
from vramwise.utilization.profiler.kernels import kernel, on_old_list, own_class
from vramwise.utilization.profiler.launches import among, idle_causes, launch_times, orphans
from vramwise.utilization.profiler.memory_figures import memory_figures
from vramwise.utilization.profiler.recording import ABSENT, KERNEL, STREAM_ONLY
from vramwise.utilization.profiler.steps import cpu_steps, step_count, step_table
from vramwise.utilization.profiler.tally import NONE, tally_of
from vramwise.utilization.profiler.tensorboard import tensorboard_figures
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.recording import GpuEvents, Recording
    from vramwise.utilization.profiler.tally import Tally, Times

SCHEMA = 1
TOP_KERNELS = 20


def analyse(recordings: Sequence[Recording], *, top: int = TOP_KERNELS) -> dict[str, Any]:
    """Every rank by its number, and what can only be said of all together."""
    labels = rank_labels(recordings)
    found = {label: collectives(recording, recording.gpu) for label, recording in zip(labels, recordings, strict=True)}
    ranks = {
        label: rank_figures(recording, top=top, found=found[label])
        for label, recording in zip(labels, recordings, strict=True)
    }
    if len(recordings) == 1:
        return {"schema": SCHEMA, "ranks": ranks, "across": None}
    from vramwise.utilization.profiler.ranks import across

    first = _ranks_named(recordings)
    together = across(
        {label: each for label, each in found.items() if label in first and len(ranks[label]["all_events"]) > 1}
    )
    return {"schema": SCHEMA, "ranks": ranks, "across": None if together is None else together.to_dict()}


def critical_path_of(recordings: Sequence[Recording], step: str = "") -> dict[str, object] | None:
    """The critical path of one step through all ranks, as `--critical-path --json` has it.

    `step`: its name or number; the one of median length without. None without GPU events.
    Raises UsageError for a step that the trace has not.
    """
    from vramwise.utilization.profiler.critical_path import chosen_step, critical_path
    from vramwise.utilization.profiler.observed import observed, step_lengths

    labelled = zip(rank_labels(recordings), recordings, strict=True)
    first = _ranks_named(recordings)
    used = {label: one for label, one in labelled if label in first and len(one.on_gpu)}
    if not used:
        return None
    name = chosen_step(step_lengths(next(iter(used.values()))), step)
    return critical_path(name, {label: observed(one, name) for label, one in used.items()})


def rank_labels(recordings: Sequence[Recording]) -> list[str]:
    """The rank that each trace states, else the one in its file's name, else its place; equal ones keep their file."""
    labels: list[str] = []
    for place, recording in enumerate(recordings):
        rank = recording.named_rank or str(place)
        labels.append(rank if rank not in labels else f"{rank} ({recording.file})")
    return labels


def _ranks_named(recordings: Sequence[Recording]) -> set[str]:
    """The labels of ranks, without those of their second traces."""
    return {recording.named_rank or str(place) for place, recording in enumerate(recordings)}


def rank_figures(
    recording: Recording, *, top: int = TOP_KERNELS, found: Sequence[Collective] | None = None
) -> dict[str, Any]:
    """All figures of one rank; without GPU events only what the file is. `found`: its collectives, where known."""
    events = recording.on_gpu
    about = {"file": recording.file, "gpu": recording.gpu_name, "world_size": recording.world_size}
    if not len(events):
        window = {"events": recording.events_read, "truncated": recording.truncated, "steps": _step_names(recording)}
        return {**about, "window": window, "orphans": None, "all_events": {"gpu_events": 0}, "hta": None}
    launched = launch_times(events, recording.calls)
    own = classes_by_name(recording, events, own_class)
    parts = decompose(events.start, events.end, own)
    all_events = classified = parts.to_dict()
    causes = idle_causes(events, launched, parts.running)
    alike = collective_table(
        collectives(recording, recording.gpu) if found is None else found, parts.computing, parts.span
    )
    del parts  # of a large trace the times in which anything ran are large
    tally = tally_of(recording, events)
    if renamed := sorted(name for name in tally.names if named_class(name) != own_class(name)):
        all_events = decompose(events.start, events.end, classes_by_name(recording, events)).to_dict()
    streams = sorted(tally.streams, key=str)
    beside = {"orphans": orphans(launched), "streams": streams, "n_steps": step_count(recording)}
    return {
        **about,
        "window": _window(recording, events),
        "orphans": orphans(launched),
        "all_events": {**all_events, **beside},
        "hta": hta_figures(recording),
        "tensorboard": tensorboard_figures(recording, events, launched),
        "classified": {**classified, "renamed": renamed},
        "idle_causes": causes.to_dict(),
        "tensor_cores": tensor_core_shares(tally),
        "products": matrix_products(recording, events),
        "categories": _categories(tally),
        "kernels": _top_kernels(tally, top),
        "steps": step_table(recording, events, own, launched),
        "collectives": alike,
        "memory": [memory_figures(timeline, recording, int(events.start.min())) for timeline in recording.memory],
    }


def tensor_core_shares(tally: Tally) -> dict[str, object]:
    """Share of compute kernels' summed time on tensor cores: yes, no, unknown. The true share is between yes and yes +
    unknown. It is a share of kernel time, not of peak: a slow tensor-core kernel counts in full.

    `old_list_pct` is what the TensorBoard plugin's list of 2021 gives, over all kernels, as that plugin counts.
    """
    verdicts = {"yes": 0, "no": 0, "unknown": 0}
    for name, times in tally.kernels.items():
        if own_class(name) == COMPUTE:
            verdicts[kernel(name).tensor_cores] += times.ns
    total = sum(verdicts.values())
    listed = sum(times.ns for name, times in tally.kernels.items() if on_old_list(name))
    shares = {f"{verdict}_pct": percent(time, total) for verdict, time in verdicts.items()}
    return {**shares, "compute_kernel_us": total / NS_PER_US, "old_list_pct": percent(listed, _sum(tally))}


def matrix_products(recording: Recording, events: GpuEvents) -> dict[str, object] | None:
    """TFLOP/s of matrix products while their kernels ran: FLOPs by shapes over the kernels' own time.

    Only products (mm, addmm, bmm, baddbmm, _scaled_mm) whose shapes and kernels are both in the trace, else None.
    """
    called = recording.products.external_id
    if not len(called):
        return None
    kernels = events.where((events.kind == KERNEL) & (events.external_id != ABSENT))
    counted = among(called, kernels.external_id)
    nanoseconds = int(kernels.duration[among(kernels.external_id, called)].sum())
    flops = int(recording.products.flops[counted].sum())
    if not nanoseconds or not flops:
        return None
    return {
        "count": int(counted.sum()),
        "flops": flops,
        "kernel_us": nanoseconds / NS_PER_US,
        "tflops": round(flops / nanoseconds / 1000, 3),
    }


def _sum(tally: Tally) -> int:
    return sum(times.ns for times in tally.kernels.values())


def _window(recording: Recording, events: GpuEvents) -> dict[str, object]:
    base = recording.header.get("baseTimeNanoseconds")
    start = int(events.start.min())
    skipped = int((recording.gpu.kind == STREAM_ONLY).sum())
    left_out = dict(recording.left_out)
    if skipped:
        left_out["events on a stream that are no kernel, copy or memory set"] = skipped
    return {
        "rule": "every GPU event of the file, from the first start to the last end",
        "start_ns": start + (base if isinstance(base, int) and not isinstance(base, bool) else 0),
        "span_us": int(events.end.max() - start) / NS_PER_US,
        "events": recording.events_read,
        "truncated": recording.truncated,
        "steps": _step_names(recording),
        "hta_leaves_out_last_step": last_step_start(recording) is not None,
        "left_out": left_out,
    }


def _step_names(recording: Recording) -> list[str]:
    return list(dict.fromkeys(mark.name for mark in cpu_steps(recording)))


def _categories(tally: Tally) -> list[dict[str, object]]:
    sums: dict[str, Times] = {}
    for name, times in tally.kernels.items():
        category = kernel(name).category
        sums[category] = sums.get(category, NONE).and_also(*times)
    if tally.copies.calls:
        sums["memory copies and sets"] = tally.copies
    total = sum(times.ns for times in sums.values())
    rows = sorted(sums.items(), key=lambda item: -item[1].ns)
    return [
        {"category": name, "sum_us": times.ns / NS_PER_US, "count": times.calls, "pct": percent(times.ns, total)}
        for name, times in rows
    ]


def _top_kernels(tally: Tally, top: int) -> list[dict[str, object]]:
    total = _sum(tally)
    rows = sorted(tally.kernels.items(), key=lambda item: -item[1].ns)[:top]
    return [
        {
            "name": name,
            "count": times.calls,
            "sum_us": times.ns / NS_PER_US,
            "mean_us": round(times.ns / times.calls / NS_PER_US, 3),
            "pct": percent(times.ns, total),
            "category": kernel(name).category,
            "tensor_cores": kernel(name).tensor_cores,
            "evidence": kernel(name).evidence,
        }
        for name, times in rows
    ]
