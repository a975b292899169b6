"""Makes this folder's own modules importable by its tests."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="module")
def what_is_there_stays() -> None:
    """Before each run Python looks for garbage: not in all that other tests and libraries left, a second each time."""
    gc.collect()
    gc.freeze()
