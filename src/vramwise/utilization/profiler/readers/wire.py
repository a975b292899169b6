"""Protocol buffers' wire format, read a message at a time (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from vramwise.errors import SourceError
from vramwise.units import MIB

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_MESSAGE = 64 * MIB
"""Of one message that is read at once: an event, a name, a node. Longer ones are refused."""

Value = int | bytes
Field = tuple[int, Value]


class BadWire(ValueError):
    """The bytes are no message, or end too early."""


def fields(message: bytes) -> Iterator[Field]:
    """Number and value of each field, in their order; fixed-width values as their bytes. Raises BadWire."""
    at, end = 0, len(message)
    while at < end:
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise BadWire("a field without a number")
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise BadWire(f"wire type {kind}")
        if size > end - at:
            raise BadWire("a field longer than its message")
        yield number, message[at : at + size]
        at += size


def varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends. Raises BadWire."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7
    raise BadWire("a number that does not end")


def signed(value: Value) -> int:
    """An int64 as it was meant; 0 for what is no number."""
    if not isinstance(value, int):
        return 0
    return value - 2**64 if value >= 2**63 else value


def text(value: Value) -> str:
    """A string; empty for what is none."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def file_varint(file: IO[bytes]) -> int | None:
    """The next number of a file; None at its end. Raises BadWire."""
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
        if shift >= 70:
            break
    if shift:
        raise BadWire("a number that does not end")
    return None


def message_of(file: IO[bytes], size: int, name: str) -> bytes:
    """The next `size` bytes of a file, all of them. Raises BadWire and SourceError."""
    if size > LONGEST_MESSAGE:
        raise SourceError(f"{name}: a message of {size:,} bytes; at most {LONGEST_MESSAGE // MIB} MiB are read at once")
    found = file.read(size)
    if len(found) < size:
        raise BadWire("the file ends too early")
    return found
