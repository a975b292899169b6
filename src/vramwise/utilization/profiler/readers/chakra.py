"""Chakra execution traces (`*.et`): a graph of nodes with times, read into the tables of a trace of one rank.

Messages and their fields: mlcommons/chakra, schema/protobuf/et_def.proto. A file is a run of messages, each behind its
length: GlobalMetadata, then every Node.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from vramwise.errors import SourceError
from vramwise.utilization.profiler.readers.rows import Row, RowStream, gpu_row
from vramwise.utilization.profiler.readers.wire import (
    BadWire,
    Value,
    fields,
    file_varint,
    message_of,
    signed,
    text,
    varint,
)
from vramwise.utilization.profiler.times import NS_PER_US

NAME, TYPE, START, DURATION, ATTRIBUTES = 2, 3, 6, 7, 10  # of Node
ATTRIBUTES_OF_FILE = 2  # of GlobalMetadata
LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = 2, 3, 4, 5, 6, 7  # of NodeType
COLLECTIVES = ("allreduce", "reduce", "allgather", "gather", "scatter", "broadcast", "alltoall", "reduce_scatter",
               "reduce_scatter", "barrier")  # fmt: skip
"""CollectiveCommType, under the names that Kineto writes."""
STREAM_OF = {LOAD: 2, STORE: 2, SEND: 1, RECEIVE: 1, COLLECTIVE: 1}
"""A stream of their own for copies and for communication, where a node names none."""
NO_TIMES = (
    "a Chakra trace without times, as simulators take it: it says what depends on what, not how long it took; record "
    "one with torch.profiler and link it (chakra_trace_link), or profile the Kineto trace itself"
)

NO_STARTS = (
    "a Chakra trace with durations and no starts, as converters of 2023 wrote it: what ran beside what is not known; "
    "link the recorded trace anew (chakra_trace_link, chakra_converter), or profile the Kineto trace itself"
)


def is_chakra(start: bytes) -> bool:
    """Whether the file begins with a GlobalMetadata behind its length: a version, and at most attributes beside it.

    In 2023 it had attributes alone, the first of them the schema (mlcommons/chakra@bb67f05, tests/data/chakra.0.et).
    """
    try:
        size, at = varint(start, 0)
        if not 2 <= size <= len(start) - at:
            return False
        found = list(fields(start[at : at + size]))
        if found and found[0][0] == ATTRIBUTES_OF_FILE and isinstance(found[0][1], bytes):
            return text(dict(fields(found[0][1])).get(1, b"")) == "schema"
    except BadWire:
        return False
    if not found or found[0][0] != 1 or {number for number, _ in found} > {1, 2}:
        return False
    version = text(found[0][1])
    return len(version) < 20 and version.replace(".", "").isalnum()


def stream(path: Path, *, partial: bool) -> RowStream:
    """The events of the file."""
    return RowStream(str(path), lambda into: _rows(path, into), partial=partial)


def _rows(path: Path, into: RowStream) -> Iterator[Row]:
    timed = begun = False
    try:
        with open(path, "rb") as file:
            _next(file, into.name)
            while (message := _next(file, into.name)) is not None:
                node = _node(message)
                timed = timed or bool(node.get(DURATION))
                begun = begun or START in node
                row = _event(node)
                if row is not None:
                    yield row
    except BadWire as problem:
        into.cut_off(f"({problem})")
    if not begun:
        raise SourceError(f"{into.name}: {NO_STARTS if timed else NO_TIMES}")


def _next(file: IO[bytes], name: str) -> bytes | None:
    size = file_varint(file)
    return None if size is None else message_of(file, size, name)


def _node(message: bytes) -> dict[int | str, Value]:
    """The fields of a node by number, its attributes by name."""
    node: dict[int | str, Value] = {}
    for number, value in fields(message):
        if number == ATTRIBUTES and isinstance(value, bytes):
            attribute = dict(fields(value))
            name = text(attribute.pop(1, b""))
            attribute.pop(2, None)
            node[name] = next(iter(attribute.values()), 0)
        else:
            node[number] = value
    return node


def _event(node: dict[int | str, Value]) -> Row | None:
    """What ran on the GPU; None for what ran on the CPU, and for what has no time.

    A node is the CPU's unless it says otherwise (`is_cpu_op`), as Chakra's own feeder has it; communication and copies
    between memories are not.
    """
    kind = signed(node.get(TYPE, 0))
    duration = signed(node.get(DURATION, 0))
    if not duration or node.get("is_cpu_op", int(kind not in STREAM_OF)) or kind not in (COMPUTE, *STREAM_OF):
        return None
    start = signed(node.get(START, 0)) * NS_PER_US
    name = text(node.get(NAME, b""))
    said: dict[str, object] = {"device": 0, "stream": signed(node.get("stream", STREAM_OF.get(kind, 0)))}
    if kind == COLLECTIVE:
        number = signed(node.get("comm_type", -1))
        said["Collective name"] = COLLECTIVES[number] if 0 <= number < len(COLLECTIVES) else None
        said["In msg nelems"], said["dtype"] = node.get("comm_size"), "byte"
        said["Process Group Name"] = text(node.get("pg_name", b"")) or None
    if kind in (SEND, RECEIVE):
        said["Collective name"] = "send" if kind == SEND else "recv"
    communicates = kind in (SEND, RECEIVE, COLLECTIVE)
    shown = f"ncclKernel: {name}" if communicates and not name.startswith("nccl") else name
    category = "gpu_memcpy" if kind in (LOAD, STORE) else "kernel"
    shown = f"Memcpy {name}" if category == "gpu_memcpy" and not name.startswith("Mem") else shown
    return gpu_row(category, shown, start, start + duration * NS_PER_US, **said)
