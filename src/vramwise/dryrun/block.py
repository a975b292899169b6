"""`with vramwise.dry_run(gpu="h100"):` the code of a block on a card that is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vramwise.dryrun.card import Card
from vramwise.dryrun.launch import need_torch
from vramwise.dryrun.outcome import context_node, workspace_bytes
from vramwise.errors import VramwiseError
from vramwise.hardware import find_gpu
from vramwise.hardware.room import room_of
from vramwise.scenario import Scenario
from vramwise.units import format_bytes

_DEVICE_WORDS = "the block"


@dataclass(slots=True)
class DryBlock:
    """What a block took; filled in when it is over.

    `peak_allocated` and `peak_reserved` are torch's counters, `total_needed` the first with the CUDA context,
    `room_bytes` what the card has for a process, `who` the allocations at the peak by category.
    """

    gpu: str | None
    room_bytes: int | None
    peak_allocated: int = 0
    peak_reserved: int = 0
    total_needed: int = 0
    who: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def fits(self) -> bool | None:
        """Whether it fits on the card; None without one."""
        return None if self.room_bytes is None else self.total_needed <= self.room_bytes

    def __str__(self) -> str:
        needed, peak = format_bytes(self.total_needed), format_bytes(self.peak_allocated)
        said = f"needs {needed} (allocated {peak}, reserved {format_bytes(self.peak_reserved)})"
        if self.room_bytes is not None:
            said += f", {'fits in' if self.fits else 'does not fit in'} {format_bytes(self.room_bytes)}"
        return said

    def largest(self, count: int = 5) -> list[str]:
        """The largest places at the peak, in words."""
        groups = [(name, group) for name, found in self.who.items() for group in found if group["operation"]]
        groups.sort(key=lambda pair: -pair[1]["bytes"])
        return [
            f"{format_bytes(group['bytes'], 'auto')} {name}: "
            + " ".join(filter(None, (group["module"], group["operation"], group["line"])))
            for name, group in groups[:count]
        ]


@contextmanager
def dry_run(
    gpu: str | None = None, *, memory: int | None = None, assume: Mapping[str, object] | None = None
) -> Iterator[DryBlock]:
    """Run the code of the block on fake CUDA tensors: shapes and no values, no GPU, every allocation replayed.

    `gpu`: the card that `torch.cuda` describes; `memory`: bytes of the card, where they are not the catalog's;
    `assume`: values that the code decides by (`{"model.py:31": 0.5, "nonzero": "50%"}`). Raises
    VramwiseError without torch, for a version that cannot be stood in for, and for code that reads a value.

    >>> with dry_run(gpu="h100") as seen:  # doctest: +SKIP
    ...     model = Net().cuda()
    ...     model(torch.randn(8, 512, device="cuda")).sum().backward()
    >>> print(seen)  # doctest: +SKIP
    needs 1.02 GiB (allocated 0.41 GiB, reserved 0.44 GiB), fits in 79.20 GiB
    """
    need_torch("torch")
    from vramwise.dryrun.assumed import Assumptions, read_assumptions
    from vramwise.dryrun.detail import groups_of
    from vramwise.dryrun.moments import peak_span
    from vramwise.dryrun.recorder import replayed
    from vramwise.dryrun.scenario import card_of
    from vramwise.dryrun.session import Session, is_watching, watching

    if is_watching():
        raise VramwiseError("dry_run: one block at a time: this one is inside another")
    row = find_gpu(gpu).gpu if gpu is not None else None
    room = None
    if row is not None or memory is not None:
        asked = {"model": _DEVICE_WORDS, "task": "load", "gpu": gpu, "gpu_total_bytes": memory}
        room = room_of(Scenario.from_dict({key: value for key, value in asked.items() if value is not None}), row)
    answers = card_of(row, memory)
    assumed = Assumptions(read_assumptions(f"{key}={value}" for key, value in (assume or {}).items()))
    session = Session(
        Card(answers["name"], answers["total_bytes"], answers["capability"]), workspace_bytes(row), assumed=assumed
    )
    seen = DryBlock(None if row is None else row.id, None if room is None else room.usable_bytes)
    try:
        with watching(session):
            session.watcher.mark("1|block")
            yield seen
    finally:
        session.watcher.mark("")
        replay = replayed(session.watcher.log)
        seen.peak_allocated, seen.peak_reserved = replay.peak_allocated, replay.peak_reserved
        seen.total_needed = replay.peak_allocated + context_node(row).bytes
        span = peak_span(replay)
        seen.who = groups_of(span.at_peak) if span is not None else {}
