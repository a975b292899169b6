"""Images under tensor parallelism: towers are whole on every rank, the language model is cut."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError
from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution, Images
from vramwise.models.step import record_forward
from vramwise.scenario import TrainSettings
from vramwise.sources import resolve
from vramwise.training.layout.sharding import local_model
from vramwise.training.recipe.images import cuts_towers, with_whole_towers

LLAVA: dict[str, Any] = {
    "model_type": "llava",
    "text_config": {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 24,
    },
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 3,
        "num_attention_heads": 3, "image_size": 12, "patch_size": 4,
    },
}  # fmt: skip
AXES = with_rounded_axes(batch=2, sequence=16)


def saved(config: dict[str, Any], images: Images | None, ranks: int) -> dict[str, int]:
    """Bytes kept by text and by what is not, on one rank."""
    train = TrainSettings(tensor_parallel_size=ranks, framework="transformers")
    model = local_model(with_whole_towers(train, describe(config)), ranks, 1)
    found: dict[str, int] = {}
    for run in record_forward(model, Execution(images=images), batch=2, sequence=16).runs:
        found[run.modality] = found.get(run.modality, 0) + evaluate(run.saved_bytes, AXES)
    return found


def test_a_tower_keeps_the_same_on_every_rank_and_text_what_it_keeps_alone() -> None:
    images = Images(1, 3, 3, tokens=9)
    alone, cut = saved(LLAVA, images, 1), saved(LLAVA, images, 2)
    assert cut["image"] == alone["image"]
    assert cut["text"] == saved(LLAVA, None, 2)["text"] < alone["text"]


def test_weights_of_a_tower_are_whole() -> None:
    model = describe({"model_type": "llava"})
    towers = sum(model.parts[part] for part in ("vision", "projector"))
    text = model.num_parameters - towers
    weights = [
        estimate(
            {"model": {"model_type": "llava"}, "task": "train", "num_gpus": 2,
             "train": {"tensor_parallel_size": 2, "framework": framework, "param_dtype": "fp32"}}
        ).quantities["weights"].expected
        for framework in ("transformers", "megatron")
    ]  # fmt: skip
    assert weights == pytest.approx([4 * towers + 2 * text] * 2, rel=0.005)


def test_towers_that_are_cut_are_one_line() -> None:
    """Llama 4's vision config has a plan (transformers 5.23); Megatron's models leave its tower whole."""
    found = resolve("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    model = describe(found.config, found.id)
    cut = TrainSettings(tensor_parallel_size=2, framework="transformers")
    assert cuts_towers(cut, model)
    assert not cuts_towers(cut.replace(framework="megatron"), model)
    train = {"tensor_parallel_size": 2, "framework": "transformers", "sequence_length": 8192, "images_per_sequence": 1}
    with pytest.raises(ScenarioError, match="cuts the tower"):
        estimate({"model": found.id, "task": "train", "num_gpus": 2, "train": train})


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-Omni-7B", "Qwen/Qwen3-Omni-30B-A3B-Instruct"])
def test_megatrons_omni_models_are_the_thinker_alone(name: str) -> None:
    """mcore-bridge 1.6.5 mm_gpts/qwen.py and qwen3_omni.py: `thinker.audio_tower`, `thinker.visual` and its layers."""
    found = resolve(name)
    model = describe(found.config, found.id)
    held = {}
    for framework in ("transformers", "megatron"):
        train = {"framework": framework, "precision": "bf16", "method": "lora", "lora_targets": ["q_proj"]}
        held[framework] = estimate({"model": name, "task": "train", "train": train}).quantities["params"].expected
    assert held["transformers"] == model.num_parameters
    assert held["megatron"] == model.num_parameters - model.parts["speech"]
