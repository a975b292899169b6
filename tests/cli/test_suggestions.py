"""Flash attention is named where SDPA gets a mask, and not where SDPA saves as much without a package."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.cli.screens.suggestions import suggestions
from vramwise.estimation import estimate
from vramwise.scenario import Scenario


def changes(**train: Any) -> list[str]:
    """One row of 32,768 tokens with adapters, checkpointed layers and a loss without logits."""
    settings = {"method": "lora", "checkpointing": "full", "loss": "fused-linear", "sequence_length": 32768, **train}
    scenario = Scenario.from_dict({"model": "Qwen/Qwen2.5-0.5B", "task": "train", "train": settings})
    return [found.change for found in suggestions(scenario, estimate(scenario), estimate)]


@pytest.mark.parametrize(("settings", "named"), [
    ({"packing": True, "document_mask": True}, {"attention flash"}),
    ({"packing": True, "document_mask": True, "precision": "fp32"}, set()),
    ({"packing": True, "attention": "eager"}, {"attention sdpa"}),
    ({"packing": True}, set()),
])  # fmt: skip
def test_what_is_named_of_attention(settings: dict[str, Any], named: set[str]) -> None:
    assert {change for change in changes(**settings) if change.startswith("attention")} == named
