"""Network interfaces: their speed, and what passes through them, from Linux's own counters."""

from __future__ import annotations

from pathlib import Path

from vramwise.errors import SourceError
from vramwise.records import record

NET_DEV = Path("/proc/net/dev")
CLASS_NET = Path("/sys/class/net")
INFINIBAND = Path("/sys/class/infiniband")
WORD_BYTES = 4  # InfiniBand's port_xmit_data and port_rcv_data count words of 4 bytes
_RECEIVED, _SENT, _FIELDS = 0, 8, 16


@record
class Counters:
    """Bytes since boot."""

    received_bytes: int
    sent_bytes: int


@record
class Interface:
    """One network interface or InfiniBand port; its speed in Gbit/s where the driver tells."""

    name: str
    speed_gbit_s: float | None
    up: bool
    counters: Counters
    rdma: bool = False


def read_net_dev(text: str) -> dict[str, Counters]:
    """The table of /proc/net/dev (Linux, Documentation/filesystems/proc.rst). Raises SourceError for another text."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) == _FIELDS and all(word.isdigit() for word in words):
            found[name.strip()] = Counters(int(words[_RECEIVED]), int(words[_SENT]))
    if not found:
        raise SourceError("no table of /proc/net/dev here")
    return found


def interfaces() -> list[Interface]:
    """This machine's interfaces, and its InfiniBand ports, whose RDMA traffic no network interface counts."""
    try:
        counters = read_net_dev(NET_DEV.read_text("utf-8"))
    except (OSError, SourceError):
        return _ports()
    found = []
    for name, counted in counters.items():
        speed = _number(CLASS_NET / name / "speed")
        up = _word(CLASS_NET / name / "operstate") not in ("down", "lowerlayerdown", "notpresent")
        found.append(Interface(name, speed / 1000 if speed and speed > 0 else None, up, counted))
    return [*found, *_ports()]


def rates(before: dict[str, Counters], after: dict[str, Counters], seconds: float) -> dict[str, tuple[float, float]]:
    """Bytes per second received and sent by interface; a counter that went back (a reset) counts as zero."""
    return {
        name: (
            max(0, counted.received_bytes - before[name].received_bytes) / seconds,
            max(0, counted.sent_bytes - before[name].sent_bytes) / seconds,
        )
        for name, counted in after.items()
        if name in before and seconds > 0
    }


def _ports() -> list[Interface]:
    found = []
    for port in sorted(INFINIBAND.glob("*/ports/*")):
        received, sent = (_number(port / "counters" / f"port_{way}_data") for way in ("rcv", "xmit"))
        rate = _word(port / "rate").split()
        speed = float(rate[0]) if rate and rate[0].replace(".", "", 1).isdigit() else None
        counters = Counters(int(received or 0) * WORD_BYTES, int(sent or 0) * WORD_BYTES)
        active = "ACTIVE" in _word(port / "state")
        found.append(Interface(f"{port.parents[1].name}:{port.name}", speed, active, counters, rdma=True))
    return found


def _word(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(_word(path))
    except ValueError:
        return None
