"""Whose patches of images are asked for a gradient by checkpointing: held against the real classes' hooks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
sys.path.append(str(Path(__file__).parent.parent / "models"))

from transformers_models import real_model

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.activations.checkpointing import kept_storages
from vramwise.training.activations.sizes import step_shape
from vramwise.training.job import job_of

NAMES = (
    "Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen3-VL-4B-Instruct", "google/gemma-3-4b-it",
    "mistralai/Mistral-Small-3.1-24B-Base-2503", "llava-hf/llava-1.5-7b-hf", "meta-llama/Llama-4-Scout-17B-16E",
    "HuggingFaceTB/SmolVLM-Instruct", "zai-org/GLM-4.1V-9B-Thinking",
)  # fmt: skip
MOST_LAYERS = 2


def _shallow(config: dict) -> dict:
    cut = dict(config)
    for key, value in config.items():
        if isinstance(value, dict):
            cut[key] = _shallow(value)
        elif key in ("num_hidden_layers", "depth"):
            cut[key] = min(value, MOST_LAYERS)
        elif key == "layer_types":
            cut[key] = value[:MOST_LAYERS]
        elif key == "deepstack_visual_indexes":
            cut[key] = list(range(MOST_LAYERS))
    return cut


def _recorded(config: dict, version: str) -> list:
    model = describe(config)
    language = next(part for part in ("language_model", "text_model") if any(part in p.name for p in model.parameters))
    train = {
        "method": "freeze", "trainable": [language], "checkpointing": "full", "images_per_sequence": 1,
        "sequence_length": 6000, "framework_version": version,
    }  # fmt: skip
    job = job_of(Scenario.from_dict({"model": config, "task": "train", "train": train}), model, None)
    runs = step_shape(model, job.train, 1, 6000, accumulating=False).recorded.runs
    return [run for run in runs if run.modality == "image"], job.train


@pytest.mark.filterwarnings("ignore::FutureWarning")  # configs with a table of positions of another name
@pytest.mark.parametrize("name", NAMES)
def test_a_frozen_towers_patches_are_asked_where_the_class_names_them(name: str) -> None:
    config = _shallow(resolve(name).config)
    real = real_model(config, "causal-lm")
    real.enable_input_require_grads()
    hooked = [
        module for module, one in real.named_modules()
        if any(hook.__name__ == "make_inputs_require_grads" for hook in one._forward_hooks.values())
    ]  # fmt: skip
    of_images = [module for module in hooked if not module.endswith("embed_tokens")]
    runs, train = _recorded(config, "5.23.0")
    assert any(node.op == "requires_grad_" for run in runs for node in run.nodes) == bool(of_images)
    layers = [run for run in runs if run.tower_layer]
    assert any(kept_storages(run, train) is not None for run in layers) == bool(of_images)
    before, _ = _recorded(config, "4.57.6")
    assert not any(node.op == "requires_grad_" for run in before for node in run.nodes)
