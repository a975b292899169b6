"""What differs over the ranks of a job: who comes late, links that are slow, stages and experts with more to do."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from vramwise.utilization.profiler.ranks import NOTICED_SHARE, STRAGGLER_SHARE

if TYPE_CHECKING:
    from vramwise.utilization.job.tables import Tables

NS_PER_MS = 1e6
SLOW_SHARE = 0.7
"""A group below this share of the usual bandwidth of groups like it is slow."""
LIKE_IT = 3
"""Groups of one kind and size from which there is something usual."""
NOTICED_IMBALANCE = 0.05
"""Compute that differs by less than this from the mean is nobody's fault."""
MOST_NAMED = 20
PIPELINE, EXPERTS = "send/receive", "all-to-all"
UNTOLD = "all-to-all or send/receive"
"""NCCL runs an all-to-all as sends and receives: of a kernel without a group nobody says which of them it was."""


def stragglers(tables: Tables, steps: int) -> list[dict[str, object]]:
    """Ranks for which the others of a group wait and that did not wait themselves before; the latest first.

    A rank that waits in its other groups longer than its peers here do passes on what another began. Waiting for
    experts and stages is theirs to explain.
    """
    rows = tables.rows("""
        WITH both_sides AS (
            SELECT place, like_id, total_ns, waiting_ns,
                   sum(waiting_ns) OVER (PARTITION BY place) - waiting_ns AS elsewhere_ns FROM waits),
        usual AS (
            SELECT like_id, median(waiting_ns) AS waiting_ns, median(elsewhere_ns) AS elsewhere_ns,
                   max(total_ns) AS longest_ns FROM both_sides GROUP BY like_id)
        SELECT ranks.rank, ranks.host, likes.kind, likes."group", usual.waiting_ns - one.waiting_ns AS late_ns
        FROM both_sides AS one JOIN usual USING (like_id) JOIN likes USING (like_id) JOIN ranks USING (place)
        WHERE usual.waiting_ns >= ? * usual.longest_ns AND one.waiting_ns < ? * usual.waiting_ns
          AND one.elsewhere_ns - usual.elsewhere_ns < ? * (usual.waiting_ns - one.waiting_ns)
          AND likes.kind NOT IN (?, ?)
        ORDER BY late_ns DESC, ranks.place""",
        NOTICED_SHARE, STRAGGLER_SHARE, STRAGGLER_SHARE, PIPELINE, EXPERTS)  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = found.setdefault(
            row["rank"],
            {"rank": row["rank"], "host": row["host"], "collective": row["kind"], "group": row["group"],
             "late_ms_per_step": 0.0},
        )  # fmt: skip
        one["late_ms_per_step"] = max(one["late_ms_per_step"], row["late_ns"] / NS_PER_MS / steps)
    return sorted(found.values(), key=lambda one: -one["late_ms_per_step"])[:MOST_NAMED]


def slow_links(tables: Tables) -> list[dict[str, object]]:
    """Groups whose transfers are slow beside those of other groups of the same kind, number of ranks and bytes."""
    rows = tables.rows("""
        WITH sized AS (
            SELECT like_id, likes.kind, likes."group", likes.members, likes.group_size,
                   sum(matched.bytes) / sum(shortest_ns) AS rate, round(log2(avg(matched.bytes))) AS size
            FROM matched JOIN likes USING (like_id) WHERE matched.bytes > 0 AND shortest_ns > 0 GROUP BY ALL)
        SELECT *, (SELECT list(ranks.rank ORDER BY ranks.place) FROM waits JOIN ranks USING (place)
                   WHERE waits.like_id = sized.like_id) AS ranks
        FROM sized ORDER BY like_id""")
    found = []
    for row in rows:
        alike = [
            other["rate"] for other in rows if all(other[name] == row[name] for name in ("kind", "group_size", "size"))
        ]
        usual = median(alike)
        if len(alike) >= LIKE_IT and row["rate"] < SLOW_SHARE * usual:
            found.append({"group": row["group"], "kind": row["kind"], "ranks": row["ranks"],
                          "gb_s": round(row["rate"], 3), "usual_gb_s": round(usual, 3)})  # fmt: skip
    return sorted(found, key=lambda one: one["gb_s"] / one["usual_gb_s"])[:MOST_NAMED]


def pipeline(tables: Tables, steps: int) -> dict[str, object] | None:
    """Compute by pipeline stage, and the bubble: what the ranks waited in sends and receives under no compute.

    A stage is a rank's place among those of its send/receive group; None without a group that the trace names.
    """
    stages = tables.rows("""
        WITH members AS (
            SELECT like_id, place, ranks.compute_ns FROM holdings JOIN likes USING (like_id) JOIN ranks USING (place)
            WHERE likes.kind = ? AND likes."group" <> '' AND likes.holders > 1)
        SELECT stage, avg(compute_ns) AS compute_ns, count(*) AS ranks FROM (
            SELECT compute_ns, row_number() OVER (PARTITION BY like_id ORDER BY place) - 1 AS stage FROM members)
        GROUP BY stage ORDER BY stage""", PIPELINE)  # fmt: skip
    if not stages:
        return None
    bubble = tables.rows("""
        SELECT sum(exposed_ns) AS exposed_ns, count(*) AS ranks, sum(span_ns) AS span_ns FROM (
            SELECT place, sum(exposed_ns) AS exposed_ns FROM holdings
            WHERE kind = ? AND "group" <> '' GROUP BY place)
        JOIN ranks USING (place)""", PIPELINE)[0]  # fmt: skip
    mean = sum(row["compute_ns"] for row in stages) / len(stages)
    heaviest = max(stages, key=lambda row: row["compute_ns"])
    more = heaviest["compute_ns"] / mean - 1 if mean else 0.0
    return {
        "compute_ms_per_step": [row["compute_ns"] / NS_PER_MS / steps for row in stages],
        "bubble": round(bubble["exposed_ns"] / bubble["span_ns"], 6) if bubble["span_ns"] else 0.0,
        "bubble_ms_per_step": bubble["exposed_ns"] / NS_PER_MS / steps / max(1, bubble["ranks"]),
        "heaviest_stage": heaviest["stage"] if more > NOTICED_IMBALANCE else None,
        "heaviest_over_mean": round(more, 4),
    }


def experts(tables: Tables, steps: int) -> dict[str, object] | None:
    """Waiting in all-to-alls, and the ranks that let the others wait: theirs are the experts that most tokens chose.

    None without all-to-alls over ranks whose traces are there.
    """
    rows = tables.rows("""
        SELECT like_id, ranks.rank, waits.waiting_ns, waits.total_ns, waits.exposed_waiting_ns, ranks.compute_ns
        FROM waits JOIN likes USING (like_id) JOIN ranks USING (place) WHERE likes.kind = ?
        ORDER BY like_id, waiting_ns, ranks.place""", EXPERTS)  # fmt: skip
    if not rows:
        return None
    busiest = []
    for like in dict.fromkeys(row["like_id"] for row in rows):
        group = [row for row in rows if row["like_id"] == like]
        usual = median(row["waiting_ns"] for row in group)
        noticed = usual >= NOTICED_SHARE * max(row["total_ns"] for row in group)
        busiest += [row["rank"] for row in group if noticed and row["waiting_ns"] < STRAGGLER_SHARE * usual]
    waiting = sum(row["exposed_waiting_ns"] for row in rows)
    return {
        "waiting_ms_per_step": waiting / NS_PER_MS / steps / len({row["rank"] for row in rows}),
        "busiest_ranks": busiest[:MOST_NAMED],
    }
