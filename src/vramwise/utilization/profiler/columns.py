"""Columns of numbers: NumPy where it is installed, else what stands in for it. Imported where one works with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]
else:
    try:
        import numpy as np
    except ImportError:
        from vramwise.utilization.profiler import plain_columns as np

__all__ = ["np"]
