"""The most bytes alive in a step with images, against the real modules' on the CPU."""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from live_bytes import peak_bytes

pytest.importorskip("transformers")
sys.path.append(str(Path(__file__).parent.parent / "models"))

import frame_image_batches
import padded_image_batches
from image_batches import Case, image_inputs
from test_saved_for_backward import completed
from transformers_models import real_model

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.job import job_of
from vramwise.training.recipe.images import images_of

TEXT = {"hidden_size": 256, "intermediate_size": 640, "head_dim": 64, "vocab_size": 512}
TOWER = {"hidden_size": 192, "intermediate_size": 640}
# Wide enough that the 512 bytes to which CUDA rounds every tensor do not matter.
WIDER: dict[str, tuple[Case, dict[str, Any], dict[str, Any]]] = {
    "glm4v": (
        frame_image_batches.CASES["glm4v"],
        {**TEXT, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]}},
        {**TOWER, "num_heads": 3, "out_hidden_size": 256, "patch_size": 14, "image_size": 336},
    ),
    "gemma4": (
        padded_image_batches.CASES["gemma4"],
        {**TEXT, "global_head_dim": 64, "vocab_size_per_layer_input": 512},
        {**TOWER, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 64, "patch_size": 16,
         "pooling_kernel_size": 3, "position_embedding_size": 100},
    ),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", WIDER)
def test_a_step_with_images_holds_what_the_real_one_holds(name: str) -> None:
    (config, _, made), text, tower = WIDER[name]
    config = deepcopy(config)
    config["text_config"] |= text
    config["vision_config"] |= tower
    config = {**completed(config), "vision_soft_tokens_per_image": 70}
    train = {"precision": "fp32", "attention": "eager", "optimizer": "sgd", "micro_batch_size": 1,
             "sequence_length": 259, "images_per_sequence": 1, "image_size": "448x448"}  # fmt: skip
    scenario, model = Scenario.from_dict({"model": config, "task": "train", "train": train}), describe(config)
    assert scenario.train is not None
    images = images_of(scenario.train, model)
    assert images is not None
    job = job_of(scenario, model, None)
    moments = {moment.name: moment.total for moment in job.moments(job.ranks[0])}

    real = real_model(config, "causal-lm", device="cpu", attention="eager").train()
    inputs = image_inputs((config, images, made), 1, 259)
    held = moments["load"] + sum(x.numel() * x.element_size() for x in inputs.values() if hasattr(x, "numel"))

    def step() -> None:
        real(**inputs).loss.backward()
        real.zero_grad(set_to_none=True)

    assert moments["loss"] - held == pytest.approx(peak_bytes(lambda: real(**inputs)), rel=0.002)
    backward = max(moments["backward: head"], moments["backward: layers"])
    if name == "glm4v":  # its peak is at softmax's backward, which makes grad * output on CUDA alone: 32 × 32 patches
        backward -= tower["num_heads"] * (32 * 32) ** 2 * 4
    assert backward - held == pytest.approx(peak_bytes(step), rel=0.004)
