"""Parts of a card: MIG slices by the names of their profiles (mig.csv), and plain shares such as `50% of h100`.

What CUDA reports as the total of a slice is the memory that `nvidia-smi mig -lgip` prints for its profile, in steps of
64 MiB. Where nobody printed it, it is the profile's fraction of what the card offers, times what printed profiles have
of theirs. A slice has no links to other cards (MIG user guide, System Considerations: no peer-to-peer).
"""

from __future__ import annotations

import re
from functools import cache

from vramwise.hardware.gpu import Gpu, gpu_of
from vramwise.hardware.memory import MemoryEstimate, median_bytes
from vramwise.records import record, replace
from vramwise.tables import Row, table
from vramwise.units import MIB

_PROFILE = re.compile(r"(?<![a-z0-9])(?:\d{1,2}c\.)?(\d{1,2}g[.-]\d{1,4}gb)(?:[+-](?:me\.all|me|gfx))*(?![a-z0-9.])")
_PERCENT = re.compile(r"(?<![\w.])(\d{1,2}(?:\.\d{1,4})?)\s*%(?:\s+of\b)?")
_PARTS = 10**6


@record
class Asked:
    """A part that a name asks for: a MIG profile, or a share in percent, of the card that `rest` names."""

    rest: str
    profile: str = ""
    percent: float = 0.0


def part_asked(name: str) -> Asked | None:
    """The part of a card that a name asks for; None for a whole card. `H100 MIG 1g.10gb`, `nvidia.com/mig-3g.40gb`."""
    plain = name.strip().lower().replace("nvidia.com/", " ")
    found = _PROFILE.search(plain)
    if found is not None:
        rest = " ".join(re.split(r"[\s_-]+", plain[: found.start()] + " " + plain[found.end() :]))
        return Asked(re.sub(r"(?<!\w)mig(?!\w)", " ", rest).strip(), profile=found[1].replace("-", "."))
    share = _PERCENT.search(plain)
    if share is not None and float(share[1]) > 0:
        return Asked((plain[: share.start()] + " " + plain[share.end() :]).strip(), percent=float(share[1]))
    return None


def cards_with(profile: str) -> list[tuple[str, Row]]:
    """Ids of the cards that have a MIG profile, with its row; the smallest fraction of a card first."""
    rows = [row for row in table(__file__, "mig") if row["profile"] == profile]
    return [(card, row) for row in sorted(rows, key=_fraction) for card in row.words("cards", ";")]


def profiles() -> list[str]:
    """Every MIG profile."""
    return list(dict.fromkeys(row["profile"] for row in table(__file__, "mig")))


def mig_slice(card: str, row: Row) -> Gpu:
    """A slice as a card of its own."""
    whole, fraction = gpu_of(card), _fraction(row)
    mib, sm_count = row.whole_or_none("memory_mib"), row.whole_or_none("sm_count")
    memory = (
        MemoryEstimate(mib * MIB, mib * MIB, mib * MIB, "memory of the MIG profile, as printed", row["source"])
        if mib is not None
        else _of_fraction(whole, fraction, row["source"])
    )
    compute = int(row["profile"].partition("g.")[0])
    of_all = max(int(other["profile"].partition("g.")[0]) for _, other in _profiles_of(card))
    rates = sm_count / whole.sm_count if sm_count and whole.sm_count else compute / of_all
    return replace(
        whole, id=f"{whole.id}-mig-{row['profile']}", name=f"{whole.name} MIG {row['profile']}",
        memory_nominal_gb=float(row["profile"].partition("g.")[2].removesuffix("gb")),
        memory_reported_bytes=memory.expected if mib is not None else None, usable=memory,
        bandwidth_gb_s=None if whole.bandwidth_gb_s is None else round(whole.bandwidth_gb_s * fraction, 1),
        tflops=tuple((name, round(rate * rates, 1)) for name, rate in whole.tflops),
        fp16_accumulate_tflops=None, nvlink_gb_s=None, tdp_watt=None, sm_count=sm_count,
        memory_source=row["source"], source=row["source"],
        notes=f"MIG slice of {whole.id}; rates and bandwidth in proportion", confidence="high" if mib else "medium",
    )  # fmt: skip


def share_of(whole: Gpu, percent: float) -> Gpu:
    """A share of a card's memory, all of which a program sees as its card (vGPU, HAMi, MPS with a memory limit)."""

    def part(size: int) -> int:
        return size * round(percent * _PARTS) // (100 * _PARTS)

    usable = whole.usable
    memory = None if usable is None else replace(
        usable, low=part(usable.low), expected=part(usable.expected), high=part(usable.high),
        rule=f"{percent:g} % of the card: {usable.rule}",
    )  # fmt: skip
    reported = whole.memory_reported_bytes
    return replace(
        whole, id=f"{percent:g}% of {whole.id}", name=f"{percent:g} % of {whole.name}", usable=memory,
        memory_nominal_gb=None if whole.memory_nominal_gb is None else whole.memory_nominal_gb * percent / 100,
        memory_reported_bytes=None if reported is None else part(reported),
    )  # fmt: skip


def _fraction(row: Row) -> float:
    part, _, of = row["fraction"].partition("/")
    return int(part) / int(of)


@cache
def _profiles_of(card: str) -> tuple[tuple[str, Row], ...]:
    return tuple((card, row) for row in table(__file__, "mig") if card in row.words("cards", ";"))


def _of_fraction(whole: Gpu, fraction: float, source: str) -> MemoryEstimate:
    """A profile whose memory nobody printed, from those that somebody did."""
    card = whole.usable_bytes or 0
    low, expected, high = (card * fraction * share / _PARTS for share in _printed_shares())
    rule = "fraction of the card, less what slices with printed sizes have less"
    return MemoryEstimate(round(low), round(expected), round(high), rule, f"{source}; mig.csv")


@cache
def _printed_shares() -> tuple[int, int, int]:
    """What printed profiles have of their fraction of what the card offers: least, median, most, in millionths."""
    shares = [
        round(
            _PARTS
            * row.whole("memory_mib")
            * MIB
            / (_fraction(row) * (gpu_of(row.words("cards", ";")[-1]).usable_bytes or 1))
        )
        for row in table(__file__, "mig")
        if row["memory_mib"]
    ]
    return min(shares), median_bytes(shares), max(shares)
