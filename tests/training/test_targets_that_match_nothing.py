"""An expression of targets that matches no module says what the modules' paths are."""

from __future__ import annotations

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError


def test_an_expression_for_older_paths_says_what_paths_are():
    """transformers 5.23 modeling_voxtral.py: `model.language_model.layers`, before `language_model.model.layers`."""
    table = {"method": "lora", "lora_targets": [r"language_model.model.layers.[\d]+.(mlp|self_attn).(up|q)_proj"]}
    with pytest.raises(ScenarioError) as problem:
        estimate({"model": "mistralai/Voxtral-Mini-3B-2507", "task": "train", "train": table})
    assert "matches no whole path; in transformers 5 they are such as model." in str(problem.value)
