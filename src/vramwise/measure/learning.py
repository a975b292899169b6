"""What a measured run teaches of its machine: context, NCCL and allocator slack, from counters that determine them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from vramwise.errors import UnknownNameError
from vramwise.hardware import find_installed_gpu
from vramwise.records import record
from vramwise.result import Result
from vramwise.site import Asked
from vramwise.site.run import Run, Term
from vramwise.units import GIB, MIB

PAGE_BYTES: Final = 2 * MIB
"""The driver counts a process's memory in pages of this size."""
NEARLY_FULL: Final = 0.9
"""Share of a card above which torch's allocator may have given segments back: it says less of a run with room."""


@record(kw_only=True)
class Counters:
    """One run's counters in bytes. `outside`: process memory less what torch reserved then; `context`: the same before
    anything ran; `total`: the card."""

    allocated: int | None
    reserved: int | None
    outside: int | None
    context: int | None
    total: int | None
    processes: int


def run_of_counters(
    seen: Counters, asked: Mapping[str, Asked], estimated: Result, facts: Mapping[str, Any], command: str,
    scenario: Mapping[str, object],
) -> tuple[Run | None, tuple[str, ...]]:  # fmt: skip
    """The run with the terms that its counters determine, and why others are not; None where nothing was learned.

    `asked` and `estimated` are of `terms_asked`: what the estimate of the scenario hangs on, and what it says without
    any site.
    """
    try:
        gpu = find_installed_gpu(str(facts["gpu"]), facts.get("gpu_total_bytes")).gpu.id
    except KeyError:
        return None, ("a CPU has neither a context nor a caching allocator",)
    except UnknownNameError:
        return None, (f"no card of vramwise's is called {facts['gpu']}",)
    unlearned: list[str] = []
    values = list(_values(seen, asked, estimated, unlearned))
    versions = {str(name): str(version) for name, version in dict(facts.get("versions", {})).items()}
    terms = tuple(
        Term(
            name, asked[name].program, versions.get(asked[name].program, versions.get("torch", "")), value, precision,
            asked[name].of, asked[name].ranks,
        )
        for name, value, precision in values
        if name in asked
    )  # fmt: skip
    if not terms:
        return None, tuple(unlearned)
    numbers = {"peak_allocated": seen.allocated, "peak_reserved": seen.reserved}
    measured = {name: size for name, size in numbers.items() if size is not None}
    key = json.dumps([time.time_ns(), gpu, measured, [term.value for term in terms]], default=str)
    return Run(
        id=sha256(key.encode()).hexdigest()[:12], command=command, gpu=gpu, terms=terms,
        driver=str(facts.get("driver") or ""), cuda=str(facts.get("cuda") or ""), scenario=scenario, measured=measured,
    ), tuple(unlearned)  # fmt: skip


def _values(
    seen: Counters, asked: Mapping[str, Asked], estimated: Result, unlearned: list[str]
) -> Iterator[tuple[str, float, float]]:
    """Name, value and precision of each term that the counters determine."""
    half_a_page = PAGE_BYTES / 2
    if seen.outside is None:
        unlearned.append("context: the driver does not tell what this process holds (pip install 'vramwise[gpu]')")
    elif seen.processes == 1:
        yield "context", seen.outside, half_a_page
    elif seen.context is not None:
        node = next((phase.components.find("NCCL") for phase in reversed(estimated.phases)), None)
        groups = 0 if node is None or "nccl" not in asked else round(node.bytes / asked["nccl"].shipped[1])
        if groups:
            yield "nccl", max(0, seen.outside - seen.context) / groups, half_a_page
    if "allocator_slack" in asked and seen.processes == 1:
        slack = _slack(seen, asked["allocator_slack"], estimated)
        if slack is None:
            unlearned.append("allocator slack: the run took less than 1 GiB, or the card was nearly full")
        else:
            yield "allocator_slack", slack, half_a_page / max(1, seen.allocated or 1)


LEAST_ALLOCATED: Final = GIB
"""Below it the allocator's segments (2 and 20 MiB) are a large part of what is reserved."""


def _slack(seen: Counters, asked: Asked, estimated: Result) -> float | None:
    """Reserved over allocated, measured over replayed: the error of what is allocated does not enter."""
    said = [estimated.quantities.get(name) for name in ("peak_reserved", "peak_allocated")]
    if not seen.reserved or not seen.allocated or said[0] is None or said[1] is None or not said[1].expected:
        return None
    if seen.allocated < LEAST_ALLOCATED:
        return None
    largest = max(seen.reserved, said[0].expected)
    if seen.total is not None and largest > NEARLY_FULL * seen.total:
        return None
    replayed = said[0].expected / said[1].expected / asked.shipped[1]
    return seen.reserved / seen.allocated / replayed if replayed > 0 else None


def counters_of(result: Result, facts: Mapping[str, Any], processes: int) -> Counters:
    """The counters of a measured run."""
    sizes = {name: int(quantity.expected) for name, quantity in result.quantities.items() if name != "oom"}
    return Counters(
        allocated=sizes.get("peak_allocated"), reserved=sizes.get("peak_reserved"), outside=sizes.get("non_torch"),
        context=facts.get("context_bytes"), total=facts.get("gpu_total_bytes"), processes=processes,
    )  # fmt: skip
