"""What people write for `gpu`, `gpus` and `reserve_bytes` that is no name: `2x4090`, `24GB`, `here`, `10%`."""

from __future__ import annotations

import re

from vramwise.errors import ScenarioError, clipped
from vramwise.records import record
from vramwise.scenario.messages import refusal
from vramwise.scenario.values import LARGEST_WHOLE_NUMBER, Kind, Schema, Size, Whole
from vramwise.units import format_bytes

# 7900xtx and 9070xt are names of cards, not 7,900 of them.
_SEVERAL = re.compile(r"\s*(\d+)\s*[x×*](?!tx?\b)\s*(\S.*)", re.IGNORECASE)
_HERE = re.compile(r"here(?:(?:\s*[:#]\s*|\s+)(\S.*))?", re.IGNORECASE)
_MEMORY_ALONE = re.compile(r"\s*([\d.,]+)\s*([kmgt]b?|[kmgt]ib)\s*", re.IGNORECASE)

MOST_LISTED = 64
_LONGEST = 20
_COUNT, _MEMORY = Whole(help="GPUs", minimum=0), Size(help="memory of one")


@record
class Cards:
    """The GPUs of a scenario: name, number and memory of one, each None where it is not given, and notes."""

    gpu: str | None
    num_gpus: int | None
    gpu_total_bytes: int | None
    notes: tuple[str, ...] = ()
    gpus: tuple[str, ...] | None = None


def plain_cards(
    written: str | None, num_gpus: int | None, gpu_total_bytes: int | None, gpus: tuple[str, ...] | None = None
) -> Cards:
    """The cards with `num_gpus` out of a gpu such as `2x4090`, and `gpu_total_bytes` out of one such as `24GB`.

    Of a list (`gpus`) each may be several; equal ones are `gpu` and `num_gpus`. Raises ScenarioError where the scenario
    says otherwise beside it.
    """
    if gpus:
        return _listed(gpus, written, num_gpus, gpu_total_bytes)
    if written is None:
        return Cards(None, num_gpus, gpu_total_bytes)
    several = _SEVERAL.fullmatch(written)
    if several is not None:
        num_gpus = _stated("num_gpus", _COUNT.read(int(several[1][:20]), "gpu"), num_gpus, written)
    memory = several[2] if several is not None else written
    alone = _MEMORY_ALONE.fullmatch(memory)
    if alone is None:
        return Cards(memory, num_gpus, gpu_total_bytes)
    size = _MEMORY.read(memory.strip(), "gpu")
    note = f'gpu "{clipped(memory)}" names no card: read as gpu_total_bytes, {format_bytes(size)}'
    if len(alone[2]) == 2:  # drivers report a card that is sold with 24 GB as one of nearly 24 GiB
        note += f'; a card sold with that has more: "{alone[1]}GiB"'
    return Cards(None, num_gpus, _stated("gpu_total_bytes", size, gpu_total_bytes, memory), (note,))


def card_here(written: str | None) -> str | None:
    """Which of this machine's cards `here`, `here:1` or `here:MIG-…` asks for, empty for the first; None for none."""
    found = _HERE.fullmatch(written.strip()) if written is not None else None
    return None if found is None else found[1] or ""


def _listed(gpus: tuple[str, ...], written: str | None, num_gpus: int | None, gpu_total_bytes: int | None) -> Cards:
    if written is not None:
        raise ScenarioError("gpus", "lists the GPUs of the machine, which gpu does as well: leave one out")
    if len(gpus) == 1 and gpus[0].isdigit():
        raise ScenarioError("gpus", f"lists GPUs by name (4090,3090); their number is num_gpus {clipped(gpus[0])}")
    every: list[str] = []
    for name in gpus:
        several = _SEVERAL.fullmatch(name)
        many = _COUNT.read(int(several[1][:20]), "gpus") if several is not None else 1
        if len(every) + many > MOST_LISTED:
            raise ScenarioError("gpus", f"lists more than {MOST_LISTED} GPUs: one machine has fewer")
        every += [several[2] if several is not None else name] * many
    count = _stated("num_gpus", len(every), num_gpus, ",".join(gpus), key="gpus")
    if len(set(every)) == 1:
        return Cards(every[0], count, gpu_total_bytes)
    return Cards(None, count, gpu_total_bytes, gpus=tuple(every))


def _stated(name: str, value: int, beside: int | None, written: str, *, key: str = "gpu") -> int:
    if beside is not None and beside != value:
        raise ScenarioError(key, f'"{clipped(written)}" contradicts {name} {beside}: leave one out')
    return value


@record(kw_only=True, eq=False, frozen=False)
class SizeOrShare(Kind[int | str]):
    """A number of bytes, 0 too, its text with the unit, or a share of a whole ("10%"), which stays text."""

    def read(self, value: object, path: str) -> int | str:
        if type(value) is int and value == 0:
            return value
        if isinstance(value, str) and value.rstrip().endswith("%"):
            share = value.strip().removesuffix("%").strip()
            try:
                percent = float(share) if len(share) <= _LONGEST else -1.0
            except ValueError:
                percent = -1.0
            if 0 <= percent < 100:
                return f"{percent:g}%"
            raise refusal(path, "a share from 0% to below 100%", value)
        return Size(help=self.help).read(value, path)

    def from_text(self, text: str) -> object:
        return 0 if text.strip() == "0" else text

    def schema(self) -> Schema:
        text = {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+\s*(%|[A-Za-z]*)\s*$"}
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": LARGEST_WHOLE_NUMBER}, text]}

    @property
    def metavar(self) -> str:
        return "SIZE|SHARE"
