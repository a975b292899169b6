"""Layers that LLaMA-Factory's freeze method trains, and methods that are not described (model/adapter.py)."""

from __future__ import annotations

import pytest

from vramwise.errors import SourceError, UsageError
from vramwise.interop.launch import read_command

LLAMA = "meta-llama/Meta-Llama-3-8B-Instruct"


def train(*words, model=LLAMA):
    line = ["llamafactory-cli", "train", "--do_train", "--model_name_or_path", model, *words]
    return read_command(line).scenario["train"]


def test_llama_pro_trains_every_so_manyth_layer():
    words = ("--finetuning_type", "freeze", "--freeze_trainable_layers", "8", "--use_llama_pro", "true")
    assert train(*words)["trainable"] == [f".{layer}." for layer in (3, 7, 11, 15, 19, 23, 27, 31)]
    with pytest.raises(UsageError, match="does not divide the model's 32 layers"):
        train("--finetuning_type", "freeze", "--freeze_trainable_layers", "5", "--use_llama_pro", "true")


def test_layers_of_a_model_with_images_are_those_of_its_text():
    found = train("--finetuning_type", "freeze", model="Qwen/Qwen3-VL-4B-Instruct")
    assert found["trainable"] == ["model.language_model.layers.34.", "model.language_model.layers.35."]


def test_a_model_that_is_not_known_is_what_is_said():
    with pytest.raises(SourceError, match="models/llama3-8b-pro"):
        train("--finetuning_type", "freeze", "--use_llama_pro", model="models/llama3-8b-pro")


def test_orthogonal_adapters_are_refused_by_name():
    with pytest.raises(UsageError, match="orthogonal adapters are not described here; lora, freeze and full are"):
        train("--finetuning_type", "oft")
