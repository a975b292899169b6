"""Columns of numbers: NumPy where it is installed, else what stands in for it. Imported where one works with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["np"]


def __getattr__(name: str) -> object:
    """`np`, loaded when it is first asked for: an import of this module alone loads nothing."""
    if name != "np":
        raise AttributeError(name)
    try:
        import numpy as found
    except ImportError:
        from vramwise.utilization.profiler import plain_columns as found  # type: ignore[no-redef]
    globals()["np"] = found
    return found
