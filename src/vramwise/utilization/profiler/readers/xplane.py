"""JAX and TensorFlow traces (`*.xplane.pb`): one stream of events a device plane, the host's calls and steps with it.

Messages and their fields: openxla/xla, third_party/tsl/tsl/profiler/protobuf/xplane.proto; names of planes, lines and
stats: xla/tsl/profiler/utils/xplane_schema.cc. A file is read plane after plane, line after line, never as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from vramwise.errors import SourceError, clipped
from vramwise.utilization.profiler.readers.rows import Row, RowStream, call_row, gpu_row, step_row
from vramwise.utilization.profiler.readers.wire import (
    BYTES,
    BadWire,
    Value,
    fields,
    file_varint,
    message_of,
    signed,
    text,
)

PLANES = 1  # of XSpace
PLANE_NAME, LINES, EVENT_NAMES, STAT_NAMES = 2, 3, 4, 5  # of XPlane
DEVICE = re.compile(r"/device:(GPU|TPU):(\d{1,5})(?: .*)?")
DERIVED = frozenset(("Steps", "XLA Modules", "Framework Name Scope", "Framework Ops", "Launch Stats", "Source code"))
"""Lines that a tool made of the others: their events would count twice."""
OPERATIONS, ASYNCHRONOUS = "XLA Ops", "Async XLA Ops"
CORRELATION, STEP_NUMBER, COPY_DETAILS = "correlation_id", "step_num", "memcpy_details"
PS_PER_NS = 1000
MOST_PLANES = 4096


class _Place(NamedTuple):
    """A message inside the file."""

    start: int
    size: int


class _Plane(NamedTuple):
    """What a plane says beside its events: names by id, and where its lines lie."""

    name: str
    lines: list[_Place]
    events: dict[int, str]
    stats: dict[int, str]


def is_xspace(path: Path) -> bool:
    """Whether the file begins as an XSpace does: a plane with a name of a device or a host."""
    try:
        with open(path, "rb") as file:
            return any(name.startswith(("/host:", "/device:")) for name, _ in _named_planes(file, 8))
    except (OSError, BadWire, SourceError):
        return False


def device_planes(path: Path) -> list[str]:
    """The names of the planes of GPUs and TPUs. Raises SourceError where there is none."""
    names = []
    try:
        with open(path, "rb") as file:
            for name, _ in _named_planes(file, MOST_PLANES):
                if DEVICE.fullmatch(name) and name not in names:
                    names.append(name)
    except BadWire:
        pass  # said when it is read
    if not names:
        raise SourceError(f"{clipped(str(path), 200)}: an XPlane trace without a plane of a GPU or a TPU")
    return names


def rows(path: Path, device: str, stream: RowStream) -> Iterator[Row]:
    """Kernels and copies of one device, the calls and the steps of the host."""
    said = DEVICE.fullmatch(device)
    number = int(said[2]) if said else 0
    try:
        with open(path, "rb") as file:
            for name, place in _named_planes(file, MOST_PLANES):
                if name == device:
                    yield from _of_device(file, _plane(file, place, stream.name), number, stream.name)
                elif name.startswith("/host:"):
                    yield from _of_host(file, _plane(file, place, stream.name), stream.name)
    except BadWire as problem:
        stream.cut_off(f"({problem})")


def _of_device(file: IO[bytes], plane: _Plane, device: int, name: str) -> Iterator[Row]:
    lines = [_line(file, place, name) for place in plane.lines]
    operations = any(title == OPERATIONS for title, *_ in lines) and "TPU" in plane.name
    for title, number, began, events in lines:
        if title in DERIVED or (operations and title not in (OPERATIONS, ASYNCHRONOUS)):
            continue
        if not operations and title in (OPERATIONS, ASYNCHRONOUS):
            continue  # a GPU's kernels are on the lines of its streams
        for event in events:
            kind, start, end, stats = _event(event, began)
            shown = plane.events.get(kind, "")
            known = {plane.stats.get(key, ""): value for key, value in stats}
            correlation = known.get(CORRELATION)
            where = {"device": device, "stream": number, "correlation": signed(correlation or 0) or None}
            copies = COPY_DETAILS in known or shown.startswith(("Memcpy", "Memset"))
            category = "gpu_memset" if shown.startswith("Memset") else "gpu_memcpy" if copies else "kernel"
            yield gpu_row(category, _as_cuda(shown) if copies else shown, start, end, **where)


def _of_host(file: IO[bytes], plane: _Plane, name: str) -> Iterator[Row]:
    wanted = {key for key, stat in plane.stats.items() if stat in (CORRELATION, STEP_NUMBER)}
    if not wanted:
        return
    for place in plane.lines:
        _, _, began, events = _line(file, place, name)
        for event in events:
            kind, start, end, stats = _event(event, began)
            known = {plane.stats.get(key, ""): value for key, value in stats if key in wanted}
            if STEP_NUMBER in known:
                yield step_row(signed(known[STEP_NUMBER]), start, end)
            elif CORRELATION in known:
                yield call_row(plane.events.get(kind, ""), start, end, signed(known[CORRELATION]))


def _as_cuda(name: str) -> str:
    """`MemcpyH2D` as CUDA's other traces name it."""
    said = re.fullmatch(r"Memcpy([HDP])2([HDP])", name)
    return f"Memcpy {said[1]}to{said[2]}" if said else name if name.startswith("Mem") else f"Memcpy {name}"


