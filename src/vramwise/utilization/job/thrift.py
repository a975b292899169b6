"""Thrift's compact protocol (thrift-compact-protocol.md), as far as a Parquet file's metadata is written in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

INT, LONG, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
MOST_SHORT: Final = 15


class Long(NamedTuple):
    """A number whose field has 64 bits; any other has 32."""

    value: int


def struct(fields: Mapping[int, object]) -> bytes:
    """Fields by their numbers, in ascending order: Long, int, bytes, dicts of fields, and lists of one of these."""
    out, last = [], 0
    for number, value in fields.items():
        out.append(bytes([number - last << 4 | _KINDS[type(value)]]) + _encoded(value))
        last = number
    return b"".join(out) + b"\0"


def varint(value: int) -> bytes:
    """A number that is not negative, seven bits a byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A number of up to 64 bits with its sign."""
    return varint(value << 1 ^ value >> 63)


_KINDS: Final[dict[type, int]] = {Long: LONG, int: INT, bytes: BINARY, dict: STRUCT, list: LIST}


def _encoded(value: object) -> bytes:
    if isinstance(value, Long):
        return zigzag(value.value)
    if isinstance(value, int):
        return zigzag(value)
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, dict):
        return struct(value)
    assert isinstance(value, list)
    of = _KINDS[type(value[0])] if value else STRUCT
    head = bytes([len(value) << 4 | of]) if len(value) < MOST_SHORT else bytes([0xF0 | of]) + varint(len(value))
    return head + b"".join(map(_encoded, value))
