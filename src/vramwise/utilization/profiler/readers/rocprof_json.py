"""rocprofv3's JSON (`--output-format json`, `*_results.json`): the kernels, copies and HIP calls of one process.

Keys: ROCm/rocprofiler-sdk, source/lib/output/generateJSON.cpp (1.0) and cxx/serialization/save.hpp; names of calls are
places in `strings`, kernels have theirs in `kernel_symbols`. All GPUs of the process are one trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from vramwise.errors import SourceError
from vramwise.utilization.profiler.readers.json_walk import BadJson, Walk
from vramwise.utilization.profiler.readers.nsys import STEP
from vramwise.utilization.profiler.readers.rocpd import copy_name
from vramwise.utilization.profiler.readers.rows import Row, RowStream, call_row, gpu_row, step_row

TOP: Final = "rocprofiler-sdk-tool"
RECORDS: Final = ("buffer_records", "callback_records")
KEPT: Final = ("agents", "strings", "kernel_symbols")
GPU: Final = 2
"""ROCPROFILER_AGENT_TYPE_GPU."""


def rows(chunks: Iterator[bytes], stream: RowStream) -> Iterator[Row]:
    """Kernels, copies, HIP calls and steps."""
    walk = Walk(stream.name, chunks)
    try:
        for key in walk.fields():
            if key != TOP:
                walk.value()
            elif walk.peek() == "[":
                for number, _ in enumerate(walk.items()):
                    if number:
                        raise SourceError(f"{stream.name}: several processes in one file: give one of each")
                    yield from _of_process(walk, stream)
            else:
                yield from _of_process(walk, stream)
    except BadJson:
        stream.cut_off("in its JSON")


def _of_process(walk: Walk, stream: RowStream) -> Iterator[Row]:
    said: dict[str, object] = {}
    for key in walk.fields():
        if key not in RECORDS or walk.peek() != "{":
            value = walk.value()
            if key in KEPT:
                said[key] = value
            continue
        facts = _Facts(said)
        if key == RECORDS[0]:
            stream.header["deviceProperties"] = facts.cards
        for domain in walk.fields():
            row_of = facts.rows_of.get(domain) if key == RECORDS[0] else None
            for _ in walk.items():
                record = walk.value()
                if row_of is not None and isinstance(record, dict) and (row := row_of(record)) is not None:
                    yield row


class _Facts:
    """What the records of a process are told by: its agents, and names by their numbers."""

    def __init__(self, said: dict[str, Any]) -> None:
        gpus = [one for one in _objects(said.get("agents")) if one.get("type") == GPU]
        self._devices = {_handle(one.get("id")): _device(one, place) for place, one in enumerate(gpus)}
        self.cards = [
            {"id": _device(one, place), "name": _text(one.get("product_name")) or _text(one.get("name"))}
            for place, one in enumerate(gpus)
        ]
        self._kernels = {
            one.get("kernel_id"): _text(one.get("formatted_kernel_name")) or _text(one.get("kernel_name"))
            for one in _objects(said.get("kernel_symbols"))
            if isinstance(one.get("kernel_id"), int)
        }
        strings = said.get("strings")
        strings = strings if isinstance(strings, dict) else {}
        self._operations = [one.get("operations") for one in _objects(strings.get("buffer_records"))]
        self._messages = {
            one.get("key"): one.get("value")
            for one in _objects(strings.get("marker_api"))
            if isinstance(one.get("key"), int)
        }
        self.rows_of: dict[str, Callable[[dict[str, Any]], Row | None]] = {
            "kernel_dispatch": self._kernel, "memory_copy": self._copy, "hip_api": self._call, "marker_api": self._step,
        }  # fmt: skip

    def _kernel(self, record: dict[str, object]) -> Row:
        about = record.get("dispatch_info")
        about = about if isinstance(about, dict) else {}
        number = about.get("kernel_id")
        name = self._kernels.get(number, "") if isinstance(number, int) else ""
        where = {"device": self._device_of(about.get("agent_id")), "correlation": _correlation(record)}
        stream = _handle(record.get("stream_id"))
        where["stream"] = _handle(about.get("queue_id")) if stream is None else stream
        return gpu_row("kernel", name.removesuffix(".kd"), *_times(record), **where)

    def _copy(self, record: dict[str, object]) -> Row | None:
        devices = [self._device_of(record.get(end)) for end in ("dst_agent_id", "src_agent_id")]
        device = next((one for one in devices if one is not None), None)
        where = {"device": device, "stream": _handle(record.get("stream_id")), "correlation": _correlation(record)}
        if where["stream"] is None:
            where["stream"] = 0
        return gpu_row("gpu_memcpy", copy_name(self._operation(record)), *_times(record), **where)

    def _call(self, record: dict[str, object]) -> Row | None:
        correlation = _correlation(record)
        return call_row(self._operation(record), *_times(record), correlation) if correlation else None

    def _step(self, record: dict[str, object]) -> Row | None:
        step = STEP.fullmatch(_text(self._messages.get(_correlation(record))))
        return step_row(step[1], *_times(record)) if step else None

    def _operation(self, record: dict[str, object]) -> str:
        kind, operation = record.get("kind"), record.get("operation")
        names = self._operations[kind] if isinstance(kind, int) and 0 <= kind < len(self._operations) else None
        known = isinstance(names, list) and isinstance(operation, int) and 0 <= operation < len(names)
        return _text(names[operation]) if known else ""  # type: ignore[index]

    def _device_of(self, agent: object) -> int | None:
        return self._devices.get(_handle(agent))


def _objects(value: object) -> list[dict[str, object]]:
    """The objects of an array; what is no object counts as an empty one, so that places stay."""
    return [one if isinstance(one, dict) else {} for one in value] if isinstance(value, list) else []


def _device(agent: dict[str, object], place: int) -> int:
    number = agent.get("logical_node_type_id")
    return number if type(number) is int else place


def _handle(value: object) -> int | None:
    found = value.get("handle") if isinstance(value, dict) else None
    return found if type(found) is int else None


def _correlation(record: dict[str, object]) -> int | None:
    said = record.get("correlation_id")
    found = said.get("internal") if isinstance(said, dict) else None
    return found if type(found) is int else None


def _times(record: dict[str, object]) -> tuple[object, object]:
    return record.get("start_timestamp"), record.get("end_timestamp")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
