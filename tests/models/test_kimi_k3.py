"""Kimi K3, whose code is on the hub only: its tensors against headers of the published files."""

from __future__ import annotations

import pytest

from vramwise.errors import UnsupportedModelError
from vramwise.estimation import estimate
from vramwise.models import Model, describe
from vramwise.serving.common.storage import storage_of
from vramwise.sources import resolve

NAME = "moonshotai/Kimi-K3"
IN_FP32 = ("A_log", "dt_bias", "o_norm.weight", "conv1d.weight")
CORRECTION_BYTES = 4 * 896  # a buffer, which is no parameter


@pytest.fixture(scope="module")
def model() -> Model:
    return describe(resolve(NAME).config, NAME)


def test_a_layer_has_the_bytes_of_its_shard(model: Model) -> None:
    """Layer 1 in model-00002-of-000096.safetensors: 887,843,840 bytes of delta attention, 1,267,744,256 but experts."""
    layer = [p for p in model.parameters if p.name.startswith("language_model.model.layers.1.")]
    sizes = {p.name: p.numel * (4 if p.name.endswith(IN_FP32) else 2) for p in layer if p.part != "experts"}
    mixer = ("self_attn", "self_attention_res", "input_layernorm")
    assert sum(size for name, size in sizes.items() if any(part in name for part in mixer)) == 887_843_840
    assert sum(sizes.values()) + CORRECTION_BYTES == 1_267_744_256


def test_total_is_the_published_one(model: Model) -> None:
    """2,779.9 billion parameters, 104 billion active for a token without embedding and vision."""
    assert round(model.num_parameters / 1e9, 1) == 2779.9
    beside = model.parts["embedding"] + model.parts["vision"] + model.parts["projector"]
    assert round((model.num_active_parameters - beside) / 1e9) == 104


def test_only_routed_experts_are_quantized(model: Model) -> None:
    storage = storage_of(model, "auto", None, None)
    assert {p.part for p in model.parameters if storage.rule_for(p)} == {"experts"}


def test_latents_are_cached_in_every_fourth_layer_and_the_last(model: Model) -> None:
    latent = [i + 1 for i, cache in enumerate(model.caches) if cache.kind == "latent"]
    assert latent == [*range(4, 93, 4), 93]


def test_training_is_refused_in_a_sentence() -> None:
    with pytest.raises(UnsupportedModelError, match="residuals from earlier layers are not described yet"):
        estimate({"model": NAME, "task": "train"})
