"""nccl-tests' tables: bandwidth by message size, each row checked against its own definition."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vramwise.errors import SourceError
from vramwise.records import record

_TAG = re.compile(r"^(?:\[[\d,]+\]<std(?:out|err)>:|\s*\d+:)\s?")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,7})\b")
_NAMED = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|sendrecv|reduce)_perf", re.IGNORECASE
)
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\d{1,9}(?:\.\d{1,9})?)")
_COUNT = re.compile(r"\d{1,18}", re.ASCII)
MOST = 1e12
TOLERANCE = 0.02
"""Of a rate printed with two decimals and a time of four digits."""


@record
class NcclRow:
    """One message size: time in µs, rates in GB/s (1e9) out of place and in place; None where not run."""

    size_bytes: int
    count: int
    type: str
    redop: str
    out_time_us: float
    out_algbw: float
    out_busbw: float
    in_time_us: float | None
    in_algbw: float | None
    in_busbw: float | None


@dataclass(frozen=True)
class NcclTest:
    """One run. `avg_busbw` is over all sizes, small ones too: the largest row says what the network can do."""

    collective: str | None
    ranks: int | None
    rows: tuple[NcclRow, ...]
    avg_busbw: float | None
    notes: tuple[str, ...]

    @property
    def best(self) -> NcclRow:
        """The row of the greatest bus bandwidth."""
        return max(self.rows, key=lambda row: max(row.out_busbw, row.in_busbw or 0.0))


def bus_factor(collective: str, ranks: int) -> float:
    """Bus over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    share = (ranks - 1) / ranks
    factors = {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share, "all_to_all": share}
    return factors.get(collective, 1.0)


def read_nccl_test(text: str) -> NcclTest:
    """The table in a log; mpirun's tags may stand before each line. Raises SourceError when there is none."""
    lines = [_TAG.sub("", line) for line in text.splitlines()]
    rows = [row for line in lines if (row := _row(line)) is not None]
    if not rows:
        raise SourceError("no table of nccl-tests here: expected rows of size, count, type, time, algbw, busbw")
    whole = "\n".join(lines)
    ranks = [int(number) for number in _RANK.findall(whole)]
    named = _NAMED.search(whole)
    count = max(ranks) + 1 if ranks else None
    collective = _spelled(named.group(1)) if named else _inferred(rows, count)
    average = _AVERAGE.search(whole)
    return NcclTest(
        collective=collective,
        ranks=count if count is not None else _ranks_of(rows, collective),
        rows=tuple(rows),
        avg_busbw=float(average.group(1)) if average else None,
        notes=tuple(_notes(rows, collective, count)),
    )


def _row(line: str) -> NcclRow | None:
    words = line.split()
    if len(words) < 7 or not (_COUNT.fullmatch(words[0]) and _COUNT.fullmatch(words[1]) and words[2][:1].isalpha()):
        return None
    redop = words[3] if words[3][:1].isalpha() else ""
    numbers = words[4 if redop else 3 :]
    if len(numbers) in (5, 9):  # with the root's number in front
        numbers = numbers[1:]
    try:
        first = [float(number) for number in numbers[:3]]
        second = [float(number) for number in numbers[4:7]] if len(numbers) >= 8 else [None, None, None]
    except ValueError:
        return None
    if len(first) != 3 or first[0] <= 0 or not all(abs(number or 0) < MOST for number in (*first, *second)):
        return None  # a time of 0, nan and inf among them: no row of a run
    return NcclRow(int(words[0]), int(words[1]), words[2], redop, *first, *second)


def _spelled(name: str) -> str:
    plain = name.lower().replace("_", "")
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv", "reduce")
    return next(each for each in names if each.replace("_", "") == plain)


def _inferred(rows: list[NcclRow], ranks: int | None) -> str | None:
    """The collective by the ratio of the two bandwidths, where the number of ranks is known."""
    row = rows[-1]
    if ranks is None or ranks < 3 or not row.out_algbw:
        return None
    ratio = row.out_busbw / row.out_algbw
    return "all_reduce" if abs(ratio - bus_factor("all_reduce", ranks)) < TOLERANCE else None


def _ranks_of(rows: list[NcclRow], collective: str | None) -> int | None:
    """The number of ranks by the ratio, where the collective is known: 2 (n - 1) / n of an all-reduce."""
    row = rows[-1]
    if collective != "all_reduce" or not row.out_algbw:
        return None
    left = 2 - row.out_busbw / row.out_algbw
    return round(2 / left) if left > TOLERANCE else None


def _notes(rows: list[NcclRow], collective: str | None, ranks: int | None) -> list[str]:
    notes = []
    for row in rows:
        rate = row.size_bytes / row.out_time_us / 1000
        if abs(rate - row.out_algbw) > TOLERANCE * max(rate, 1):
            notes.append(
                f"{row.size_bytes:,} bytes in {row.out_time_us:g} µs are {rate:.2f} GB/s, not {row.out_algbw:g}"
            )
        if collective and ranks:
            bus = row.out_algbw * bus_factor(collective, ranks)
            if abs(bus - row.out_busbw) > TOLERANCE * max(bus, 1):
                notes.append(f"{row.size_bytes:,} bytes: bus bandwidth {row.out_busbw:g} is not {bus:.2f} GB/s")
    return notes
