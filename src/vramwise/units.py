"""Bytes as text and back: the only module that knows how many bytes a unit has.

GB is 1e9 bytes and GiB 2^30; the unit is always written out, so that nobody has to guess which one was
meant. Inside vramwise every size is a whole number of bytes.
"""

from __future__ import annotations

import re

from vramwise.errors import UsageError

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

UNIT_BYTES: dict[str, int] = {
    "B": 1,
    "KB": KB,
    "MB": MB,
    "GB": GB,
    "TB": TB,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}
_SPELLINGS: dict[str, int] = {
    spelling: size for unit, size in UNIT_BYTES.items() for spelling in (unit, unit.lower(), unit.upper())
} | {"kB": KB, "bytes": 1, "byte": 1}
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")
_AMBIGUOUS = {"K", "M", "G", "T"}
_LONGEST_SIZE_TEXT = 40  # digits of any real size and its unit, with room to spare


def counted(number: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`, `1,024 GPUs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_bytes(n: int, unit: str = "GiB", decimals: int = 2) -> str:
    """Write a number of bytes in `unit`: `format_bytes(16060522496)` is `"14.96 GiB"`; commas part thousands.

    Rounds half to even on whole numbers, so no float error enters. `unit="auto"` takes the largest binary
    unit that is not larger than `n`. Raises `UsageError` for an unknown unit.
    """
    if unit == "auto":
        unit = next((name for name in ("TiB", "GiB", "MiB", "KiB") if abs(n) >= UNIT_BYTES[name]), "B")
    if unit not in UNIT_BYTES:
        raise UsageError(f'unknown unit "{unit}": expected one of {", ".join(UNIT_BYTES)}')
    if unit == "B":
        return f"{n:,} B"
    scaled = _divide_half_even(abs(n) * 10**decimals, UNIT_BYTES[unit])
    digits = str(scaled).rjust(decimals + 1, "0")
    whole, fraction = (digits[:-decimals], "." + digits[-decimals:]) if decimals else (digits, "")
    sign = "-" if n < 0 and scaled else ""
    return f"{sign}{int(whole):,}{fraction} {unit}"


def sized(n: int) -> str:
    """A size in the largest binary unit that is not larger than it: `sized(3 * 2**29)` is `"1.50 GiB"`."""
    return format_bytes(n, "auto")


def parse_bytes(text: str) -> int:
    """Read a size such as `"80GB"`, `"1,024.5 GiB"`, `"1.5 TiB"` or `"123"` (bytes) as a whole number of bytes.

    A fraction of a byte is rounded half to even. Raises `UsageError` for anything else; `"80G"` is refused
    because it may mean 80 GB or 80 GiB, which differ by 7 %.
    """
    stripped = text.strip()
    number = stripped.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = stripped[len(number) :]
    whole, _, fraction = number.strip().partition(".")
    if "," in whole and _THOUSANDS.fullmatch(whole):
        whole = whole.replace(",", "")
    digits = whole + fraction
    if not (digits.isascii() and digits.isdigit()) or len(stripped) > _LONGEST_SIZE_TEXT:
        shown = text if len(text) <= _LONGEST_SIZE_TEXT else text[:_LONGEST_SIZE_TEXT] + "…"
        raise UsageError(f'expected a size such as "80GB", "80 GiB" or "123" (bytes), got "{shown}"')
    size = _SPELLINGS.get(unit or "B")
    if size is None:
        raise UsageError(_unit_problem(number.strip(), unit))
    return _divide_half_even(int(digits) * size, 10 ** len(fraction))


def gib(n: int) -> float:
    """Bytes in GiB (2^30 bytes), for arithmetic on charts; text comes from `format_bytes`."""
    return n / GIB


def gb(n: int) -> float:
    """Bytes in GB (1e9 bytes), for arithmetic on charts; text comes from `format_bytes`."""
    return n / GB


def round_up(n: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `n` (an allocator's rounding)."""
    return -(-n // multiple) * multiple


def _unit_problem(number: str, unit: str) -> str:
    letter = unit[:1].upper()
    if unit.upper() in _AMBIGUOUS or (len(unit) == 2 and unit[0].isupper() and unit[1] == "b"):
        why = "is a number of bits" if unit.endswith("b") else "is ambiguous"
        spellings = f'"{number} {letter}B" (powers of 1000) or "{number} {letter}iB" (powers of 2)'
        return f'"{number}{unit}" {why}: write {spellings}'
    return f'unknown unit "{unit}": expected one of {", ".join(UNIT_BYTES)}'


def _divide_half_even(numerator: int, denominator: int) -> int:
    quotient, remainder = divmod(numerator, denominator)
    return quotient + (2 * remainder > denominator or (2 * remainder == denominator and quotient % 2 == 1))
