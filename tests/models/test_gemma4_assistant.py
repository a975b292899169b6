"""Gemma 4's assistants, whose classes build once the check that no layer of theirs passes is set aside."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers_models import model_config, parameter_table

from vramwise.errors import UnsupportedModelError
from vramwise.models import describe
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

TYPES = ("gemma4_assistant", "gemma4_unified_assistant")


@st.composite
def assistant(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    groups = draw(st.sampled_from([1, 2]))
    text: dict[str, Any] = {
        "model_type": model_type.replace("assistant", "text"),
        "num_hidden_layers": draw(st.integers(1, 4)),
        "hidden_size": draw(st.sampled_from([16, 24])),
        "num_attention_heads": groups * 2,
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([8, 16])),
        "global_head_dim": draw(st.sampled_from([16, 32])),
        "intermediate_size": draw(st.integers(5, 20)),
        "vocab_size": 24,
        "attention_bias": draw(st.booleans()),
    }
    if model_type == "gemma4_assistant":
        text |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    else:
        text["use_double_wide_mlp"] = draw(st.booleans())
    return {
        "model_type": model_type,
        "text_config": text,
        "backbone_hidden_size": draw(st.sampled_from([12, 20])),
        "use_ordered_embeddings": draw(st.booleans()),
        "num_centroids": 4,
        "tie_word_embeddings": draw(st.booleans()),
    }


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", TYPES)
def test_names_and_shapes(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unified = "unified" in model_type
    text_class = transformers.Gemma4UnifiedTextConfig if unified else transformers.Gemma4TextConfig
    every = property(lambda config: ["reuse"] * config.num_hidden_layers)
    monkeypatch.setattr(text_class, "kv_sharing_modes", every)

    @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(assistant(model_type))
    def same(values: dict[str, Any]) -> None:
        config = model_config(values)
        with torch.device("meta"):
            shapes, ties = parameter_table(transformers.AutoModelForCausalLM.from_config(config))
        described = describe({**config.to_dict(), "model_type": model_type})
        assert {p.name: p.shape for p in described.all_parameters} == shapes
        assert {p.name for p in described.all_parameters if p.tied_to} == set(ties)

    same()


@pytest.mark.parametrize("model_type", TYPES)
def test_training_is_refused_in_one_line(model_type: str) -> None:
    model = describe({"model_type": model_type, "text_config": {"num_hidden_layers": 1}})
    assert not any(cache.elements(9) for cache in model.caches)
    with pytest.raises(UnsupportedModelError, match="a target model's keys"):
        record_forward(model, Execution(), batch=1, sequence=2)
