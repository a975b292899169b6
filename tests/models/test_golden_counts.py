"""Parameter counts of named models, without torch: every catalog model whose family is described."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from vramwise.models import describe, supported_types
from vramwise.models.model import Model
from vramwise.models.operations.attention import Attention
from vramwise.sources import resolve

GOLDEN = Path(__file__).parent.parent / "golden" / "parameter_counts.csv"


def rows() -> list[dict[str, str]]:
    with GOLDEN.open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["status"].partition(":")[0] in ("ok", "equiv")]


def text_parameters(model: Model) -> int:
    """Parameters of the blocks that run for text."""
    texts = (block for block in model.blocks if block.modality == "text")
    return sum(parameter.numel for block in texts for parameter in block.parameters if parameter.tied_to is None)


DESCRIBED = [row for row in rows() if row["model_type"] in supported_types()]


def test_most_of_the_table_is_described() -> None:
    assert len(DESCRIBED) >= 190


@pytest.mark.parametrize("row", DESCRIBED, ids=lambda row: row["id"])
def test_count_is_exact(row: dict[str, str]) -> None:
    found = resolve(row["id"])
    model = describe(found.config, found.id)
    counted = text_parameters(model) if "TEXT PART ONLY" in row["status"] else model.num_parameters
    assert counted == int(row["total"])


@pytest.mark.parametrize("row", DESCRIBED, ids=lambda row: row["id"])
def test_every_layer_that_attends_keeps_a_cache(row: dict[str, str]) -> None:
    model = describe(resolve(row["id"]).config)
    attending = sum(op.causal for op in model.operations(Attention))
    assert len(model.caches) >= min(attending, model.num_layers) or model.head in ("masked-lm", "none", "contrastive")
