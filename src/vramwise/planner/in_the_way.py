"""Why what was asked does not fit, and which wish stands in the way where nothing that keeps to them does."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.planner.option import RECOMPUTE, Wishes
from vramwise.records import replace
from vramwise.result import Result
from vramwise.units import format_bytes

_HALF_PRECISION_BYTES = 2
_MOST_OF_A_CARD = 0.5
"""Share of a card from which weights alone are worth a sentence."""


def reasons_of(asked: Result) -> tuple[str, ...]:
    """The verdict's reasons without what it says to set, and what weights alone take of the cards of a training."""
    verdict = asked.verdict
    if verdict is None or verdict.fits:
        return ()
    said = [reason for reason in verdict.reasons if not reason.startswith("set ")]
    return (*said, *_weights_alone(asked))


def _weights_alone(asked: Result) -> Iterator[str]:
    """Of full training: the 16-bit weights, shared evenly by all cards, against the room of one."""
    table = asked.scenario.get("train")
    if asked.capacity is None or not isinstance(table, dict) or table.get("method") != "full":
        return
    many, usable = int(str(asked.scenario.get("num_gpus") or 1)), asked.capacity.usable_bytes
    whole = _HALF_PRECISION_BYTES * asked.model.num_parameters
    each = whole // many
    if each < _MOST_OF_A_CARD * usable:
        return
    size, share, room = format_bytes(whole), format_bytes(each), format_bytes(usable)
    shared = f", {share} on each of {many:,} cards" if many > 1 else ""
    if each > usable:
        yield f"16-bit weights alone are {size}{shared}: more than the {room} of a card"
    else:
        left = format_bytes(usable - each)
        yield f"16-bit weights alone are {size}{shared}: {left} are left for gradients, optimizer and activations"


def relaxed(wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    """The wishes with one of them given up, and how that one is written."""
    for key in sorted(wishes.keep):
        yield f"--keep {key}", replace(wishes, keep=wishes.keep - {key})
    if not wishes.offloads:
        yield "--no-offload", replace(wishes, offloads=True)
    if wishes.most_recompute != RECOMPUTE[-1]:
        yield f"--max-recompute {wishes.most_recompute}", replace(wishes, most_recompute=RECOMPUTE[-1])
    if wishes.risk is not None:
        yield f"--risk {wishes.risk:g}", replace(wishes, risk=None)
