"""How many random configs a family gets: a few in every run, as many as the profile says in a thorough one.

A normal run draws the first of those that a longer one draws, so that a smaller number is a part of what was held
before. Of ways in which every type can run (precisions) it takes one for each type, by a checksum of the type's name:
the types together have all of them. Each type has several tests with draws of their own (parameters, what autograd
saves on the CPU and on fake CUDA tensors, FLOPs, caches) and its published configs and recorded rows beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

from hypothesis import HealthCheck, settings

from by_turns import is_thorough

Way = TypeVar("Way")


def ways(every: Sequence[Way], name: str, turn: int = 0) -> Sequence[Way]:
    """The one of some ways in which a normal run takes what has this name, all of them in a thorough run.

    `turn` gives another way to another test of the same name.
    """
    if is_thorough():
        return every
    place = (crc32(name.encode()) + turn) % len(every)
    return every[place : place + 1]


def a_family(normal: int) -> settings:
    """`normal` examples, the same in every run; in a thorough run as many as its profile says, and others each time."""
    every = list(HealthCheck)
    if is_thorough():
        return settings(deadline=None, suppress_health_check=every)
    return settings(max_examples=normal, deadline=None, derandomize=True, suppress_health_check=every)
