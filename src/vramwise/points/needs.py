"""What many configurations of one scenario need."""

from __future__ import annotations

from vramwise.points.columns import Column
from vramwise.records import record


@record
class ManyNeeds:
    """Columns with a number for each configuration, the same as an estimate of its own without a replay has.

    `needed_bytes` is the expected need, `high_bytes` the end of its interval where that was asked for; `phases` says
    by `names` which moment is the largest, below 0 for a configuration that an estimate of its own has to answer or
    refuse. `refusals`: why a length is none that the scenario can have, by length. `usable_bytes`: of the card;
    `runs`: whether what is asked for has kernels on it.
    """

    peak_allocated_bytes: Column | None
    needed_bytes: Column
    high_bytes: Column | None
    phases: Column
    names: tuple[str, ...]
    refusals: dict[int, str]
    usable_bytes: int | None
    runs: bool
