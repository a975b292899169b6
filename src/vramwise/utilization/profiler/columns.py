"""Columns of numbers: NumPy where it is installed, else what stands in for it. Imported where one works with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["np"]
FEW_ROWS = 40_000
"""Up to so many GPU events and calls the stand-in takes no longer than loading NumPy, and 5 to 11 MiB less."""


def for_one_trace(rows: int) -> None:
    """Choose what is worked with while no other trace is read: what stands in for NumPy where the rows are few."""
    if rows <= FEW_ROWS and "np" not in globals() and "numpy" not in sys.modules:
        from vramwise.utilization.profiler import plain_columns

        globals()["np"] = plain_columns


@contextmanager
def chosen_anew() -> Iterator[None]:
    """Afterwards nothing is chosen: columns of one kind are never worked with beside those of the other."""
    try:
        yield
    finally:
        if globals().get("np") is not sys.modules.get("numpy"):
            globals().pop("np", None)


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
