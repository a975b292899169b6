"""Paths of other machines: which known model lies there."""

from __future__ import annotations

import pytest

from vramwise.errors import SourceError
from vramwise.sources import model_elsewhere, resolve


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/models/Qwen3-8B", "Qwen3-8B"), ("/data/models/Qwen3-8B/", "Qwen3-8B"), ("~/gpt2", "gpt2"),
        ("./gpt2", "gpt2"), ("C:\\models\\gpt2", "gpt2"), ("data/models/gpt2", "gpt2"),
        ("/x/Qwen2___5-3B", "Qwen2.5-3B"),
        ("s3://bucket/models/meta-llama--Llama-3.1-8B", "meta-llama/Llama-3.1-8B"), ("$HOME/gpt2", "gpt2"),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0123abcd", "Qwen/Qwen3-8B"),
    ],
)  # fmt: skip
def test_the_last_part_names_the_model(path: str, name: str) -> None:
    found = model_elsewhere(path)
    assert found is not None
    assert found[0] == name
    assert found[1].endswith(f"is not on this machine: taken as {name}")


@pytest.mark.parametrize(
    "path", ["gpt2", "someone/gpt2", "no-such-model", "/", "//", "\\", ".", "~", "", "/data/no-such"]
)
def test_what_is_no_path_or_names_no_known_model_is_left_alone(path: str) -> None:
    """Another organisation's repository is not the known model of that name."""
    assert model_elsewhere(path) is None


@pytest.mark.parametrize("address", ["s3://bucket/x", "pvc://claim", "GS://b/models/none"])
def test_a_store_is_said_to_be_one(address: str) -> None:
    with pytest.raises(SourceError, match="weights in a store are not looked at"):
        resolve(address)
