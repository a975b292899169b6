"""What people write for `gpu`, `gpus` and `reserve_bytes` that is no name: `2x4090`, `24GB`, `here`, `10%`."""

from __future__ import annotations

import re

from vramwise.errors import ScenarioError, clipped
from vramwise.records import record
from vramwise.scenario.values import LARGEST_WHOLE_NUMBER, Kind, Schema, Size, Whole, refusal
from vramwise.units import format_bytes

# 7900xtx and 9070xt are names of cards, not 7,900 of them.
_SEVERAL = re.compile(r"\s*(\d+)\s*[x×*](?!tx?\b)\s*(\S.*)", re.IGNORECASE)
_SEVERAL_BEHIND = re.compile(r"\s*(.*[^\W\d].*?|\d{3,}\D*?)(?:\s+|(?<=[\dsb)]))[x×*]\s*([1-9]\d?)\s*", re.IGNORECASE)
"""`3090 x2`, `H100 x8`, `A100x4`: nobody writes the number of one card so."""
_IN_WORDS = {"dual": 2, "twin": 2, "quad": 4}
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
    from vramwise.scenario.machines import machine_named

    count, memory = _counted(written)
    machine = machine_named(memory)
    if machine is not None:
        num_gpus = _stated("num_gpus", machine.count * (count or 1), num_gpus, written)
        note = f'gpu "{clipped(memory)}" is a machine with {machine.count} × {machine.gpu}'
        return Cards(machine.gpu, num_gpus, gpu_total_bytes, (note,))
    if count is not None:
        num_gpus = _stated("num_gpus", count, num_gpus, written)
    alone = _MEMORY_ALONE.fullmatch(memory)
    if alone is None:
        return Cards(memory, num_gpus, gpu_total_bytes)
    size = _MEMORY.read(memory.strip(), "gpu")
    note = f'gpu "{clipped(memory)}" names no card: read as gpu_total_bytes, {format_bytes(size)}'
    if len(alone[2]) == 2:  # drivers report a card that is sold with 24 GB as one of nearly 24 GiB
        note += f'; a card sold with that has more: "{alone[1]}GiB"'
    return Cards(None, num_gpus, _stated("gpu_total_bytes", size, gpu_total_bytes, memory), (note,))


def _counted(written: str) -> tuple[int | None, str]:
    """How many cards a name means where it says so, and the rest of it."""
    behind = _SEVERAL_BEHIND.fullmatch(written)
    if behind is not None:
        return int(behind[2]), behind[1]
    several = _SEVERAL.fullmatch(written)
    if several is not None:
        return _COUNT.read(int(several[1][:20]), "gpu"), several[2]
    first, _, rest = written.strip().partition(" ")
    many = _IN_WORDS.get(first.lower())
    return (many, rest.strip()) if many is not None and rest.strip() else (None, written)


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
        counted, plain = _counted(name)
        many = 1 if counted is None else counted
        if len(every) + many > MOST_LISTED:
            raise ScenarioError("gpus", f"lists more than {MOST_LISTED} GPUs: one machine has fewer")
        every += [plain] * many
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
