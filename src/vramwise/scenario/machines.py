"""Machines that clouds rent by a name, and the GPUs in them: machines.csv, each row with its source."""

from __future__ import annotations

from functools import cache

from vramwise.records import record
from vramwise.tables import table


@record
class Machine:
    """The GPUs of a rented machine: their id in the catalog, and how many."""

    gpu: str
    count: int


def machine_named(name: str) -> Machine | None:
    """`p5.48xlarge`, `ml.g5.2xlarge`, `a2-highgpu-1g`, `Standard_NC24ads_A100_v4`; None for any other name."""
    plain = name.strip().lower().replace("_", "-").removeprefix("ml.").removeprefix("standard-")
    return _machines().get(plain)


@cache
def _machines() -> dict[str, Machine]:
    return {row["name"]: Machine(row["gpu"], int(row["count"])) for row in table(__file__)}
