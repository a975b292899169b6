"""Many configurations at once: the code of an answer runs on sizes that each stand for a column of numbers."""

from __future__ import annotations

import math
from typing import Any


def hypotenuse(*sides: Any) -> Any:
    """`math.hypot`, also of what stands for many configurations."""
    try:
        return math.hypot(*sides)
    except TypeError:
        from vramwise.points.expression import Real

        return Real(math.hypot, *sides)
