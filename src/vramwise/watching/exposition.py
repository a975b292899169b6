"""Figures as a page for Prometheus to scrape: OpenMetrics 1.0 for who asks for it, the older text format for others.

Names end in their unit, a counter's samples in `_total`; the older format names its counters so as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socket import AF_INET, AF_INET6
from socketserver import TCPServer, ThreadingMixIn
from threading import Thread
from typing import Final

from vramwise.errors import SourceError, UsageError, clipped, printable
from vramwise.records import record
from vramwise.result import Quantity

OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
SLOWEST_CLIENT_S: Final = 10
LONGEST_LABEL: Final = 200
ESTIMATED: Final = "vramwise_memory_estimated_bytes"
MEASURED: Final = "vramwise_memory_bytes"
_PORTS: Final = range(1, 65_536)


@record
class Family:
    """A metric: `name` with its unit at the end, and one value a set of labels."""

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    kind: str = "gauge"
    unit: str = ""


def exposition(families: Sequence[Family], *, open_metrics: bool) -> str:
    """The page. A family without samples is left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines += _lines(family, open_metrics=open_metrics)
    return "\n".join((*lines, "# EOF") if open_metrics else lines) + "\n"


def _lines(family: Family, *, open_metrics: bool) -> Iterator[str]:
    sample = f"{family.name}_total" if family.kind == "counter" else family.name
    named = family.name if open_metrics else sample
    yield f"# TYPE {named} {family.kind}"
    if family.unit and open_metrics:
        yield f"# UNIT {named} {family.unit}"
    yield f"# HELP {named} {_escaped(family.help)}"
    for labels, value in family.samples:
        told = ",".join(f'{name}="{_escaped(clipped(text, LONGEST_LABEL))}"' for name, text in labels.items())
        yield f"{sample}{{{told}}} {value!r}" if told else f"{sample} {value!r}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def job_of_this_process() -> dict[str, str]:
    """The labels by which `vramwise fleet` knows a Slurm job, and the rank; of a pod the scrape itself knows."""
    found = {"hpc_job": os.environ.get("SLURM_JOB_ID", ""), "rank": os.environ.get("RANK", "")}
    return {name: text for name, text in found.items() if text}


def estimated_family(expected: Mapping[str, Quantity], labels: Mapping[str, str]) -> Family:
    """What was estimated: each counter with the ends of its interval."""
    samples = [
        ({**labels, "counter": name, "bound": bound}, float(getattr(quantity, bound)))
        for name, quantity in expected.items()
        for bound in ("low", "expected", "high")
    ]
    return Family(ESTIMATED, "Estimated memory of a counter, with its interval.", samples, unit="bytes")


def measured_family(actual: Sequence[tuple[Mapping[str, str], float]]) -> Family:
    """What is: the same counters."""
    return Family(MEASURED, "Memory as the counter has it.", actual, unit="bytes")


def place_of(text: str) -> tuple[str, int]:
    """`:9400` (every interface), `127.0.0.1:9400`, `[::1]:9400`. Raises UsageError for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) not in _PORTS:
        raise UsageError(f'--serve: expected :PORT or HOST:PORT such as :9400, got "{clipped(text)}"')
    return host.removeprefix("[").removesuffix("]"), int(port)


@contextmanager
def served(text: str, families: Callable[[], Sequence[Family]]) -> Iterator[str]:
    """A page at `/metrics` while the block runs; gives its address. Raises SourceError where the port is taken."""
    host, port = place_of(text)
    try:
        server = _Server((host, port), _handler(families), v6=":" in host)
    except OSError as problem:
        raise SourceError(f"--serve {clipped(text)}: {problem.strerror or problem}") from None
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host or "0.0.0.0"
        yield f"http://{shown}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, TCPServer):
    """Not http.server's own, which asks a name server for its name first."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler], *, v6: bool) -> None:
        self.address_family = AF_INET6 if v6 else AF_INET
        super().__init__(place, handler)


def _handler(families: Callable[[], Sequence[Family]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOWEST_CLIENT_S
        server_version, sys_version = "vramwise", ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "the figures are at /metrics")
                return
            is_open = "application/openmetrics-text" in (self.headers.get("Accept") or "")
            content = exposition(families(), open_metrics=is_open).encode()
            self.send_response(200)
            self.send_header("Content-Type", OPEN_METRICS if is_open else PLAIN_TEXT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are no news."""

    return Handler
