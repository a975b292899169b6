"""What another profiler recorded, row after row, as the events that Kineto writes of the same thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from vramwise.errors import SourceError, clipped
from vramwise.utilization.profiler.times import FARTHEST_NS, NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.decode import Event

Row = dict[str, object]
Header = dict[str, object]
BATCH_ROWS = 4096


class RowStream:
    """The events of one process's GPU, batch after batch, as EventStream hands on those of a JSON file.

    `rows` gets the header to fill, and the stream, whose `truncated` it sets where a cut-off file is read as far as it
    goes.
    """

    def __init__(self, name: str, rows: Callable[[RowStream], Iterator[Row]], *, partial: bool = False) -> None:
        self.name = name
        self.header: Header = {}
        self.truncated = False
        self.events_read = 0
        self.partial = partial
        self._rows = rows

    def batches(self) -> Iterator[list[Event]]:
        """Every event, in the order of the file's tables. Raises SourceError for what cannot be read."""
        from vramwise.utilization.profiler.decode import plain_events

        rows = self._rows(self)
        while batch := list(islice(rows, BATCH_ROWS)):
            self.events_read += len(batch)
            yield plain_events(batch)

    def cut_off(self, where: str) -> None:
        """The file ends too early: an error, or with `partial` the end of what is read. Raises SourceError."""
        self.truncated = True
        if not self.partial:
            read = f"{self.events_read:,} events read before"
            raise SourceError(f"{self.name}: cut off or damaged {where} ({read}; --partial reads what is there)")


def gpu_row(category: str, name: object, start_ns: object, end_ns: object, **args: object) -> Row:
    """A kernel, a copy or a memory set; without a time where the two are no times (it is then counted as left out)."""
    return _row(category, name, start_ns, end_ns, {key: value for key, value in args.items() if value is not None})


def call_row(name: object, start_ns: object, end_ns: object, correlation: object) -> Row:
    """A call of the runtime or driver."""
    return _row("cuda_runtime", name, start_ns, end_ns, {"correlation": correlation})


def step_row(number: object, start_ns: object, end_ns: object) -> Row:
    """A step of the program, under the name that torch.profiler gives it."""
    return _row("user_annotation", f"ProfilerStep#{clipped(str(number), 20)}", start_ns, end_ns, {})


def _row(category: str, name: object, start_ns: object, end_ns: object, args: Row) -> Row:
    row: Row = {"ph": "X", "cat": category, "name": name if isinstance(name, str) and name else "unnamed", "args": args}
    if type(start_ns) is int and type(end_ns) is int and end_ns - start_ns >= 0 and start_ns > -FARTHEST_NS:
        if end_ns >= FARTHEST_NS:
            return row
        row["ts"], row["dur"] = microseconds(start_ns), microseconds(end_ns - start_ns)
    return row


def microseconds(nanoseconds: int) -> str:
    """As Kineto writes them: three decimals, no digit lost."""
    sign, size = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    return f"{sign}{size // NS_PER_US}.{size % NS_PER_US:03d}"
