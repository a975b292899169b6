"""One batch of trace events from JSON text to objects: by msgspec where it is installed, else by the standard library.

msgspec fills only the fields that are asked for, and hands on a number's text, so that no digit of a time is lost; it
takes about a quarter of the time in which the standard library decodes. Whatever it refuses (a field of another type,
NaN) is read by the standard library, so both accept the same files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

ARGUMENTS = {
    "correlation": "correlation",
    "stream": "stream",
    "device": "device",
    "blocks_per_sm": "blocks per SM",
    "occupancy": "est. achieved occupancy %",
    "collective": "Collective name",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group_size": "Group size",
    "dtype": "dtype",
    "group": "Process Group Name",
    "members": "Process Group Ranks",
    "sequence": "Seq",
    "memory_bytes": "Bytes",
    "memory_total_allocated": "Total Allocated",
    "memory_total_reserved": "Total Reserved",
    "memory_device_type": "Device Type",
    "memory_device": "Device Id",
    "external_id": "External id",
    "old_external_id": "external id",
    "input_dims": "Input Dims",
}
"""Arguments that are read, by the name they have here."""
LARGEST_WHOLE = 2**52
"""Microseconds up to here, 142 years, are nanoseconds in 64 bits."""


if TYPE_CHECKING:  # a Protocol costs a quarter of a millisecond
    from collections.abc import Callable
    from typing import Protocol

    class Arguments(Protocol):
        """What an event says beside its name and time; None where it says nothing."""

        correlation: object
        stream: object
        device: object
        blocks_per_sm: object
        occupancy: object
        collective: object
        in_elements: object
        out_elements: object
        group_size: object
        dtype: object
        group: object
        members: object
        sequence: object
        memory_bytes: object
        memory_total_allocated: object
        memory_total_reserved: object
        memory_device_type: object
        memory_device: object
        external_id: object
        old_external_id: object
        input_dims: object

    class Event(Protocol):
        """One event; `ts` and `dur` are microseconds: whole numbers, floats (`dur` alone) or the number's own text."""

        ph: str | None
        cat: str | None
        name: str | None
        ts: Any
        dur: Any
        args: Arguments | None

    Decoder = Callable[[bytes], list[Event]]


class BadBatch(ValueError):
    """The text is not a list of events."""


@cache
def fast_decoders() -> tuple[Decoder, ...]:
    """Decoders of `[event, …]` by msgspec, the faster first; none where msgspec is not installed.

    The first takes whole microseconds alone, as older traces have them. The second hands on the text of `ts`.
    """
    try:
        import msgspec
    except ImportError:
        return ()
    unread = ("input_dims", msgspec.Raw, None)  # long lists, of which few are needed
    fields = [unread if field == "input_dims" else (field, object, None) for field in ARGUMENTS]
    arguments = msgspec.defstruct("Arguments", fields, rename=ARGUMENTS.get, gc=False)
    times = (("ts", int | None, None), ("ts", msgspec.Raw, msgspec.Raw(b"")))
    return tuple(_by_msgspec(time, arguments) for time in times)


def _by_msgspec(time: tuple[str, object, object], arguments: Any) -> Decoder:
    import msgspec

    text = str | None
    fields = [("ph", text, None), ("cat", text, None), ("name", text, None), time,
              ("dur", int | float | None, None), ("args", arguments | None, None)]  # fmt: skip
    decoder = msgspec.json.Decoder(list[msgspec.defstruct("Event", fields, gc=False)])  # type: ignore[misc]

    def decode(text: bytes) -> list[Event]:
        try:
            return cast("list[Event]", decoder.decode(text))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise BadBatch(str(error)) from None

    return decode


class PlainArguments:
    """The arguments of an event from a dict, looked up when asked for: most are never read."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    if TYPE_CHECKING:

        def __getattr__(self, field: str) -> object: ...


def _argument(key: str) -> property:
    return property(lambda self: self._values.get(key))


for _field, _key in ARGUMENTS.items():  # half as long a look-up as by __getattr__
    setattr(PlainArguments, _field, _argument(_key))


class PlainEvent:
    """An event from a dict; what has an unexpected type counts as absent."""

    __slots__ = ("args", "cat", "dur", "name", "ph", "ts")

    def __init__(self, values: Mapping[str, object]) -> None:
        get = values.get
        ph, cat, name, ts, dur, args = get("ph"), get("cat"), get("name"), get("ts"), get("dur"), get("args")
        self.ph = ph if type(ph) is str else None
        self.cat = cat if type(cat) is str else None
        self.name = name if type(name) is str else None
        self.ts = ts if type(ts) is int and -LARGEST_WHOLE < ts < LARGEST_WHOLE else _number(ts)
        self.dur = dur if type(dur) is int and -LARGEST_WHOLE < dur < LARGEST_WHOLE else _number(dur)
        self.args = PlainArguments(args) if isinstance(args, dict) else None


def plain_events(values: object) -> list[Event]:
    """Events from what the standard library read; entries that are no objects are left out. Raises BadBatch."""
    if not isinstance(values, list):
        raise BadBatch("not a list of events")
    return [cast("Event", PlainEvent(value)) for value in values if isinstance(value, dict)]


def plain_decoder(text: bytes) -> list[Event]:
    """A decoder of `[event, …]` by the standard library."""
    return plain_events(load_json(text))


def load_json(text: bytes) -> object:
    """A JSON document with its fractions as text. Raises BadBatch."""
    try:
        return json.loads(text, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise BadBatch(str(error)) from None


def _number(value: object) -> int | bytes:
    """A whole number of a usual size as it is, any other number's text, nothing for what is none."""
    if type(value) is int and -LARGEST_WHOLE < value < LARGEST_WHOLE:
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        return b""
    return str(value).encode("utf-8", "replace")
