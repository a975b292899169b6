"""`vramwise watch`: memory, utilization in the right words and network throughput, live, into CSV or Parquet."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from vramwise.cli.screens.paint import screen_width, wrapped_text
from vramwise.cli.site_flags import add_site_arguments
from vramwise.errors import SourceError, UsageError, VramwiseError, clipped, printable
from vramwise.files import append_text, read_at_most, short_text, shown_path, written
from vramwise.hardware.machine.exporter import FIELDS, Sample, read_exporter
from vramwise.hardware.machine.exporter_page import LARGEST_PAGE, is_address, page_at, shown_address
from vramwise.hardware.machine.network import Counters, interfaces, rates
from vramwise.hardware.machine.nvml import this_machine
from vramwise.hardware.machine.pasted import LONGEST_LINE, MOST_GPUS, MOST_LINES
from vramwise.units import MB, format_bytes

if TYPE_CHECKING:
    from vramwise.result import Quantity
    from vramwise.watching.exposition import Family

HELP = "live GPU memory, what utilization really means, network throughput; to CSV or Parquet"
COLUMNS = ("time_s", "kind", "name", "measure", "value", "unit")
LONGEST_WAIT_S = 3600.0
TINY_TRAINING = (
    "--hidden-size", "512", "--num-hidden-layers", "2", "--num-attention-heads", "8", "--vocab-size", "4096",
    "--task", "train", "--sequence-length", "256",
)  # fmt: skip
Row = tuple[float, str, str, str, float, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="(%(default)s)")
    parser.add_argument("--count", type=_count, metavar="N", help="stop after N samples; without it Ctrl-C stops")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write samples: .csv, or .parquet (needs pyarrow)")
    add_site_arguments(parser, calibrates=True, estimates=False)
    parser.add_argument(
        "--serve", metavar="[HOST]:PORT", help="export instead of print, for Prometheus: http://HOST:PORT/metrics"
    )
    parser.add_argument("--scenario", metavar="FILE", help="with --serve: what is estimated, beside what is")
    parser.add_argument(
        "--exporter",
        metavar="URL|FILE",
        help="a GPU exporter's metrics (DCGM, AMD), such as http://localhost:9400/metrics",
    )


def run(args: argparse.Namespace) -> int:
    """Sample until --count or Ctrl-C. Raises UsageError for an output that is neither CSV nor Parquet."""
    if args.calibrate:
        _calibrate(args)
    if args.scenario is not None and args.serve is None:
        raise UsageError("--scenario goes with --serve; vramwise.watch() follows a run of your own")
    serving = None if args.serve is None else _Serving(args.serve, args.scenario)
    return watch(
        interval_s=args.interval, count=args.count, output=args.output, exporter=args.exporter, serving=serving
    )


def _calibrate(args: argparse.Namespace) -> None:
    """Train a tiny model on every card first: a card's own counters tell no term of an estimate, a known process's do.

    Raises what `vramwise measure` raises, without a GPU or without torch too.
    """
    from vramwise.cli.main import command_module, command_parser
    from vramwise.measure.launch import devices

    where = () if args.site is None else ("--site", args.site)
    for index in range(max(1, len(devices()["gpus"]))):
        words = (*TINY_TRAINING, "--device", f"cuda:{index}", "--calibrate", *where)
        command_module("measure").run(command_parser("measure").parse(list(words)))


def watch(
    *, interval_s: float, count: int | None, output: str | None, exporter: str | None, serving: _Serving | None = None
) -> int:
    """One block of lines a sample, or a page of them; 0 when stopped."""
    with ExitStack() as stack:
        sink = None if output is None else stack.enter_context(_Output(output))
        samples = _samples(interval_s, count, exporter)
        if serving is not None:
            print(f"exporting at {stack.enter_context(serving.served())}", flush=True)
        try:
            for rows in samples:
                if serving is None:
                    print("\n".join(map(printable, _lines(rows))), flush=True)
                else:
                    serving.rows = rows
                if sink is not None:
                    sink.add(rows)
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


def _samples(interval_s: float, count: int | None, exporter: str | None) -> Iterator[list[Row]]:
    """Rates need two readings, so the first sample comes after one interval."""
    begun = time.monotonic()
    before, before_at = _network(), begun
    taken = 0
    while count is None or taken < count:
        time.sleep(interval_s)
        now = time.monotonic()
        after = _network()
        rows = [*_gpu_rows(now - begun), *_network_rows(now - begun, rates(before, after, now - before_at))]
        if exporter is not None:
            rows += [(now - begun, "gpu", one.gpu, one.field, one.value, one.unit) for one in _exported(exporter)]
        before, before_at = after, now
        taken += 1
        yield rows


def _network() -> dict[str, Counters]:
    return {each.name: each.counters for each in interfaces()}


def _gpu_rows(at: float) -> Iterator[Row]:
    machine = this_machine()
    for gpu in machine.gpus if machine is not None else ():
        name = str(gpu.index)
        facts = (
            ("memory used", gpu.used_bytes, "B"),
            ("memory total", gpu.total_bytes, "B"),
            ("kernel resident", gpu.utilization_pct, "%"),
            ("memory busy", gpu.memory_utilization_pct, "%"),
            ("power", gpu.power_w, "W"),
            ("temperature", gpu.temperature_c, "°C"),
        )
        for measure, value, unit in facts:
            if value is not None:
                yield at, "gpu", name, measure, float(value), unit


def _network_rows(at: float, found: dict[str, tuple[float, float]]) -> Iterator[Row]:
    for name, (received, sent) in found.items():
        if name != "lo":
            yield at, "network", name, "received", received, "B/s"
            yield at, "network", name, "sent", sent, "B/s"


def _exported(place: str) -> list[Sample]:
    """A GPU exporter's present values. Raises SourceError where it cannot be read."""
    if is_address(place):
        shown, text = shown_address(place), page_at(place)
    elif "@" in place and not os.path.exists(place):
        raise SourceError("--exporter: an address begins with http:// or https://")  # it may hold a password
    else:
        shown, text = shown_path(place), read_at_most(place, LARGEST_PAGE).decode("utf-8", "replace")
    try:
        samples = read_exporter(short_text(text, MOST_LINES, LONGEST_LINE))
    except SourceError as error:
        raise SourceError(f"{shown}: {error}") from None
    return samples[: MOST_GPUS * len(FIELDS)]


