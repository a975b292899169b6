"""Components of Diffusers' pipelines against their real classes: parameters to one, live sets to half a percent.

The rows were recorded on fake CUDA tensors by benchmarks/oracles/diffusers/record.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import SourceError, UndescribedTypeError
from vramwise.models.diffusion.live_set import Given
from vramwise.models.diffusion.registry import component, described_classes

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "golden" / "diffusers_components.jsonl").read_text("utf-8").splitlines()
]


def given(inputs: dict[str, Any], dtype: str) -> Iterator[Given]:
    for name, shape in inputs.items():
        if isinstance(shape, dict):
            yield from given(shape, dtype)
        elif isinstance(shape, list) and isinstance(shape[0], str):
            yield Given(name, tuple(shape[1:]), shape[0])
        elif isinstance(shape, list) and isinstance(shape[0], int):
            yield Given(name, tuple(shape), dtype)


def named(row: dict[str, Any]) -> str:
    return f"{row['class']}-{row['parameters']}-{row['live_bytes']}"


@pytest.mark.parametrize("row", [row for row in ROWS if "switches" not in row], ids=named)
def test_a_component_is_its_class(row):
    found = component(row["class"], row["config"])
    assert found.model.num_parameters == row["parameters"]
    assert sum(one.numel for one in found.buffers) == row["buffers"]
    live = found.call(tuple(given(row["inputs"], row["dtype"])), row["dtype"])
    assert live.bytes == pytest.approx(row["live_bytes"], rel=0.005)


def test_every_described_class_has_a_row():
    assert {row["class"] for row in ROWS} == set(described_classes())


def test_a_layer_fetched_when_it_runs_takes_its_weights_then_and_the_next_ones_with_ahead():
    found = component("CLIPTextModel", {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4})
    ids = (Given("input_ids", (1, 7), "int64"),)
    weights = {one.name: 4 * one.numel for one in found.model.parameters}
    plain, fetched = found.call(ids, "fp32"), found.call(ids, "fp32", fetched=weights)
    ahead = found.call(ids, "fp32", fetched=weights, ahead=True)
    largest = weights["text_model.embeddings.token_embedding.weight"]
    assert largest <= fetched.bytes < plain.bytes + sum(weights.values())
    assert fetched.bytes < ahead.bytes < largest + plain.bytes + sum(weights.values())


def test_other_classes_and_switches_are_refused():
    with pytest.raises(UndescribedTypeError, match="Kandinsky"):
        component("Kandinsky", {})
    with pytest.raises(SourceError, match="resnet_time_scale_shift"):
        component("UNet2DConditionModel", {"resnet_time_scale_shift": "scale_shift"})
    with pytest.raises(SourceError, match="num_layers"):
        component("FluxTransformer2DModel", {"num_layers": "many"})
    with pytest.raises(SourceError, match="qk_norm"):
        component("SD3Transformer2DModel", {"qk_norm": "layer_norm"})
