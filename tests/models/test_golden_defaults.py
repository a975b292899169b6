"""Totals of the classes' default configs, as the causal language models of the committed table."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from transformers_models import model_config

from vramwise.models import describe, supported_types

GOLDEN = Path(__file__).parent.parent / "golden" / "default_parameter_counts.csv"

with GOLDEN.open(newline="") as lines:
    ROWS = [row for row in csv.DictReader(lines) if row["status"] == "ok"]
DESCRIBED = [row for row in ROWS if row["model_type"] in supported_types()]


@pytest.mark.parametrize("row", DESCRIBED, ids=lambda row: row["model_type"])
def test_count_of_the_default_causal_model_is_exact(row: dict[str, str]) -> None:
    config = model_config({"model_type": row["model_type"]}).to_dict()
    described = describe({**config, "model_type": row["model_type"], "architectures": [row["class"]]})
    assert described.num_parameters == int(row["total"])