def _lines(rows: list[Row]) -> Iterator[str]:
    if not rows:
        yield "nothing to watch: no NVIDIA driver answers and no network interface is known"
        return
    yield f"after {rows[0][0]:,.1f} s"
    by_name: dict[tuple[str, str], list[str]] = {}
    for _, kind, name, measure, value, unit in rows:
        by_name.setdefault((kind, name), []).append(f"{measure} {_shown(value, unit)}")
    for (kind, name), parts in by_name.items():
        yield from wrapped_text(f"  {kind} {name}   ", ", ".join(parts), screen_width())
    if any(row[3] == "kernel resident" for row in rows):
        said = "time with any kernel on the GPU (NVML's “utilization”); 100 % is no share of peak"
        yield from wrapped_text("  kernel resident: ", said, screen_width())


def _shown(value: float, unit: str) -> str:
    if unit == "B":
        return format_bytes(int(value))
    if unit == "B/s":
        return f"{value / MB:,.2f} MB/s ({8 * value / MB / 1000:,.3f} Gbit/s)"
    return f"{value:,.0f} {unit}"


_EXPORTED = {
    "memory total": ("vramwise_gpu_memory_total_bytes", "Memory of the card.", "bytes", 1.0),
    "kernel resident": (
        "vramwise_gpu_kernel_resident_ratio",
        "Share of time with any kernel on the GPU.",
        "ratio",
        0.01,
    ),
    "power": ("vramwise_gpu_power_watts", "Power draw of the card.", "watts", 1.0),
    "temperature": ("vramwise_gpu_temperature_celsius", "Temperature of the card.", "celsius", 1.0),
    "received": ("vramwise_network_received_bytes_per_second", "Received through an interface.", "", 1.0),
    "sent": ("vramwise_network_sent_bytes_per_second", "Sent through an interface.", "", 1.0),
}
"""What --serve calls a measure: name, words, unit and scale."""


