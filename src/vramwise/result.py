"""The answer to a scenario: quantities, moments with their trees, ranks, capacity and verdict.

Everything is a whole number of bytes or a count; nothing is formatted here. `Result.to_dict` is the JSON
that the command line, the Python API and the web page share, and `Result.from_dict` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal, cast

from vramwise.errors import UsageError, clipped
from vramwise.records import record

SCHEMA: Final = 1

QUANTITIES: Final = (
    "params", "weights", "kv_cache_bytes", "kv_cache_tokens", "kv_cache_blocks", "max_concurrency",
    "activation_peak", "non_torch", "cuda_graph", "cuda_graph_estimate", "peak_allocated", "peak_active",
    "peak_reserved", "nvidia_smi", "total_needed", "host_memory", "weights_gpu", "weights_host", "compute_buffer",
    "host_buffer", "output_buffer", "recurrent_state_bytes", "max_batch", "max_seq", "step_time_s",
    "tokens_per_second", "oom",
)  # fmt: skip
"""Names of the counters that engines and tools print, per GPU (the worst rank); `host_memory` is a node's,
`tokens_per_second` the whole job's."""

COUNTS: Final = frozenset({"params", "kv_cache_tokens", "kv_cache_blocks", "max_batch", "max_seq"})
"""Quantities that count things; `oom` is a truth value, those of FRACTIONS are what they are, the others bytes."""

FRACTIONS: Final = frozenset({"max_concurrency", "step_time_s", "tokens_per_second"})
"""Quantities that are no whole numbers."""

KINDS: Final = ("exact", "derived", "measured", "calibrated", "assumed")
"""How a number is known, surest first."""

VerdictWord = Literal["fits", "tight", "does not fit"]
VERDICT_WORDS: Final[tuple[VerdictWord, ...]] = ("fits", "tight", "does not fit")
"""What is said of a need and its card, best first; `vramwise.verdict` says which holds."""

_KIND_RANK = {kind: rank for rank, kind in enumerate(KINDS)}
_SAME_AS_BYTES = cast(int, None)
_compact = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False).encode
_quoted = lru_cache(maxsize=4096)(encode_basestring_ascii)  # names, formulas and sources recur


@record
class Quantity:
    """A predicted counter with its 90 % interval; low = expected = high where it is exact.

    `oom` holds a truth value in all three places. Raises ValueError unless low ≤ expected ≤ high.
    """

    low: int | float
    expected: int | float
    high: int | float

    def __post_init__(self) -> None:
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"not an interval: {self.low} ≤ {self.expected} ≤ {self.high} does not hold")

    @classmethod
    def exact(cls, value: int | float) -> Quantity:
        """A counter without an interval: low = expected = high."""
        return cls(value, value, value)

    @classmethod
    def around(cls, low: float, expected: int | float, high: float) -> Quantity:
        """Whole ends on their own sides of the expected value: floats above 2**53 are not that exact."""
        return cls(min(round(low), expected), expected, max(round(high), expected))

    def to_dict(self) -> dict[str, Any]:
        """The interval as JSON-able data; of a truth value `expected` alone."""
        if isinstance(self.expected, bool):
            return {"expected": self.expected}
        return {"low": self.low, "expected": self.expected, "high": self.high}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Quantity:
        """What `to_dict` wrote."""
        expected = value["expected"]
        return cls(value.get("low", expected), expected, value.get("high", expected))


