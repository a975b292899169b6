"""An estimate of a log's scenario beside what the log prints, and where the difference comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.engines import engine_named
from vramwise.errors import UsageError
from vramwise.estimation import estimate
from vramwise.interop.logs.reading import Printed, Reading, read_log
from vramwise.records import record
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.sources import model_elsewhere
from vramwise.units import format_bytes

COUNTS = frozenset({"kv_cache_tokens", "kv_cache_blocks", "max_concurrency", "max_seq"})
ORDER = (
    "weights", "weights_gpu", "weights_host", "activation_peak", "non_torch", "kv_cache_bytes", "kv_cache_blocks",
    "kv_cache_tokens", "max_concurrency", "max_seq", "cuda_graph", "recurrent_state_bytes", "compute_buffer",
    "host_buffer", "output_buffer",
)  # fmt: skip
_BUDGET = ("weights", "activation_peak", "non_torch")
_NODES = {
    "weights": ("weights",), "weights_gpu": ("weights",), "activation_peak": ("profile run", "activations"),
    "non_torch": ("non-torch",),
    "cuda_graph": ("CUDA graphs",), "kv_cache_bytes": ("KV cache",), "compute_buffer": ("compute buffer",),
    "host_buffer": ("host buffer",), "output_buffer": ("output buffer",), "recurrent_state_bytes": ("recurrent",),
}  # fmt: skip
_SHOWN_INPUTS = 4


@record
class Row:
    """One quantity: printed and predicted, the error as a share of the printed value, and what explains it."""

    quantity: str
    printed: Printed
    predicted: Quantity | None
    explanation: str

    @property
    def error(self) -> float | None:
        if self.predicted is None or not self.printed.value:
            return None
        return (self.predicted.expected - self.printed.value) / abs(self.printed.value)

    @property
    def agrees(self) -> bool:
        """Whether the printed value lies in the interval, to its last digit."""
        if self.predicted is None:
            return False
        slack = self.printed.precision
        return self.predicted.low - slack <= self.printed.value <= self.predicted.high + slack


@record
class Comparison:
    """A log's reading, the estimate of its scenario `asked`, and the rows of both."""

    reading: Reading
    result: Result
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    asked: Scenario

    def to_dict(self) -> dict[str, object]:
        reading = self.reading
        return {
            "engine": reading.engine,
            "engine_version": reading.version,
            "lines_read": reading.lines,
            "scenario": self.result.scenario,
            "rows": [
                {
                    "quantity": row.quantity,
                    "printed": row.printed.value if row.quantity == "max_concurrency" else round(row.printed.value),
                    "precision": row.printed.precision,
                    "line": row.printed.line,
                    "predicted": None if row.predicted is None else {
                        "low": row.predicted.low, "expected": row.predicted.expected, "high": row.predicted.high
                    },
                    "error": row.error,
                    "in_interval": row.agrees,
                    "explanation": row.explanation,
                }
                for row in self.rows
            ],
            "not_found": reading.missing,
            "notes": list(self.notes),
        }  # fmt: skip


def compare_log(path: str, overrides: Mapping[str, object] | None = None) -> Comparison:
    """Read the log, estimate its scenario, and hold both against each other.

    `overrides` (a scenario's top keys and a `serve` table) go over what the log says. Raises SourceError (file),
    UsageError (the log names no model), and what `estimate` raises.
    """
    given = dict(overrides or {})
    stated = given.pop("serve", {})
    serve = dict(stated) if isinstance(stated, Mapping) else {}
    reading = read_log(path, serve.get("engine"))
    data: dict[str, object] = {"task": "serve", **reading.scenario, **given}
    data["serve"] = {"engine": reading.engine, **reading.settings, **serve}
    if "model" not in data:
        if reading.model is None:
            raise UsageError(f"the {engine_named(reading.engine).title} log names no model: add --model NAME")
        data["model"] = _model_here(reading, reading.model)
    if reading.total_bytes is not None and not {"gpu", "gpu_total_bytes"} & given.keys():
        data["gpu_total_bytes"] = reading.total_bytes
    asked = Scenario.from_dict(data)
    result = estimate(asked)
    rows = tuple(_rows(reading, result))
    notes = [*reading.notes, *result.notes]
    if result.capacity is None and any(row.predicted is None for row in rows) and data.get("num_gpus") != 0:
        notes.append("the log does not say which card it ran on: --gpu NAME or --gpu-total-bytes SIZE gives the rest")
    return Comparison(reading, result, rows, tuple(notes), asked)


