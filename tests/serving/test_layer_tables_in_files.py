"""GGUF files with a table of embeddings for every layer, as logs of published files print their sizes and types."""

from __future__ import annotations

from collections import Counter

import pytest

from vramwise.models import describe
from vramwise.serving.common.gguf.quantizer import TypedTensor, typed_tensors
from vramwise.sources import resolve
from vramwise.units import GIB


def tensors(name: str, file_type: str) -> tuple[TypedTensor, ...]:
    return typed_tensors(describe(resolve(name, network=False).config, name), file_type, False)


def kinds(name: str, file_type: str = "Q4_K_M") -> dict[str, str]:
    return {one.tensor.name: one.type.name for one in tensors(name, file_type)}


def test_the_layers_table_of_gemma_4_has_the_outputs_type() -> None:
    """3.21 GiB printed, of a mix that has 35 values in Q6_K and 70 tensors in Q5_K where the plain one has fewer."""
    found = kinds("google/gemma-4-E2B-it")
    assert (found["token_embd"], found["per_layer_token_embd"], found["per_layer_model_proj"]) == (
        "Q6_K",
        "Q6_K",
        "BF16",
    )
    size = sum(one.bytes for one in tensors("google/gemma-4-E2B-it", "Q4_K_M"))
    assert size / GIB == pytest.approx(3.21, rel=0.015)


def test_files_of_gemma_3n_are_older() -> None:
    """422 tensors in f32, 108 in f16, 282 in Q4_K and 35 in Q6_K are printed of E4B."""
    found = Counter(one.type.name for one in tensors("google/gemma-3n-E4B", "Q4_K_M") if one.tensor.name != "kept")
    assert kinds("google/gemma-3n-E4B")["per_layer_token_embd"] == "Q4_K"
    # the converter joins three projections to one tensor, twice
    assert found["BF16"] == 108 + 2 * 2


def test_a_file_of_experts_is_as_printed() -> None:
    """lmstudio-community's Q4_K_M of Gemma 4 26B: 15.63 GiB, 32 tensors in Q5_0, 28 in Q8_0, 14 in Q6_K."""
    found = tensors("google/gemma-4-26B-A4B-it", "Q4_K_M")
    assert sum(one.bytes for one in found) / GIB == pytest.approx(15.63, abs=0.005)
    counts = Counter(one.type.name for one in found)
    assert (counts["Q5_0"], counts["Q8_0"], counts["Q6_K"]) == (32, 28, 14)