@record
class Node:
    """One term of a moment: its bytes, how they are known, the formula with its inputs, and its parts.

    `low` and `high` are the ends of its interval; left out, a leaf takes its bytes and a parent the sums over
    its children. Raises ValueError when children do not add up to `bytes`.
    """

    name: str
    bytes: int
    kind: str
    low: int = _SAME_AS_BYTES
    high: int = _SAME_AS_BYTES
    formula: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    source: str = ""
    children: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in _KIND_RANK:
            raise ValueError(f'{self.name}: unknown kind "{self.kind}", expected one of {", ".join(KINDS)}')
        children = self.children
        if children and sum(child.bytes for child in children) != self.bytes:
            total = sum(child.bytes for child in children)
            raise ValueError(f"{self.name}: children add up to {total}, not to {self.bytes} bytes")
        if self.low is None:
            object.__setattr__(self, "low", sum(c.low for c in children) if children else self.bytes)
        if self.high is None:
            object.__setattr__(self, "high", sum(c.high for c in children) if children else self.bytes)
        if not 0 <= self.low <= self.bytes <= self.high:
            raise ValueError(f"{self.name}: 0 ≤ {self.low} ≤ {self.bytes} ≤ {self.high} does not hold")

    @classmethod
    def group(cls, name: str, children: Iterable[Node], *, formula: str = "", source: str = "") -> Node:
        """A parent whose bytes are the sum of its children and whose kind is that of the least sure one."""
        parts = tuple(children)
        kind = max((part.kind for part in parts), key=_KIND_RANK.__getitem__, default="exact")
        return cls(name, sum(p.bytes for p in parts), kind, formula=formula, source=source, children=parts)

    def find(self, path: str) -> Node | None:
        """The node at `path` below this one, names separated by `/`; the empty path is this node."""
        node: Node | None = self
        for name in filter(None, path.split("/")):
            node = next((child for child in node.children if child.name == name), None) if node else None
        return node

    def to_dict(self) -> dict[str, Any]:
        """The tree from here down as JSON-able data; sizes in bytes."""
        return {
            "name": self.name, "bytes": self.bytes, "low": self.low, "high": self.high, "kind": self.kind,
            "formula": self.formula, "inputs": dict(self.inputs), "source": self.source,
            "children": [child.to_dict() for child in self.children],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Node:
        """What `to_dict` wrote."""
        return cls(**{**value, "children": tuple(cls.from_dict(child) for child in value["children"])})


@record
class Phase:
    """A moment of the run (load, forward, optimizer step, …) and the tree of what is held then."""

    name: str
    components: Node

    @property
    def bytes(self) -> int:
        """What is held at this moment: the sum over the tree."""
        return self.components.bytes

    def to_dict(self) -> dict[str, Any]:
        """Name, bytes and tree as JSON-able data."""
        return {"name": self.name, "bytes": self.bytes, "components": self.components.to_dict()}


@record
class Rank:
    """A kind of rank (a pipeline stage, say) and its peak."""

    name: str
    bytes: int


@record
class Capacity:
    """What the card has in total and what a process can use of it."""

    gpu: str
    total_bytes: int
    usable_bytes: int


@record
class Verdict:
    """Whether the scenario fits, with how much to spare, and how likely that is.

    Raises ValueError for a word that is none of VERDICT_WORDS.
    """

    word: VerdictWord
    headroom_bytes: int
    probability: float
    reasons: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.word not in VERDICT_WORDS:
            raise ValueError(f'unknown verdict "{self.word}", expected one of {", ".join(VERDICT_WORDS)}')

    @property
    def fits(self) -> bool:
        """True for *fits* and for *tight*."""
        return self.word != "does not fit"

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON-able data; `headroom_bytes` is negative where it does not fit."""
        return {
            "word": self.word, "fits": self.fits, "headroom_bytes": self.headroom_bytes,
            "probability": self.probability, "reasons": list(self.reasons),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Verdict:
        """What `to_dict` wrote. Raises ValueError where `fits` says something else than the word."""
        found = cls(value["word"], value["headroom_bytes"], value["probability"], tuple(value["reasons"]))
        if value["fits"] is not found.fits:
            raise ValueError(f'a verdict "{found.word}" with fits {value["fits"]}')
        return found


@record
class ModelFacts:
    """The model of the scenario in numbers; tied weights count once."""

    id: str
    num_parameters: int
    num_active_parameters: int
    num_trainable_parameters: int
    source: str


@record
class Result:
    """The whole answer; `suggestions` are worked out when they are first read.

    Raises ValueError for a quantity or a peak phase with an unknown name.
    """

    scenario: Mapping[str, Any]
    model: ModelFacts
    quantities: Mapping[str, Quantity]
    phases: tuple[Phase, ...] = ()
    peak_phase: str | None = None
    ranks: tuple[Rank, ...] = ()
    capacity: Capacity | None = None
    verdict: Verdict | None = None
    notes: tuple[str, ...] = ()
    site: tuple[Mapping[str, Any], ...] = ()
    suggestions: Sequence[Mapping[str, Any]] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        strange = [name for name in self.quantities if name not in QUANTITIES]
        if strange:
            raise ValueError(f"unknown quantities: {', '.join(strange)}")
        if self.peak_phase is not None and all(p.name != self.peak_phase for p in self.phases):
            raise ValueError(f'no phase is called "{self.peak_phase}"')

    @property
    def needed(self) -> Quantity:
        """What the verdict is about: all that the scenario needs, or what the fullest of several devices does.

        As far as it is known: of a model whose tensors alone are known it is what these take.
        """
        if self.capacity is not None and self.verdict is not None:
            judged = self.capacity.usable_bytes - self.verdict.headroom_bytes
            if "total_needed" not in self.quantities or self.quantities["total_needed"].expected != judged:
                return Quantity.exact(judged)
        for name in ("total_needed", "nvidia_smi", "peak_allocated", "weights"):
            if name in self.quantities:
                return self.quantities[name]
        return Quantity.exact(0)

    def to_dict(self, *, suggestions: bool = False) -> dict[str, Any]:
        """The result as JSON-able data; keys and order are part of the contract.

        `suggestions`: what to change too, which takes as many estimates as there are changes to try.
        """
        more = {"suggestions": [dict(one) for one in self.suggestions]} if suggestions else {}
        phases = [phase.to_dict() for phase in self.phases]
        return {**self._before_phases(), "phases": phases, **self._after_phases(), **more}

    def _before_phases(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "scenario": dict(self.scenario),
            "model": _plain(self.model),
            "quantities": {name: quantity.to_dict() for name, quantity in self.quantities.items()},
        }

    def _after_phases(self) -> dict[str, object]:
        return {
            "peak_phase": self.peak_phase,
            "ranks": [_plain(rank) for rank in self.ranks],
            "capacity": _plain(self.capacity) if self.capacity else None,
            "verdict": self.verdict.to_dict() if self.verdict else None,
            "notes": list(self.notes),
            "site": [dict(change) for change in self.site],
        }

    def to_rows(self) -> list[dict[str, object]]:
        """Every term of every moment as a flat row (path, bytes, low, high, kind, formula, source):
        `pandas.DataFrame(result.to_rows())`, `polars.DataFrame(result.to_rows())`."""
        from vramwise.notebook import rows_of

        return rows_of(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of a result: the bar and the tables, self-contained."""
        from vramwise.notebook import html_of

        return html_of(self)

    def to_json(self) -> str:
        """`to_dict` as JSON on one line. Terms that several moments share are written out once, so that a batch
        of answers costs a third of encoding the dicts. Raises ValueError for a number that JSON does not have."""
        known: dict[int, str] = {}
        phases = ",".join(
            f'{{"name":{_quoted(p.name)},"bytes":{p.bytes:d},"components":{_node_json(p.components, known)}}}'
            for p in self.phases
        )
        return f'{_compact(self._before_phases())[:-1]},"phases":[{phases}],{_compact(self._after_phases())[1:]}'

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Read what `to_dict` wrote. Raises `UsageError` when it is not a result of this schema."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise UsageError(f'not a vramwise result: expected a table with "schema": {SCHEMA}')
        try:
            return cls._read(data)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            what = f"{type(problem).__name__} {clipped(str(problem))}"
            raise UsageError(f"not a whole vramwise result: {what}") from problem

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Result:
        capacity, verdict = data["capacity"], data["verdict"]
        return cls(
            scenario=dict(data["scenario"]),
            model=ModelFacts(**data["model"]),
            quantities={name: Quantity.from_dict(value) for name, value in data["quantities"].items()},
            phases=tuple(Phase(p["name"], Node.from_dict(p["components"])) for p in data["phases"]),
            peak_phase=data["peak_phase"],
            ranks=tuple(Rank(**rank) for rank in data["ranks"]),
            capacity=Capacity(**capacity) if capacity else None,
            verdict=Verdict.from_dict(verdict) if verdict else None,
            notes=tuple(data["notes"]),
            site=tuple(data.get("site", ())),
            suggestions=tuple(dict(one) for one in data.get("suggestions", ())),
        )


def _plain(row: ModelFacts | Rank | Capacity) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__match_args__}


def _node_json(node: Node, known: dict[int, str]) -> str:
    """A term as JSON; `known` holds those already written, by identity."""
    text = known.get(id(node))
    if text is None:
        children = ",".join([_node_json(child, known) for child in node.children])
        known[id(node)] = text = (
            f'{{"name":{_quoted(node.name)},"bytes":{node.bytes:d},"low":{node.low:d},"high":{node.high:d},'
            f'"kind":"{node.kind}","formula":{_quoted(node.formula)},'
            f'"inputs":{_compact(dict(node.inputs)) if node.inputs else "{}"},"source":{_quoted(node.source)},'
            f'"children":[{children}]}}'
        )
    return text
