"""Ten questions that people ask of a job's tables, by the names that `--sql NAME` takes."""

from __future__ import annotations

from typing import Final, NamedTuple


class Query(NamedTuple):
    """What it answers, and how."""

    answers: str
    text: str


QUERIES: Final[dict[str, Query]] = {
    "ranks": Query(
        "where each rank's time went, milliseconds",
        """SELECT rank, host, gpu, span_ns / 1e6 AS span_ms, compute_ns / 1e6 AS compute_ms,
       exposed_communication_ns / 1e6 AS exposed_communication_ms, copies_ns / 1e6 AS copies_ms,
       idle_ns / 1e6 AS idle_ms FROM ranks ORDER BY place""",
    ),
    "hosts": Query(
        "the same by host, mean of its ranks",
        """SELECT host, count(*) AS ranks, avg(compute_ns) / 1e6 AS compute_ms,
       avg(exposed_communication_ns) / 1e6 AS exposed_communication_ms, avg(idle_ns) / 1e6 AS idle_ms
FROM ranks GROUP BY host ORDER BY host""",
    ),
    "steps": Query(
        "each step's shortest, median and longest rank on the CPU",
        """SELECT step, count(*) AS ranks, min(cpu_ns) / 1e6 AS shortest_ms, median(cpu_ns) / 1e6 AS median_ms,
       max(cpu_ns) / 1e6 AS longest_ms, arg_max(rank, cpu_ns) AS longest_rank
FROM steps JOIN ranks USING (trace) GROUP BY step ORDER BY step""",
    ),
    "waiting": Query(
        "how long each rank waits in collectives for ranks that come later",
        """SELECT rank, likes."group", kind, calls, total_ns / 1e6 AS total_ms,
       waits.waiting_ns / 1e6 AS waiting_ms
FROM waits JOIN likes USING (like_id) JOIN ranks USING (place) ORDER BY waiting_ms DESC, place""",
    ),
    "groups": Query(
        "transfers by group: number, time, bytes a nanosecond (GB/s)",
        """SELECT "group", members, kind, count(*) AS calls, sum(shortest_ns) / 1e6 AS transfer_ms,
       sum(bytes) / nullif(sum(shortest_ns) FILTER (bytes > 0), 0) AS gb_s
FROM matched JOIN likes USING (like_id) GROUP BY ALL ORDER BY transfer_ms DESC""",
    ),
    "skew": Query(
        "the collectives for which somebody waited longest",
        """SELECT "group", members, kind, number, matched.holders, shortest_ns / 1e6 AS transfer_ms,
       (longest_ns - shortest_ns) / 1e6 AS longest_wait_ms
FROM matched JOIN likes USING (like_id)
ORDER BY longest_wait_ms DESC, like_id, number LIMIT 50""",
    ),
    "kernels": Query(
        "the kernels that take longest over all ranks",
        """SELECT name, class, category, sum(count)::BIGINT AS count, sum(ns) / 1e6 AS sum_ms
FROM kernels GROUP BY ALL ORDER BY sum_ms DESC LIMIT 50""",
    ),
    "categories": Query(
        "kernel time by category over all ranks",
        """SELECT category, sum(count)::BIGINT AS count, sum(ns) / 1e6 AS sum_ms,
       sum(ns) / sum(sum(ns)) OVER () AS share
FROM kernels GROUP BY category ORDER BY sum_ms DESC""",
    ),
    "gaps": Query(
        "idle time by cause and step",
        """SELECT step, cause, sum(count)::BIGINT AS gaps, sum(ns) / 1e6 AS idle_ms
FROM gaps GROUP BY step, cause ORDER BY step, idle_ms DESC""",
    ),
    "memory": Query(
        "the most that each rank's allocator held",
        """SELECT rank, device, allocated_bytes, reserved_bytes, step
FROM memory JOIN ranks USING (trace) ORDER BY allocated_bytes DESC, place""",
    ),
}
