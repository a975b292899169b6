"""What autograd keeps equals the recorded table, byte for byte."""

from __future__ import annotations

from itertools import islice

import pytest

pytest.importorskip("transformers")

from oracle_rows import rows, saved_bytes

from by_turns import is_thorough
from vramwise.models import supported_types

RECORDED_TYPES = sorted({row["model_type"] for row in rows()} & set(supported_types()))


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", RECORDED_TYPES)
def test_every_row_of_a_type_is_exact(model_type: str) -> None:
    """Every third row of a type in a normal run."""
    wrong = {
        row["id"]: saved_bytes(row) - row["total_bytes"]
        for row in islice(rows(model_type), 0, None, 1 if is_thorough() else 3)
        if saved_bytes(row) != row["total_bytes"]
    }
    assert not wrong, f"{len(wrong)} rows differ (by bytes): {dict(list(wrong.items())[:8])}"
