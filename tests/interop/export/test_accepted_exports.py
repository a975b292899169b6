"""What is written for a tool is what its own parser took when record_accepted.py held it against that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from record_accepted import GOLDEN, row_of, scenarios

ROWS = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['tool']}-{place}" for place, row in enumerate(ROWS)])
def test_what_is_written_is_what_the_tools_parser_took(row: dict[str, Any]) -> None:
    assert row_of(row["tool"], row["scenario"], row["version"]) == row


@pytest.mark.parametrize("tool", sorted({row["tool"] for row in ROWS}))
def test_every_scenario_of_a_tool_is_recorded(tool: str) -> None:
    assert scenarios(tool) == [row["scenario"] for row in ROWS if row["tool"] == tool]
