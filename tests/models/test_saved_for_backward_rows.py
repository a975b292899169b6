"""What autograd keeps equals the recorded table, byte for byte."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from oracle_rows import rows, saved_bytes

from vramwise.models import supported_types

RECORDED_TYPES = sorted({row["model_type"] for row in rows()} & set(supported_types()))


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", RECORDED_TYPES)
def test_every_row_of_a_type_is_exact(model_type: str) -> None:
    wrong = {
        row["id"]: saved_bytes(row) - row["total_bytes"]
        for row in rows(model_type)
        if saved_bytes(row) != row["total_bytes"]
    }
    assert not wrong, f"{len(wrong)} rows differ (by bytes): {dict(list(wrong.items())[:8])}"
