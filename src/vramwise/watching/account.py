"""What the steps took so far, as a `Result` whose numbers are measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vramwise.measure.outcome import REST
from vramwise.measure.recorder import Record
from vramwise.records import record
from vramwise.result import ModelFacts, Node, Phase, Quantity, Result
from vramwise.watching.hooks import Observed

MOST_ROWS: Final = 10_000
_OUTSIDE: Final = ("between", "step")


@record
class StepRow:
    """One step: its number, the most that tensors took and in which moment, reserved and process memory. Bytes."""

    step: int
    allocated: int
    moment: str
    reserved: int | None
    process: int | None


@dataclass(slots=True)
class Account:
    """Peaks so far, by moment and in all; `rows` are the last steps."""

    observed: Observed
    moments: dict[str, int] = field(default_factory=dict)
    rows: deque[StepRow] = field(default_factory=lambda: deque(maxlen=MOST_ROWS))
    steps: int = 0
    peak: StepRow | None = None
    reserved: int | None = None
    process: int | None = None

    def add(self, records: Sequence[Record], process: int | None) -> StepRow:
        """Take in the pieces of one more step."""
        self.steps += 1
        for one in records:
            for name, size in ((one.label, one.peak), *self._points(one)):
                self.moments[name] = max(self.moments.get(name, 0), size)
        largest = max(records, key=lambda record: record.peak)
        reserved = _larger(*(record.reserved for record in records))
        row = StepRow(self.steps, largest.peak, largest.label, reserved, process)
        self.rows.append(row)
        self.reserved = _larger(self.reserved, reserved)
        self.process = _larger(self.process, process)
        if self.peak is None or row.allocated > self.peak.allocated:
            self.peak = row
        return row

    def counters(self) -> dict[str, int]:
        """The largest of each counter so far."""
        found = {"peak_allocated": self.peak.allocated} if self.peak is not None else {}
        if self.reserved is not None:
            found["peak_reserved"] = self.reserved
        if self.process is not None:
            found["nvidia_smi"] = self.process
        return found

    def measured(self, estimated: Result) -> Result:
        """The measured side: counters, and the moments that the hooks told apart."""
        seen = self.observed
        phases = tuple(
            Phase(name, self._tree(name, size))
            for name, size in ((self.name_of(moment), size) for moment, size in self.moments.items())
            if name not in _OUTSIDE and size
        )
        return Result(
            scenario=estimated.scenario,
            model=ModelFacts(
                estimated.model.id, seen.num_parameters or 0, seen.num_parameters or 0, seen.num_trainable or 0,
                "counted on the module that ran" if seen.num_parameters else "not looked at",
            ),
            quantities={name: Quantity.exact(size) for name, size in self.counters().items()},
            phases=phases,
            peak_phase=max(phases, key=lambda phase: phase.bytes).name if phases else None,
        )  # fmt: skip

    def _points(self, record: Record) -> list[tuple[str, int]]:
        """What is held where backward and the optimizer's step begin is a moment of its own."""
        names = {"backward": "forward end", "optimizer step": "backward end"}
        return [(names[record.label], record.start)] if record.label in names else []

    def name_of(self, moment: str) -> str:
        """A moment by the estimate's name: the forward pass of a model that works its loss out ends with the loss."""
        names = {"forward": "loss"} if self.observed.is_loss_inside else {"backward": "loss and backward"}
        return names.get(moment, moment)

    def _tree(self, name: str, size: int) -> Node:
        seen = self.observed
        known = {"weights": seen.weights, "optimizer states": seen.optimizer_states}
        if name in ("backward end", "optimizer step"):
            known["gradients"] = seen.gradients
        leaves = [Node(part, amount, "measured") for part, amount in known.items() if amount]
        rest = size - sum(leaf.bytes for leaf in leaves)
        if not leaves or rest < 0:
            return Node(name, size, "measured")
        if rest:
            leaves.append(Node(REST, rest, "measured"))
        return Node(name, size, "measured", children=tuple(leaves))


def _larger(*sizes: int | None) -> int | None:
    return max((size for size in sizes if size is not None), default=None)
