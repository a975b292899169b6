"""The first number of a tool's cell, within what a tool can print; anything else is not known."""

from __future__ import annotations

import re

from vramwise.units import MIB

LARGEST = 2.0**53
_NUMBER = re.compile(r"-?\d[\d.]{0,30}", re.ASCII)


def first_float(text: str | None) -> float | None:
    """`81559 MiB` is 81559.0, `N/A` None, and so is what no counter reaches."""
    found = _NUMBER.search(text or "")
    try:
        value = float(found.group()) if found else None
    except ValueError:  # 1.2.3
        return None
    return value if value is not None and abs(value) <= LARGEST else None


def first_int(text: str | None) -> int | None:
    """The same without what follows the decimal point."""
    value = first_float(text)
    return None if value is None else int(value)


def first_mib(text: str | None) -> int | None:
    """A number of MiB in bytes."""
    value = first_int(text)
    return None if value is None else value * MIB