def _model_here(reading: Reading, name: str) -> str:
    """The model that the log names; where that is a path of the machine it ran on, the known model of that name."""
    found = model_elsewhere(name)
    if found is None:
        return name
    reading.note(found[1])
    return found[0]


def _rows(reading: Reading, result: Result) -> Iterator[Row]:
    for quantity in ORDER:
        printed = reading.printed.get(quantity)
        if printed is None:
            continue
        predicted = result.quantities.get(quantity)
        row = Row(quantity, printed, predicted, "")
        yield Row(quantity, printed, predicted, _explained(row, reading, result))


def _explained(row: Row, reading: Reading, result: Result) -> str:
    """The terms behind a row; for the KV cache, which other line its difference comes from."""
    if row.predicted is None:
        return "not estimated without the card" if result.capacity is None else "not estimated"
    log = engine_named(reading.engine).log
    closes = log is not None and log.closes_its_budget
    if row.quantity == "kv_cache_bytes" and closes:
        return _from_budget(row, reading, result)
    if row.quantity in COUNTS and closes:
        return _from_pool(row, reading, result)
    node = _node(result, row.quantity)
    return _term(node) if node is not None else ""


def _from_budget(row: Row, reading: Reading, result: Result) -> str:
    """kv = share − weights − activations − rest: the difference by printed line."""
    assert row.predicted is not None
    gap = row.predicted.expected - row.printed.value
    pieces = []
    left = gap
    for name in _BUDGET:
        printed, predicted = reading.printed.get(name), result.quantities.get(name)
        if printed is None or predicted is None:
            continue
        part = printed.value - predicted.expected
        left -= part
        if abs(part) > printed.precision + row.printed.precision:
            pieces.append(f"{name.replace('_', ' ')} {_signed(part)}")
    if abs(left) > 2 * row.printed.precision:
        pieces.append(f"what the log does not print {_signed(left)}")
    return "of the difference: " + ", ".join(pieces) if pieces else "share of the card − weights − profile run − rest"


def _from_pool(row: Row, reading: Reading, result: Result) -> str:
    """Whether a count differs because the pool does, or by the bytes of one token."""
    pool, predicted = reading.printed.get("kv_cache_bytes"), result.quantities.get("kv_cache_bytes")
    if pool is None or predicted is None or not pool.value or not row.printed.value or row.predicted is None:
        return ""
    scaled = row.predicted.expected * pool.value / predicted.expected if predicted.expected > 0 else 0.0
    own = (scaled - row.printed.value) / row.printed.value
    return f"with the printed pool: {100 * own:+.1f} %".replace("-", "−")


def _node(result: Result, quantity: str) -> Node | None:
    names = _NODES.get(quantity, ())
    for phase in reversed(result.phases):
        for node in phase.components.children or (phase.components,):
            if node.name.startswith(names) and names:
                return node
    return None


def _term(node: Node) -> str:
    """The largest terms of a node, or its formula with the numbers in it."""
    if node.children:
        parts = sorted(node.children, key=lambda child: -child.bytes)[:3]
        return " + ".join(f"{part.name} {_size(part.bytes)}" for part in parts)
    inputs = ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
                       for name, value in list(node.inputs.items())[:_SHOWN_INPUTS])  # fmt: skip
    text = f"{node.name}: {node.formula}" if node.formula else node.name
    return f"{text} ({inputs})" if inputs else text


def _size(size: float) -> str:
    return format_bytes(round(size), "GiB" if abs(size) >= 2**27 else "MiB")


def _signed(size: float) -> str:
    return f"{'−' if size < 0 else '+'}{_size(abs(size))}"
