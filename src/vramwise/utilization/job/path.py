"""The critical path of a step by the tables of a job: its traces may be gone, or on other machines."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from vramwise.utilization.profiler.critical_path import chosen_step, critical_path
from vramwise.utilization.profiler.observed import Observed, Span

if TYPE_CHECKING:
    from vramwise.utilization.job.tables import Tables
    from vramwise.utilization.profiler.ranks import Key

_BOUNDS: Final = """
    WITH marks AS (
        SELECT trace, min(start_ns) AS begin_ns, arg_min(start_ns + cpu_ns, start_ns) AS end_ns
        FROM steps WHERE name = $step GROUP BY trace),
    bounds AS (
        SELECT ranks.place, ranks.trace, end_ns, coalesce(begin_ns, least(
            (SELECT min(start_ns) FROM events WHERE events.trace = ranks.trace),
            (SELECT min(start_ns) FROM cpu_calls WHERE cpu_calls.trace = ranks.trace))) AS begin_ns
        FROM ranks LEFT JOIN marks USING (trace) WHERE NOT again AND coalesce(ranks.rank = $rank, true))
"""
"""Where the step of a name begins and ends on each rank; one without it is taken whole, as the path of a trace does."""
_EVENTS: Final = f"""{_BOUNDS}
    SELECT place, start_ns, duration_ns, name, device, stream, correlation FROM events JOIN bounds USING (trace)
    WHERE launched_ns >= begin_ns AND (end_ns IS NULL OR launched_ns < end_ns) ORDER BY place, number"""
_CALLS: Final = f"""{_BOUNDS}
    SELECT place, start_ns, duration_ns, name, correlation FROM cpu_calls JOIN bounds USING (trace)
    WHERE start_ns >= begin_ns AND (end_ns IS NULL OR start_ns < end_ns) ORDER BY place, number"""
_COLLECTIVES: Final = f"""{_BOUNDS}
    SELECT place, "group", members, kind, number, start_ns, duration_ns, group_size, sequenced
    FROM collectives JOIN bounds USING (trace)"""


def job_path(tables: Tables, step: str, rank: str | None = None) -> dict[str, object] | None:
    """What `analysis.critical_path_of` says of the traces, of all ranks or of one.

    Raises UsageError for a step that no trace has.
    """
    lengths = tables.rows(
        """SELECT name, cpu_ns FROM steps WHERE trace = (SELECT trace FROM ranks
           WHERE NOT again AND coalesce(rank = $1, true) ORDER BY place LIMIT 1) ORDER BY start_ns""",
        rank,
    )
    name = chosen_step({row["name"]: row["cpu_ns"] for row in lengths}, step)
    seen = _observed(tables, name, rank)
    return critical_path(name, seen) if seen else None


def _observed(tables: Tables, step: str, rank: str | None) -> dict[str, Observed]:
    """What each rank did in the step."""
    import numpy as np

    asked = {"step": step, "rank": rank}
    bounds = tables.connection.execute(
        f"{_BOUNDS} SELECT place, rank, begin_ns FROM bounds JOIN ranks USING (place) ORDER BY place", asked
    ).fetchall()
    events, calls = (tables.connection.execute(query, asked).fetchnumpy() for query in (_EVENTS, _CALLS))
    together: dict[int, dict[Key, Span]] = defaultdict(dict)
    sequenced: dict[int, bool] = {}
    for row in tables.connection.execute(_COLLECTIVES, asked).fetchall():
        place, group, members, kind, number, start, duration, size, in_sequence = row
        together[place][group, members, kind, number] = Span(start, start + duration, size)
        sequenced[place] = in_sequence
    known: dict[str, int] = {}
    for columns in (events, calls):
        places = (known.setdefault(name, len(known)) for name in columns["name"])
        columns["name"] = np.fromiter(places, np.int64, len(columns["name"]))
    names = list(known)
    found = {}
    for place, label, begin in bounds:
        of_events, of_calls = (
            slice(*np.searchsorted(columns["place"], (place, place + 1))) for columns in (events, calls)
        )
        found[label] = Observed(
            begin=begin, names=names, collectives=together[place], sequenced=sequenced.get(place, False),
            start=events["start_ns"][of_events], duration=events["duration_ns"][of_events],
            name=events["name"][of_events], device=events["device"][of_events], stream=events["stream"][of_events],
            correlation=events["correlation"][of_events], call_start=calls["start_ns"][of_calls],
            call_duration=calls["duration_ns"][of_calls], call_name=calls["name"][of_calls],
            call_correlation=calls["correlation"][of_calls],
        )  # fmt: skip
    return found
