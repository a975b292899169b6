"""One measured case held against its estimate, quantity by quantity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from vramwise.accuracy.cases import Case
from vramwise.intervals import judged_by, left_out
from vramwise.measure.difference import without_workspaces
from vramwise.records import record
from vramwise.result import Quantity, Result
from vramwise.site import chosen_site

Estimate = Callable[[Mapping[str, object]], Result]
"""What turns a scenario into a result (`vramwise.estimation.estimate`)."""


@record
class Comparison:
    """A measured number beside the estimated one and its interval.

    error = (expected − measured) / |measured|, so a negative error is an estimate that is too low;
    infinite where nothing was measured and something was expected. Engines log a cache that finds no room, and graphs
    whose capture frees more than it takes, as negative sizes: there is nothing of them, whatever the amount.
    """

    case: Case
    quantity: str
    measured: float
    low: float
    expected: float
    high: float

    @property
    def error(self) -> float:
        return _relative(self.expected - max(0, self.measured), self.measured)

    @property
    def width(self) -> float:
        """Width of the interval in units of what was measured: (high − low) / |measured|."""
        return _relative(self.high - self.low, self.measured)

    @property
    def in_interval(self) -> bool:
        """Whether low–high meets what was measured, give or take half a unit of its last printed digit."""
        rounding = self.case.rounding.get(self.quantity, 0)
        measured = max(0, self.measured)
        return self.low <= measured + rounding and self.high >= measured - rounding

    @property
    def above_interval(self) -> bool:
        """Whether more was measured than the interval holds: the dangerous side of a size."""
        return self.high < max(0, self.measured) - self.case.rounding.get(self.quantity, 0)


@record
class OomComparison:
    """Whether a run went out of memory beside what was expected of it."""

    case: Case
    measured: bool
    expected: bool
    probability: float | None = None
    """Of fitting, as the verdict says it."""

    @property
    def false_fit(self) -> bool:
        """Expected to fit, went out of memory: the dangerous error."""
        return self.measured and not self.expected

    @property
    def false_oom(self) -> bool:
        return self.expected and not self.measured


@record
class Failure:
    """Why a case has no estimate."""

    type: str
    message: str


@record
class Outcome:
    """What became of one case: every measured quantity is compared, or missing, or the estimate failed."""

    case: Case
    comparisons: tuple[Comparison, ...] = ()
    oom: OomComparison | None = None
    missing: tuple[str, ...] = ()
    failure: Failure | None = None


def compare(case: Case, estimate: Estimate) -> Outcome:
    """Estimate the case's scenario and hold each measured quantity against it.

    `rig_floor_bytes` is added to the estimated `nvidia_smi`, because the counter saw the harness too.
    An estimate that raises is kept as a `Failure` with the error's type, whatever the type: one case never
    stops the others.
    """
    try:
        # a case is somebody else's machine, and no interval may know it
        with chosen_site(off=True), judged_by(left_out(case.source_name)):
            result = estimate(case.scenario)
        quantities = {name: result.quantities[name] for name in case.measured if name in result.quantities}
    except Exception as error:  # a defect in one estimate must show in the table, not end it
        return Outcome(case, failure=Failure(type(error).__name__, str(error)))
    if case.extra.get("device") == "cpu":  # a run of `vramwise measure --device cpu`: tensors alone
        kept = ("params", "weights", "kv_cache_bytes")
        quantities = {name: q for name, q in quantities.items() if name in kept}
        if "peak_allocated" in case.measured:
            quantities["peak_allocated"] = without_workspaces(result)
    comparisons: list[Comparison] = []
    missing: list[str] = []
    oom: OomComparison | None = None
    for name, measured in case.measured.items():
        estimated = quantities.get(name)
        if estimated is None:
            missing.append(name)
        elif name == "oom":
            probability = result.verdict.probability if result.verdict is not None else None
            oom = OomComparison(case, bool(measured), bool(estimated.expected), probability)
        else:
            comparisons.append(_comparison(case, name, measured, estimated))
    return Outcome(case, tuple(comparisons), oom, tuple(missing))


def _comparison(case: Case, quantity: str, measured: float, estimated: Quantity) -> Comparison:
    floor = case.rig_floor_bytes if quantity == "nvidia_smi" else 0
    return Comparison(
        case, quantity, measured, estimated.low + floor, estimated.expected + floor, estimated.high + floor
    )


def _relative(difference: float, measured: float) -> float:
    if measured:
        return difference / abs(measured)
    return math.copysign(math.inf, difference) if difference else 0.0
