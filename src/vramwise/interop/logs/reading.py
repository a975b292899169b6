"""A log file as bounded lines, and what its engine printed in them.

At most MOST_BYTES are read, a line is cut at LONGEST_LINE characters, escape codes and control characters are
dropped: a hostile, binary or endless log costs bounded time and memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module

from vramwise.engines import engine_named, engines, module_of
from vramwise.errors import SourceError, VramwiseError, clipped
from vramwise.files import read_at_most, shown_path
from vramwise.records import record
from vramwise.units import KIB, MIB, format_bytes

MOST_BYTES = 32 * MIB
LONGEST_LINE = 16 * KIB
PROBE = 4 * KIB
_LOGS = {engine.name: engine.log for engine in engines() if engine.log is not None}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BINARY_SHARE = 0.3


@record
class Printed:
    """One number of the log: quantity of the result, value, half a unit of its last digit, and the line's text."""

    quantity: str
    value: float
    precision: float
    line: str


@dataclass(slots=True)
class Reading:
    """What a log tells.

    `scenario` and its `serve` table `settings` as far as they are known, `printed` by quantity, what was looked for in
    vain (`missing`). `communicators`: what the ranks' took, which is no quantity of a result.
    """

    engine: str
    scenario: dict[str, object] = field(default_factory=dict)
    printed: dict[str, Printed] = field(default_factory=dict)
    model: str | None = None
    version: str | None = None
    settings: dict[str, object] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    total_bytes: int | None = None
    communicators: Printed | None = None

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


class Collector:
    """Values by quantity while lines go by; ranks print the same line once each."""

    def __init__(self) -> None:
        self.values: dict[str, list[Printed]] = {}

    def add(self, quantity: str, text: str, unit: int, line: str) -> None:
        number = text.replace(",", "").rstrip(".")
        digits = len(number.partition(".")[2])
        self.values.setdefault(quantity, []).append(
            Printed(quantity, float(number) * unit, unit * 0.5 * 10.0**-digits, clipped(line.strip(), 160))
        )

    def worst(self, quantity: str, *, largest: bool = True) -> Printed | None:
        """The largest (or smallest) value that any rank printed."""
        found = self.values.get(quantity)
        if not found:
            return None
        finest = min(printed.precision for printed in found)
        exact = [printed for printed in found if printed.precision == finest]
        return (max if largest else min)(exact, key=lambda printed: printed.value)

    def differ(self, quantity: str) -> bool:
        """Whether the printed values are further apart than their last digits."""
        found = self.values.get(quantity, [])
        low, high = (pick(found, key=lambda printed: printed.value) for pick in (min, max))
        return high.value - low.value > low.precision + high.precision


def read_log(path: str, engine: str | None = None) -> Reading:
    """Read a start-up log of vLLM, SGLang or llama.cpp.

    Raises SourceError for a file that cannot be read or holds no text, VramwiseError where no line of these engines
    is in it.
    """
    lines, cut = _lines(path)
    if not any(line.strip() for line in lines):
        raise SourceError(f"{shown_path(path)}: the file is empty")
    counts = {name: sum(1 for line in lines if log.signs.search(line)) for name, log in _LOGS.items()}
    best = max(counts, key=lambda name: counts[name])
    found = engine if engine in _LOGS else best if counts[best] else None
    if found is None:
        names = ", ".join(engine_named(name).title for name in _LOGS)
        raise VramwiseError(f"{shown_path(path)}: {_none_of(len(lines))} one that {names} print")
    module = import_module(f"vramwise.interop.logs.{module_of(found)}")
    reading: Reading = module.read(lines)
    reading.lines = len(lines)
    others = [name for name, count in counts.items() if count and name != found]
    if others:
        named = " and ".join(engine_named(name).title for name in others)
        reading.note(f"lines of {named} are in the log too: --set engine={others[0]} reads those")
    if cut:
        reading.note(f"only the first {format_bytes(MOST_BYTES, 'MiB', 0)} of the file were read")
    return reading


def _lines(path: str) -> tuple[list[str], bool]:
    data = read_at_most(path, MOST_BYTES + 1)
    if _is_binary(data[:PROBE]):
        raise SourceError(f"{shown_path(path)}: is no text")
    cut = len(data) > MOST_BYTES
    return list(_clean(data[:MOST_BYTES])), cut


def _none_of(count: int) -> str:
    return "its only line is not" if count == 1 else f"none of its {count:,} lines is"


def _is_binary(start: bytes) -> bool:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in start)
    return bool(start) and odd > _BINARY_SHARE * len(start)


def _clean(data: bytes) -> Iterator[str]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", errors="replace")
    else:
        text = data.decode("utf-8", errors="replace")
    for raw in re.split(r"\r\n|\n|\r", text.removesuffix("\n")):  # progress bars return the carriage and go on
        line = raw[:LONGEST_LINE]
        if "\x1b" in line:
            line = _ESCAPES.sub("", line)
        yield _CONTROL.sub("", line)
