"""What GPUs there are to plan with: cards of the catalog, or a file that lists them with prices.

    [[gpu]]
    id = "h100-sxm-80gb"      # as --gpu
    count = 64                # in all
    per_node = 8
    price_per_hour = 2.5      # of one card, in any currency
    host_ram = "1 TiB"        # of a node
    interconnect = 3200       # Gbit/s of a node's network

A CSV file with these columns is read as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import ScenarioError, UnknownNameError, UsageError
from vramwise.files import shown_path
from vramwise.hardware import find_gpu
from vramwise.records import record
from vramwise.scenario import read_table_file
from vramwise.scenario.files import read_text_file
from vramwise.scenario.machines import machine_named
from vramwise.units import parse_bytes

_KEYS = ("id", "count", "per_node", "price_per_hour", "host_ram", "interconnect")
_MOST_POOLS = 256
MOST_CARDS = 1_000_000


@record
class Pool:
    """Cards of one kind: how many, how they stand in nodes, and what one costs an hour."""

    gpu: str
    count: int
    per_node: int = 8
    price_per_hour: float | None = None
    host_ram_bytes: int | None = None
    network_gbit_s: int | None = None


def read_inventory(path: str) -> list[Pool]:
    """The pools of a TOML, YAML, JSON or CSV file. Raises UsageError that names the file and the entry."""
    if path.lower().endswith(".csv"):
        rows = _csv_rows(path)
    else:
        table = read_table_file(path)
        found = table.get("gpu")
        rows = found if isinstance(found, list) else []
    where = shown_path(path)
    if not rows:
        raise UsageError(f"{where}: expected entries [[gpu]] with id and count, found none")
    if len(rows) > _MOST_POOLS:
        raise UsageError(f"{where}: at most {_MOST_POOLS} entries, got {len(rows):,}")
    what = "columns" if path.lower().endswith(".csv") else "a table with"
    if any(not isinstance(row, Mapping) or "id" not in row for row in rows):
        number = next(n for n, row in enumerate(rows, 1) if not isinstance(row, Mapping) or "id" not in row)
        raise UsageError(f"{where}: gpu {number}: expected {what} id and count (and {', '.join(_KEYS[2:])})")
    return [_pool(row, f"{where}: gpu {number}") for number, row in enumerate(rows, 1)]


def _csv_rows(path: str) -> list[Mapping[str, object]]:
    import csv
    from io import StringIO

    text = read_text_file(path)
    try:
        rows = csv.DictReader(StringIO(text, newline=""))
        return [{key: text for key, text in row.items() if key and text} for row in rows]
    except csv.Error as problem:
        raise UsageError(f"{shown_path(path)}: is no CSV file that can be read ({problem})") from None


def _pool(row: Mapping[str, object], where: str) -> Pool:
    """The pool of an entry; of a rented machine's name `count` is how many of them, and its price that of one."""
    strange = [str(key) for key in row if key not in _KEYS]
    if strange:
        raise UsageError(f"{where}: unknown key {strange[0]!r}: expected {', '.join(_KEYS)}")
    machine = machine_named(str(row["id"]))
    cards = 1 if machine is None else machine.count
    try:
        gpu = find_gpu(str(row["id"]) if machine is None else machine.gpu).gpu
        memory = parse_bytes(str(row["host_ram"])) if "host_ram" in row else None
    except (UnknownNameError, UsageError, ScenarioError) as problem:
        raise UsageError(f"{where}: {problem}") from None
    price = _number(row, "price_per_hour", where)
    if price == 0:
        raise UsageError(f"{where}: price_per_hour is 0: leave it out where it does not matter")
    network = _number(row, "interconnect", where)
    return Pool(
        gpu=gpu.id,
        count=_whole(row, "count", where, 1) * cards,
        per_node=_whole(row, "per_node", where, 8 if machine is None else cards),
        price_per_hour=None if price is None else price / cards,
        host_ram_bytes=memory,
        network_gbit_s=None if network is None else max(1, round(network)),
    )


def _number(row: Mapping[str, object], key: str, where: str) -> float | None:
    value = row.get(key)
    try:
        found = None if value is None else float(str(value))
    except ValueError:
        found = -1.0
    if found is not None and not 0 <= found < MOST_CARDS:
        unit = " of Gbit/s" if key == "interconnect" else ""
        raise UsageError(f"{where}: {key}: expected a number{unit} from 0 to {MOST_CARDS:,}, got {str(value)[:40]!r}")
    return found


def _whole(row: Mapping[str, object], key: str, where: str, default: int) -> int:
    found = _number(row, key, where)
    if found is None:
        return default
    if found < 1 or found != int(found):
        raise UsageError(f"{where}: {key}: expected a whole number from 1, got {str(row[key])[:40]!r}")
    return int(found)
