"""Whose files a model's name means, before anybody says which engine reads them."""

from __future__ import annotations

import pytest

from vramwise.engines import engine_of_files


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("bartowski/Llama-3.1-8B-Instruct-GGUF:Q4_K_M", "llama.cpp"),
        ("qwen3:8b-q8_0", "ollama"),
        ("mlx-community/Qwen3-8B-4bit", "mlx"),
        ("meta-llama/Llama-3.1-8B", None),
        ("Qwen/Qwen3-8B-AWQ", None),
        ({"model_type": "llama", "gguf_tensors": []}, "llama.cpp"),
        ({"model_type": "llama"}, None),
    ],
)
def test_a_name_of_files_means_their_engine(model: object, engine: str | None) -> None:
    found = engine_of_files(model)
    assert (found.name if found is not None else None) == engine
