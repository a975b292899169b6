"""Across ranks: the same collective on every rank, its transfer apart from the waiting, and who made others wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vramwise.utilization.profiler.collectives import Collective
from vramwise.utilization.profiler.times import NS_PER_US

STRAGGLER_SHARE = 0.5
"""A rank that waits less than half as long as the median rank made the others wait."""


class RankWait(NamedTuple):
    """Nanoseconds that one rank spent in matched collectives: together, and beyond the shortest rank's."""

    rank: str
    matched: int
    total: int
    waiting: int


class Across(NamedTuple):
    """Collectives matched over ranks by group, kind and sequence; the shortest duration counts as the transfer."""

    matched: int
    unmatched: int
    transfer: int
    ranks: tuple[RankWait, ...]
    stragglers: tuple[str, ...]
    worst_skew: int
    by: str

    def to_dict(self) -> dict[str, object]:
        """Microseconds."""
        return {
            "matched_collectives": self.matched,
            "unmatched_collectives": self.unmatched,
            "matched_by": self.by,
            "transfer_us": self.transfer / NS_PER_US,
            "worst_skew_us": self.worst_skew / NS_PER_US,
            "ranks": {
                one.rank: {"communication_us": one.total / NS_PER_US, "waiting_us": one.waiting / NS_PER_US}
                for one in self.ranks
            },
            "stragglers": list(self.stragglers),
        }


def across(by_rank: Mapping[str, list[Collective]]) -> Across | None:
    """Match collectives over at least two ranks; None where there is nothing to match.

    A collective ends for all ranks together, and for each it lasts from its own arrival: who arrives last is in it for
    the shortest time. So the shortest duration is the transfer, and what a rank spends beyond it is waiting. Clocks of
    different machines do not enter. Matched by the trace's sequence numbers where it has them, else by order within
    group and kind, and only kinds that all ranks ran equally often.
    """
    if len(by_rank) < 2:
        return None
    sequenced = all(one.sequence is not None for found in by_rank.values() for one in found)
    tables = {rank: keyed(found, sequenced) for rank, found in by_rank.items()}
    counts = {rank: _counts(found) for rank, found in by_rank.items()}
    shared = set.intersection(*(set(table) for table in tables.values()))
    if not sequenced:
        equal = {
            kind for kind in next(iter(counts.values())) if len({count.get(kind) for count in counts.values()}) == 1
        }
        shared = {key for key in shared if key[:2] in equal}
    if not shared:
        return None
    shortest = {key: min(table[key].duration for table in tables.values()) for key in shared}
    longest = {key: max(table[key].duration for table in tables.values()) for key in shared}
    waits = []
    for rank, table in tables.items():
        total = sum(table[key].duration for key in shared)
        waits.append(RankWait(rank, len(shared), total, total - sum(shortest.values())))
    return Across(
        matched=len(shared),
        unmatched=sum(len(table) for table in tables.values()) - len(shared) * len(tables),
        transfer=sum(shortest.values()),
        ranks=tuple(waits),
        stragglers=_stragglers(waits),
        worst_skew=max(longest[key] - shortest[key] for key in shared),
        by="sequence number" if sequenced else "order within group and kind",
    )


def keyed(found: list[Collective], sequenced: bool) -> dict[tuple[str, str, int], Collective]:
    """Each collective by group, kind and its number: the sequence number, else the place among its like."""
    keyed: dict[tuple[str, str, int], Collective] = {}
    seen: dict[tuple[str, str], int] = {}
    for one in found:
        place = seen.get((one.group, one.kind), 0)
        seen[one.group, one.kind] = place + 1
        keyed[one.group, one.kind, one.sequence if sequenced and one.sequence is not None else place] = one
    return keyed


def _counts(found: list[Collective]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for one in found:
        counts[one.group, one.kind] = counts.get((one.group, one.kind), 0) + 1
    return counts


def _stragglers(waits: list[RankWait]) -> tuple[str, ...]:
    """Ranks that wait far less than the others do: they arrive last."""
    ordered = sorted(one.waiting for one in waits)
    median = ordered[len(ordered) // 2]
    late = [one for one in waits if one.waiting < STRAGGLER_SHARE * median]
    return tuple(one.rank for one in sorted(late, key=lambda one: one.waiting))
