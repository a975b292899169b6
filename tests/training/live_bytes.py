"""Bytes alive on the CPU while a function runs, as torch's profiler sees its allocator."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any


def most_bytes(function: Callable[[], Any]) -> tuple[Any, int]:
    """What `function` returns, and the most bytes that were alive at once beyond what was there before."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        returned = function()
    recorded = profiled.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((event.start_ns(), event.nbytes()) for event in recorded if event.name() == "[memory]")
    return returned, max(accumulate(change for _, change in changes), default=0)


def peak_bytes(function: Callable[[], object]) -> int:
    """The most bytes that were alive at once beyond what was there before; runs `function` twice."""
    function()
    return most_bytes(function)[1]


def kept_bytes(function: Callable[[], object]) -> int:
    """Bytes beyond those from before that stay alive with what `function` returns; runs it twice."""
    from torch.profiler import ProfilerActivity, profile

    function()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        returned = function()
    recorded = profiled.profiler.kineto_results.events()  # type: ignore[union-attr]
    assert returned is not None
    return sum(event.nbytes() for event in recorded if event.name() == "[memory]")
