"""Vision-language models whose code is not in transformers: their towers and text parts against transformers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
import transformers

from vramwise.errors import SourceError, UnsupportedModelError
from vramwise.models import describe
from vramwise.models.model import Model
from vramwise.sources import resolve

# What the parts that are held below add up to; no published total was at hand, so these only keep the sum from moving.
TOTALS = {
    "OpenGVLab/InternVL2-2B": 2_205_754_368,
    "microsoft/Phi-3.5-vision-instruct": 4_146_621_440,
    "openbmb/MiniCPM-V-2_6": 8_099_175_152,
}


@pytest.mark.parametrize("name", TOTALS)
def test_totals_stay(name: str) -> None:
    assert describe(resolve(name).config).num_parameters == TOTALS[name]


@pytest.mark.parametrize(
    ("name", "text_type"), [("OpenGVLab/InternVL2-2B", "internlm2"), ("openbmb/MiniCPM-V-2_6", "qwen2")]
)
def test_text_part_is_the_language_model(name: str, text_type: str) -> None:
    config = resolve(name).config
    text = describe({**config.get("llm_config", config), "model_type": text_type})
    whole = describe(config)
    own = [p for block in whole.blocks if block.modality == "text" for p in block.parameters]
    assert [p.shape for p in own] == [p.shape for p in text.all_parameters]
    assert {p.name.split(".")[0] for p in own} <= {"language_model", "llm"}
    assert whole.caches == text.caches


def tower(model: Model, prefix: str) -> dict[str, tuple[int, ...]]:
    return {p.name.removeprefix(prefix): p.shape for p in model.parameters if p.name.startswith(prefix)}


def shapes_of(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def test_tower_of_phi_3_vision_is_clip() -> None:
    config = transformers.CLIPVisionConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, image_size=336,
        patch_size=14,
    )  # fmt: skip
    with torch.device("meta"):
        clip = shapes_of(transformers.CLIPVisionModel(config))
    own = tower(
        describe(resolve("microsoft/Phi-3.5-vision-instruct").config),
        "model.vision_embed_tokens.img_processor.vision_model.",
    )
    assert own == {name.removeprefix("vision_model."): shape for name, shape in clip.items()}


def test_tower_of_minicpm_v_is_siglip() -> None:
    config = transformers.SiglipVisionConfig(
        hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, image_size=980,
        patch_size=14, vision_use_head=False,
    )  # fmt: skip
    with torch.device("meta"):
        siglip = shapes_of(transformers.SiglipVisionModel(config))
    own = tower(describe(resolve("openbmb/MiniCPM-V-2_6").config), "vpm.")
    assert own == {name.removeprefix("vision_model."): shape for name, shape in siglip.items()}


def small_internvl(**vision: Any) -> Model:
    llm = {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 50,
    }  # fmt: skip
    sizes = {
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4,
        "image_size": 16, "norm_type": "layer_norm", "qk_normalization": False, "qkv_bias": True,
    }  # fmt: skip
    return describe({"model_type": "internvl_chat", "llm_config": llm, "vision_config": {**sizes, **vision}})


@pytest.mark.parametrize(
    ("switch", "difference"),
    [
        ({"qkv_bias": False}, -2 * 48),
        ({"qk_normalization": True}, 2 * 2 * 16),
        ({"norm_type": "rms_norm"}, -2 * 2 * 16),
        ({"num_hidden_layers": 3}, 16 * 48 + 48 + 16 * 16 + 16 + 2 * 16 * 24 + 24 + 16 + 6 * 16),
        ({"image_size": 32}, 48 * 16),
    ],
)
def test_switches_of_intern_vit(switch: dict[str, Any], difference: int) -> None:
    assert small_internvl(**switch).num_parameters - small_internvl().num_parameters == difference


def test_parts_are_counted_apart() -> None:
    parts = describe(resolve("OpenGVLab/InternVL2-2B").config).parts
    assert parts["vision"] == 304_012_288
    assert parts["projector"] == 8192 + 4096 * 2048 + 2048 + 2048 * 2048 + 2048


def test_other_versions_and_unknown_language_models_are_refused() -> None:
    config = resolve("openbmb/MiniCPM-V-2_6").config
    with pytest.raises(SourceError, match=r"version 2\.6"):
        describe({**config, "version": 4.0})
    with pytest.raises(UnsupportedModelError, match="nothing"):
        describe({"model_type": "internvl_chat", "llm_config": {"model_type": "nothing"}})
