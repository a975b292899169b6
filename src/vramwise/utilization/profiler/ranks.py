"""Across ranks: the same collective on every rank, its transfer apart from the waiting, and who made others wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vramwise.utilization.profiler.collectives import Collective
from vramwise.utilization.profiler.times import NS_PER_US

STRAGGLER_SHARE = 0.5
"""A rank that waits less than half as long as the median rank of its group made the others wait."""
NOTICED_SHARE = 0.05
"""Waiting below this share of the time in collectives is the clocks' and the network's noise, nobody's fault."""

Key = tuple[str, str, str, int]
"""Group, its ranks as the trace writes them, kind, number."""


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
    """Match collectives over the ranks that ran them, at least two; None where there is nothing to match.

    A collective ends for all ranks together, and for each it lasts from its own arrival: who arrives last is in it for
    the shortest time. So the shortest duration is the transfer, and what a rank spends beyond it is waiting. Clocks of
    different machines do not enter. Matched by the trace's sequence numbers where it has them, else by order within
    group and kind, and only kinds that the group's ranks ran equally often. A collective of no named group counts where
    every rank ran it.
    """
    sequenced = all(one.sequence is not None for found in by_rank.values() for one in found)
    tables = {rank: keyed(found, sequenced) for rank, found in by_rank.items()}
    held: dict[Key, dict[str, int]] = defaultdict(dict)
    for rank, table in tables.items():
        for key, one in table.items():
            held[key][rank] = one.duration
    sizes = {key: one.group_size for table in tables.values() for key, one in table.items()}
    uneven = set() if sequenced else _uneven(by_rank)
    shared = {
        key: lasted
        for key, lasted in held.items()
        if 2 <= len(lasted) <= (sizes[key] or len(by_rank))  # more than its size: two groups of one name
        and key[:3] not in uneven
        and (key[0] or len(lasted) == len(by_rank))
    }
    if not shared:
        return None
    waits = _waits(by_rank, shared)
    return Across(
        matched=len(shared),
        unmatched=sum(map(len, held.values())) - sum(map(len, shared.values())),
        transfer=sum(min(lasted.values()) for lasted in shared.values()),
        ranks=waits,
        stragglers=_stragglers(waits, shared),
        worst_skew=max(max(lasted.values()) - min(lasted.values()) for lasted in shared.values()),
        by="sequence number" if sequenced else "order within group and kind",
    )


def keyed(found: list[Collective], sequenced: bool) -> dict[Key, Collective]:
    """Each collective by group, kind and its number: the sequence number, else the place among its like."""
    keyed: dict[Key, Collective] = {}
    seen: dict[tuple[str, str, str], int] = {}
    for one in found:
        like = one.group, one.members, one.kind
        place = seen.get(like, 0)
        seen[like] = place + 1
        keyed[*like, one.sequence if sequenced and one.sequence is not None else place] = one
    return keyed


def _uneven(by_rank: Mapping[str, list[Collective]]) -> set[tuple[str, str, str]]:
    """Kinds of a group that its ranks did not run equally often: their order says nothing."""
    counts: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for found in by_rank.values():
        for like, count in Counter((one.group, one.members, one.kind) for one in found).items():
            counts[like].add(count)
    return {like for like, different in counts.items() if len(different) > 1}


def _waits(ranks: Iterable[str], shared: Mapping[Key, Mapping[str, int]]) -> tuple[RankWait, ...]:
    """For each rank its time in these collectives, in the order of the ranks."""
    own: dict[str, list[tuple[int, int]]] = {rank: [] for rank in ranks}
    for lasted in shared.values():
        shortest = min(lasted.values())
        for rank, duration in lasted.items():
            own[rank].append((duration, duration - shortest))
    return tuple(
        RankWait(rank, len(each), sum(total for total, _ in each), sum(waiting for _, waiting in each))
        for rank, each in own.items()
    )


def _stragglers(waits: Iterable[RankWait], shared: Mapping[Key, Mapping[str, int]]) -> tuple[str, ...]:
    """Ranks that wait far less than the others of a group do: they arrive last."""
    groups: dict[tuple[str, str, frozenset[str]], dict[Key, Mapping[str, int]]] = defaultdict(dict)
    for key, lasted in shared.items():
        groups[key[0], key[1], frozenset(lasted)][key] = lasted
    late: set[str] = set()
    for (*_, ranks), inside in groups.items():
        within = _waits(ranks, inside)
        median = sorted(one.waiting for one in within)[len(within) // 2]
        noticed = NOTICED_SHARE * max(one.total for one in within)
        late |= {one.rank for one in within if median >= noticed and one.waiting < STRAGGLER_SHARE * median}
    return tuple(one.rank for one in sorted(waits, key=lambda one: one.waiting) if one.rank in late)
