"""The tool that rebuilds the catalog: what it keeps of a config.json, and that folded names lose nothing."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st


def _tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "build_catalog.py"
    spec = importlib.util.spec_from_file_location("build_catalog", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _tool()


def unfolded(names: list[str]) -> set[str]:
    """Every module name that folded names stand for."""
    found: set[str] = set()
    for name in names:
        ranges = re.search(r"\[([\d,-]*)\]", name)
        if ranges is None:
            found.add(name)
            continue
        for part in ranges.group(1).split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            found |= {name.replace(ranges.group(), str(number), 1) for number in numbers}
    return found


def test_folded_names_gather_layer_numbers() -> None:
    names = ["lm_head", *(f"model.layers.{i}.mlp.gate" for i in (0, 1, 2, 5)), "model.layers.7*"]
    assert tool.folded(names) == ["lm_head", "model.layers.[0-2,5].mlp.gate", "model.layers.[7]*"]


@given(
    st.lists(
        st.builds(
            "model.layers.{}.{}".format, st.integers(0, 99), st.sampled_from(["mlp.gate", "experts.3.w1", "self_attn*"])
        )
    )
)
def test_folding_loses_nothing(names: list[str]) -> None:
    assert unfolded(tool.folded(names)) == set(names)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"hidden_size": 8, "bos_token_id": 1, "rope_theta": 1e6, "rms_norm_eps": 1e-6}, {"hidden_size": 8}),
        ({"attention_dropout": 0.1, "sliding_window": None}, {"attention_dropout": 0.1, "sliding_window": None}),
        ({"text_config": {"hidden_size": 8, "use_cache": True}}, {"text_config": {"hidden_size": 8}}),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 32}},
            {"rope_scaling": {"rope_type": "yarn", "factor": 4}},
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "version": "1"}},
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        ),
    ],
)
def test_what_is_kept(config: dict[str, object], kept: dict[str, object]) -> None:
    assert tool.essentials(config) == kept
