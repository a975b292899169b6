"""How many random configs a family gets: a few in every run, as many as the profile says in a thorough one.

A normal run draws the first of those that a longer one draws, so that a smaller number is a part of what was held
before. Each type has several tests with draws of their own (parameters, what autograd saves in three precisions on the
CPU and on fake CUDA tensors, FLOPs, caches) and its published configs and recorded rows beside them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

THOROUGH = "thorough"


def is_thorough() -> bool:
    """Whether this run is the scheduled one."""
    return settings.get_current_profile_name() == THOROUGH


def a_family(normal: int) -> settings:
    """`normal` examples, the same in every run; in a thorough run as many as its profile says, and others each time."""
    every = list(HealthCheck)
    if is_thorough():
        return settings(deadline=None, suppress_health_check=every)
    return settings(max_examples=normal, deadline=None, derandomize=True, suppress_health_check=every)
