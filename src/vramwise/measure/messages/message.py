"""One out-of-memory message as numbers, and how its sizes are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vramwise.units import parse_bytes

SIZE: Final = r"(?<![0-9.])([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(bytes|B|[KMGT]i?B|[KMGT])(?![A-Za-z])"
"""A size and its unit; programs that write GB or G here mean GiB (they divide by 1024)."""
_LOOKS_BACK: Final = 20_000


@dataclass(frozen=True, slots=True)
class OomMessage:
    """What one message says; None where it does not say it. All sizes are bytes.

    `memory`: which memory had no room (device, host, pinned host, shared, unified), None where that is not said.
    `held`: what held it, by name. `cause` and `changes` (what, cost) where the wording alone tells them. `is_vague`:
    another message of the same text says more. `is_probable`: it tells of an end and not of its reason.
    """

    program: str
    device: str
    position: int
    tried: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    process: int | None = None
    others: tuple[tuple[str, int], ...] = ()
    private_pools: int | None = None
    allowed: int | None = None
    text: str = ""
    memory: str | None = "device"
    held: tuple[tuple[str, int], ...] = ()
    cause: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    is_vague: bool = False
    is_probable: bool = False

    @property
    def unallocated(self) -> int | None:
        """Reserved − allocated: what the allocator holds and no tensor uses."""
        if self.reserved is None or self.allocated is None:
            return None
        return max(0, self.reserved - self.allocated)

    @property
    def shortfall(self) -> int | None:
        """What was asked for beyond what was free: the least that must be freed."""
        if self.tried is None:
            return None
        return max(0, self.tried - (self.free or 0))

    @property
    def outside(self) -> int | None:
        """Total − free − this process: what others hold; with its own CUDA context where only torch's part is known."""
        own = self.process if self.process is not None else self.reserved
        if self.total is None or self.free is None or own is None:
            return None
        return max(0, self.total - self.free - own)


@dataclass(frozen=True, slots=True)
class Reading:
    """A wording found in a text: where, and as far as its message may go."""

    match: re.Match[str]
    text: str
    end: int

    @property
    def position(self) -> int:
        """Where the wording starts."""
        return self.match.start()

    @property
    def line(self) -> str:
        """The line of the wording, as far as 1,000 characters on either side."""
        start, end = max(0, self.position - 1000), self.match.end() + 1000
        head = self.text[start : self.position].rpartition("\n")[2]
        return flat(head + self.text[self.position : end].split("\n", 1)[0])

    def after(self, most: int) -> str:
        """From the wording on, in one line."""
        return flat(self.text[self.position : min(self.end, self.position + most)])

    @property
    def before(self) -> str:
        """What a program printed until then, 20,000 characters at most, in lines."""
        return self.text[max(0, self.position - _LOOKS_BACK) : self.position]

    def around(self, before: int, after: int) -> str:
        """What stands around the wording, in one line."""
        return flat(self.text[max(0, self.position - before) : self.position + after])


@dataclass(frozen=True, slots=True)
class Wording:
    """A way to say that memory ran out: its sign (a regular expression without groups), and how it is read.

    `words`: texts of which one stands in whatever the sign matches. They are looked for first, which is a hundred times
    quicker.
    """

    name: str
    words: tuple[str, ...]
    sign: str
    read: Callable[[Reading], OomMessage]


def flat(text: str) -> str:
    """One line: wrapped lines joined, rank prefixes of launchers and quote marks at line starts dropped."""
    lines = (re.sub(r"^(?:\s*\[[\w:. -]{1,40}\]:?)?[\s>|│#]*", "", line) for line in text.splitlines())
    return " ".join(" ".join(lines).split())


def size_found(pattern: str, text: str) -> int | None:
    """The first size that a pattern with the groups of SIZE finds."""
    match = re.search(pattern, text)
    return bytes_of(match.group(1), match.group(2)) if match else None


def last_size_found(pattern: str, text: str) -> int | None:
    """The last size that a pattern with the groups of SIZE finds: the state nearest to the message."""
    *_, last = [None, *re.finditer(pattern, text)]
    return bytes_of(last.group(1), last.group(2)) if last is not None else None


def whole_found(pattern: str, text: str) -> int | None:
    """The first whole number that a pattern's group finds."""
    match = re.search(pattern, text)
    return int(match.group(1)) if match else None


def last_whole_found(pattern: str, text: str) -> int | None:
    """The last whole number that one of a pattern's groups finds."""
    *_, last = [None, *re.finditer(pattern, text)]
    return int(next(group for group in last.groups() if group)) if last is not None else None


def bytes_of(size: str, unit: str) -> int:
    """A printed size as bytes; without an `i` too its unit is a power of 1024."""
    return parse_bytes(f"{size} {unit if unit in ('bytes', 'B') or 'i' in unit else f'{unit[0]}iB'}")