def _event(message: bytes, began: int) -> tuple[int, int, int, list[tuple[int, Value]]]:
    kind = offset = duration = 0
    stats: list[tuple[int, Value]] = []
    for number, value in fields(message):
        if number == 1:
            kind = signed(value)
        elif number == 2:
            offset = signed(value)
        elif number == 3:
            duration = signed(value)
        elif number == 4 and isinstance(value, bytes):
            stat = dict(fields(value))
            stats.append((signed(stat.pop(1, 0)), next(iter(stat.values()), 0)))
    start = began + offset // PS_PER_NS
    return kind, start, began + (offset + duration) // PS_PER_NS, stats


def _line(file: IO[bytes], place: _Place, name: str) -> tuple[str, int, int, list[bytes]]:
    file.seek(place.start)
    title, number, began, events = "", 0, 0, []
    for field, value in fields(message_of(file, place.size, name)):
        if field == 1:
            number = signed(value)
        elif field == 2:
            title = text(value)
        elif field == 3:
            began = signed(value)
        elif field == 4 and isinstance(value, bytes):
            events.append(value)
    return title, number, began, events


def _plane(file: IO[bytes], place: _Place, name: str) -> _Plane:
    plane = _Plane("", [], {}, {})
    for number, where in _places(file, place):
        if number == LINES:
            plane.lines.append(where)
        elif number in (EVENT_NAMES, STAT_NAMES):
            file.seek(where.start)
            key, shown = _map_entry(message_of(file, where.size, name))
            (plane.events if number == EVENT_NAMES else plane.stats)[key] = shown
        elif number == PLANE_NAME:
            file.seek(where.start)
            plane = plane._replace(name=text(message_of(file, where.size, name)))
    return plane


def _map_entry(message: bytes) -> tuple[int, str]:
    """An entry of a map from ids to metadata, of which the name counts."""
    entry = dict(fields(message))
    metadata = entry.get(2, b"")
    said = dict(fields(metadata)) if isinstance(metadata, bytes) else {}
    return signed(entry.get(1, 0)), text(said.get(2, b""))


def _named_planes(file: IO[bytes], most: int) -> Iterator[tuple[str, _Place]]:
    end = file.seek(0, 2)
    count = 0
    for number, place in _places(file, _Place(0, end)):
        if number != PLANES:
            continue
        count += 1
        if count > most:
            return
        for inner, where in _places(file, place):
            if inner == PLANE_NAME:
                file.seek(where.start)
                yield text(message_of(file, where.size, "a plane's name")), place
                break


def _places(file: IO[bytes], place: _Place) -> Iterator[tuple[int, _Place]]:
    """The messages and strings inside a message, where they lie; other fields are passed over."""
    at, end = place.start, place.start + place.size
    while at < end:
        file.seek(at)
        key = file_varint(file)
        if key is None or not key >> 3:
            raise BadWire("a field without a number")
        kind = key & 7
        if kind == 0:
            file_varint(file)
            at = file.tell()
            continue
        size = file_varint(file) if kind == BYTES else {1: 8, 5: 4}.get(kind)
        if size is None:
            raise BadWire(f"wire type {kind}")
        where = _Place(file.tell(), size)
        at = where.start + size
        if at > end:
            raise BadWire("the file ends too early")
        if kind == BYTES:
            yield key >> 3, where
