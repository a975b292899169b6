"""One rank of a job by what its tables hold: for a trace that is no longer where it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.utilization.job.tables import Tables

PARTS = (
    "span", "compute", "exposed_communication", "copies", "other", "idle", "cpu_late", "launch_latency", "waiting",
    "unknown",
)  # fmt: skip


def rank_answer(tables: Tables, rank: str, top: int) -> dict[str, object]:
    """Times in milliseconds: where they went, steps, the kernels that take longest, waiting by group, memory."""
    (about,) = tables.rows("SELECT * FROM ranks WHERE rank = ?", rank)
    trace, place = about["trace"], about["place"]
    return {
        **{name: about[name] for name in ("trace", "host", "gpu", "world_size", "truncated", "gpu_events")},
        **{f"{name}_ms": about[f"{name}_ns"] / 1e6 for name in PARTS},
        "steps": tables.rows("""
            SELECT name, cpu_ns / 1e6 AS cpu_ms, compute_ns / 1e6 AS compute_ms, idle_ns / 1e6 AS idle_ms,
                   exposed_communication_ns / 1e6 AS exposed_communication_ms FROM steps WHERE trace = ?
            ORDER BY start_ns""", trace),
        "kernels": tables.rows("""
            SELECT name, class, category, count, ns / 1e6 AS sum_ms FROM kernels WHERE trace = ?
            ORDER BY ns DESC, name LIMIT ?""", trace, top),
        "waits": tables.rows("""
            SELECT likes."group", kind, calls, total_ns / 1e6 AS sum_ms, waiting_ns / 1e6 AS waiting_ms
            FROM waits JOIN likes USING (like_id) WHERE place = ? ORDER BY waiting_ms DESC, like_id""", place),
        "memory": tables.rows("""
            SELECT device, allocated_bytes, reserved_bytes, step FROM memory WHERE trace = ? ORDER BY device""", trace),
    }  # fmt: skip