class _Serving:
    """The newest sample as metrics, beside the estimate of a scenario. Raises what `estimate` raises."""

    def __init__(self, place: str, scenario: str | None) -> None:
        from vramwise.watching.exposition import job_of_this_process, place_of

        place_of(place)
        self.place, self.rows, self._labels = place, list[Row](), job_of_this_process()
        self._expected = {} if scenario is None else _expected(scenario)

    def served(self) -> AbstractContextManager[str]:
        from vramwise.watching.exposition import served

        return served(self.place, self._families)

    def _families(self) -> list[Family]:
        from vramwise.watching.exposition import Family, estimated_family, measured_family

        used: list[tuple[dict[str, str], float]] = []
        others: dict[str, list[tuple[dict[str, str], float]]] = {}
        for _, kind, name, measure, value, _ in self.rows:
            labels = {**self._labels, "gpu" if kind == "gpu" else "interface": name}
            if measure == "memory used":
                used.append(({**labels, "counter": "nvidia_smi"}, value))
            elif measure in _EXPORTED:
                others.setdefault(measure, []).append((labels, value * _EXPORTED[measure][3]))
        found = [estimated_family(self._expected, self._labels), measured_family(used)]
        for measure, samples in others.items():
            name, words, unit, _ = _EXPORTED[measure]
            found.append(Family(name, words, samples, unit=unit))
        return found


def _expected(scenario: str) -> dict[str, Quantity]:
    from vramwise.estimation import estimate
    from vramwise.watching.given import expected, scenario_of

    stated, result = scenario_of(scenario)
    return expected(estimate(stated) if result is None else result, on_cpu=False)


class _Output:
    """Rows to a file in long form: one measure a row, so that tools can pivot them."""

    def __init__(self, name: str) -> None:
        if not name.endswith((".csv", ".parquet")):
            raise UsageError(f'--output: expected a name that ends with .csv or .parquet, got "{clipped(name)}"')
        self.name = name
        self.rows: list[Row] = []
        self.is_csv = name.endswith(".csv")

    def __enter__(self) -> _Output:
        if os.path.exists(self.name) and not os.path.isfile(self.name):
            raise SourceError(f"{shown_path(self.name)}: is no file, expected one to write samples to")
        if not self.is_csv:
            _parquet()
            return self
        with self._named(), written(self.name, newline="") as file:
            csv.writer(file).writerow(COLUMNS)
        return self

    def add(self, rows: list[Row]) -> None:
        """CSV is written at once, a sample's rows whole or not at all; Parquet, which has a footer, at the end."""
        if not self.is_csv:
            self.rows += rows
            return
        text = StringIO()
        csv.writer(text).writerows(rows)
        with self._named():
            append_text(self.name, text.getvalue())

    def __exit__(self, *_: object) -> None:
        if self.rows:
            arrow, parquet = _parquet()
            table = arrow.table({name: [row[i] for row in self.rows] for i, name in enumerate(COLUMNS)})
            with self._named(), written(self.name, "wb") as file:
                parquet.write_table(table, file)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SourceError(f"{shown_path(self.name)}: {error.strerror or error}") from None


def _parquet() -> tuple[Any, Any]:
    from importlib import import_module

    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise VramwiseError("Parquet needs pyarrow: pip install vramwise[parquet], or write .csv") from None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.01 <= value <= LONGEST_WAIT_S:
        raise argparse.ArgumentTypeError(f'expected 0.01 to {LONGEST_WAIT_S:g} seconds, got "{clipped(text)}"')
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise argparse.ArgumentTypeError(f'expected a whole number ≥ 1, got "{clipped(text)}"')
    return int(text)
