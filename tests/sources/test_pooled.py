"""A folder that sentence-transformers wrote is served by vLLM as an embedder, without a head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramwise.estimation import estimate

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
    "tie_word_embeddings": False, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
HEAD = 151_936 * 1024 * 2


def weights(folder: Path, **settings: object) -> float:
    scenario = {"model": str(folder), "task": "serve", "gpu": "h100", "serve": {"engine": "vllm", **settings}}
    return estimate(scenario).quantities["weights"].expected


def test_modules_with_a_pooling_are_an_embedder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    whole = weights(tmp_path)
    embedder = tmp_path / "embedder"
    embedder.mkdir()
    (embedder / "config.json").write_text(json.dumps(CONFIG))
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Normalize")]
    (embedder / "modules.json").write_text(json.dumps(modules))
    assert weights(embedder) == whole - HEAD
    assert weights(embedder, pooling=False) == whole


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", ["Qwen3ForSequenceClassification", "Qwen3ForRewardModel", "Qwen3Model"])
def test_classes_without_a_head(engine: str, name: str) -> None:
    def weights_of(architecture: str) -> float:
        model = {**CONFIG, "architectures": [architecture]}
        scenario = {"model": model, "task": "serve", "gpu": "h100", "serve": {"engine": engine}}
        return estimate(scenario).quantities["weights"].expected

    assert weights_of(name) == weights_of("Qwen3ForCausalLM") - HEAD


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"type": "sentence_transformers.models.Transformer"}]', "\xff"])
def test_other_modules_say_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    whole = weights(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(CONFIG))
    (other / "modules.json").write_bytes(content.encode("latin-1"))
    assert weights(other) == whole
