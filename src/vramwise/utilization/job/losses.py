"""What a job loses most by, what to try, and what that would gain at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vramwise.utilization.job.uneven import EXPERTS, PIPELINE, UNTOLD

if TYPE_CHECKING:
    from vramwise.utilization.job.tables import Tables

NS_PER_MS = 1e6
MOST = 5
NOTICED = 0.01
"""A loss below this share of the time is none worth naming."""

OF_IDLE = (
    ("GPU idle: the CPU launches too late", "cpu_late_ns",
     "CUDA graphs or torch.compile(mode='reduce-overhead'), fewer .item() and synchronizing calls, more data workers"),
    ("GPU idle: launches take their time", "launch_latency_ns",
     "fewer and larger kernels: fused optimizer and norms, torch.compile, CUDA graphs"),
    ("GPU idle: waits for something launched before", "waiting_ns",
     "look at what ends the gaps: --critical-path names the dependency"),
)  # fmt: skip
COPIES = "pinned memory with non_blocking=True, copies on a stream of their own, the next batch fetched early"
TRANSFERS = {
    "all-reduce": "gradient accumulation, larger buckets (bucket_cap_mb), less tensor parallelism within a node",
    "all-gather": "prefetch (forward_prefetch, limit_all_gathers off), no resharding after forward where memory allows",
    "reduce-scatter": "larger buckets, gradient accumulation without synchronization",
}
OTHER_TRANSFER = "overlap it with compute, or send less: precision of what is sent, fewer and larger calls"


def losses(tables: Tables, ranks: list[dict[str, Any]], steps: int, late: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest, as milliseconds of a step of the mean rank; `gain_ms` is what its end would save at most."""
    each = max(1, len(ranks)) * steps * NS_PER_MS
    span = sum(row["span_ns"] for row in ranks) / each
    found = [_loss(name, sum(row[column] for row in ranks) / each, what) for name, column, what in OF_IDLE]
    found.append(_loss("copies under no compute", sum(row["copies_ns"] for row in ranks) / each, COPIES))
    computing = sum(row["compute_ns"] for row in ranks) / each
    hidden = sum(row["communication_ns"] - row["exposed_communication_ns"] for row in ranks) / each
    for row in _by_kind(tables):
        waiting, transfer = row["waiting_ns"] / each, row["transfer_ns"] / each
        found.append(_waiting(row["kind"], waiting, late))
        what = TRANSFERS.get(row["kind"], OTHER_TRANSFER)
        name = f"{row['kind']}: transfers under no compute"
        if row["kind"] == PIPELINE:
            continue  # what a stage waits for the one before it is the bubble's, whoever's kernel shows it
        found.append(_loss(name, transfer, what, gain=min(transfer, max(0.0, computing - hidden))))
    found = [loss for loss in found if loss["ms_per_step"] >= NOTICED * span]
    return sorted(found, key=lambda loss: -loss["ms_per_step"])[:MOST]


def _by_kind(tables: Tables) -> list[dict[str, Any]]:
    """By kind: exposed waiting for ranks that come later, and the rest that no compute hides.

    All of a pipeline's sends and receives under no compute count as waiting: they last until the other stage is there.
    """
    return tables.rows("""
        WITH told AS (
            SELECT like_id, CASE WHEN kind = $1 AND "group" = '' THEN $2 ELSE kind END AS kind FROM likes),
        exposed AS (
            SELECT told.kind, sum(exposed_ns) AS ns FROM holdings JOIN told USING (like_id) GROUP BY told.kind),
        waited AS (
            SELECT kind, sum(exposed_waiting_ns) AS ns FROM waits JOIN told USING (like_id) GROUP BY kind)
        SELECT exposed.kind, exposed.ns - coalesce(waited.ns, 0) AS transfer_ns,
               CASE WHEN exposed.kind = $1 THEN exposed.ns ELSE coalesce(waited.ns, 0) END AS waiting_ns
        FROM exposed LEFT JOIN waited USING (kind) ORDER BY exposed.kind""", PIPELINE, UNTOLD)  # fmt: skip


def _waiting(kind: str, lost: float, late: list[dict[str, Any]]) -> dict[str, Any]:
    if kind == PIPELINE:
        return _loss(
            "pipeline bubble: stages wait for one another",
            lost,
            "more micro-batches a step, an interleaved schedule, layers moved off the heaviest stage",
        )
    if kind == EXPERTS:
        return _loss(
            "uneven experts: ranks wait in all-to-alls for those with more tokens",
            lost,
            "a stronger balancing loss or bias, a capacity factor, another placement of experts",
        )
    names = [one["rank"] for one in late if one["collective"] == kind][:3]
    if names:
        whom = f"rank {names[0]}" if len(names) == 1 else f"ranks {', '.join(names)}"
        what = f"look at {whom}: its clocks and temperature, its data loading, other processes on its host"
        return _loss(f"{kind}: the others wait for {whom}", lost, what)
    what = "equal work for every rank: lengths balanced over the batch"
    if late:
        first = late[0]
        what = f"first rank {first['rank']}, late in {first['collective']}s: its group passes that on; {what}"
    return _loss(f"{kind}: ranks arrive unevenly", lost, what)


def _loss(name: str, lost: float, what: str, gain: float | None = None) -> dict[str, Any]:
    return {"name": name, "ms_per_step": lost, "try": what, "gain_ms": lost if gain is None else gain}
