"""Calibrated and assumed constants of engines: constants.csv, keyed by engine and range of versions."""

from __future__ import annotations

from functools import cache

from vramwise.hardware import Gpu
from vramwise.records import record
from vramwise.result import Node
from vramwise.serving.common.versions import version_of
from vramwise.site import Learned, learned
from vramwise.tables import table
from vramwise.units import GIB


@record
class Constant:
    """A figure with its 90 % interval, and where it comes from."""

    low: float
    expected: float
    high: float
    kind: str
    source: str


Row = tuple[str, str, tuple[int, ...], tuple[int, ...] | None, Constant]


@cache
def _rows() -> tuple[Row, ...]:
    return tuple(
        (
            row["engine"],
            row["name"],
            version_of(row["from"]) if row["from"] else (0,),
            version_of(row["until"]) if row["until"] else None,
            Constant(row.number("low"), row.number("expected"), row.number("high"), row["kind"], row["source"]),
        )
        for row in table(__file__)
    )


@cache
def constant(engine: str, name: str, version: tuple[int, ...]) -> Constant:
    """The constant `name` of `engine` at `version`.

    A row holds from its `from` on, up to and without its `until`. Raises KeyError when no row covers the version.
    """
    for owner, row_name, start, stop, value in _rows():
        if owner == engine and row_name == name and start <= version and (stop is None or version < stop):
            return value
    raise KeyError(f"{engine} {name} {version}")


def gib_node(name: str, value: Constant, inputs: dict[str, int], here: Learned | None = None) -> Node:
    """A constant in GiB as a term, or what this site learned of it."""
    if here is not None:
        low, expected, high = (round(end) for end in here.ends)
        return Node(name, expected, "calibrated", low, high, here.said, inputs, here.source)
    low, expected, high = (round(size * GIB) for size in (value.low, value.expected, value.high))
    return Node(name, expected, value.kind, low, high, inputs=inputs, source=value.source)


def learned_bytes(
    term: str, shipped: Constant, gpu: Gpu | None, engine: str, version: str | None, ranks: int = 1
) -> Learned | None:  # fmt: skip
    """What runs of an engine on this site showed of a term, in bytes; `shipped` is in GiB."""
    ends = float(round(shipped.low * GIB)), float(round(shipped.expected * GIB)), float(round(shipped.high * GIB))
    card = None if gpu is None else gpu.id
    return learned(term, ends, gpu=card, program=engine, version=version, ranks=ranks)


def graphs_here(
    graphs: Node, gpu: Gpu | None, engine: str, version: str | None, model_type: str, ranks: int
) -> Node:  # fmt: skip
    """CUDA graphs times the ratio that runs of the engine with models of the same type on this site showed."""
    if not graphs.bytes or graphs.kind not in ("calibrated", "assumed"):
        return graphs
    shipped = graphs.low / graphs.bytes, 1.0, graphs.high / graphs.bytes
    here = learned(
        "cuda_graphs", shipped, gpu=None if gpu is None else gpu.id, program=engine, version=version, of=model_type,
        ranks=ranks,
    )  # fmt: skip
    if here is None:
        return graphs
    low, size, high = (round(graphs.bytes * end) for end in here.ends)
    formula = f"{graphs.formula}, × {here.expected:.2f}: {here.said}"
    return Node(graphs.name, size, "calibrated", low, high, formula, graphs.inputs, here.source)
