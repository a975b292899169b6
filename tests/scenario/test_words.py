"""A scenario as the command line that asks it (tests/invariants asks random ones in this way)."""

from __future__ import annotations

import pytest

from vramwise.errors import ScenarioError
from vramwise.scenario import Scenario
from vramwise.scenario.words import command_line


def test_only_what_was_stated_is_written():
    scenario = Scenario.from_dict({"model": "llama-3.1-8b", "task": "train", "gpu": "4090"})
    assert command_line(scenario) == "vramwise estimate llama-3.1-8b --task train --gpu 4090"


def test_every_kind_of_value_is_written_as_flags_take_it():
    train = {"expandable_segments": True, "clip_grad_norm": False, "kernels": ["liger", "apex"], "padding": 0.25}
    scenario = Scenario.from_dict({"model": "my model", "task": "train", "num_gpus": 2, "train": train})
    assert command_line(scenario) == (
        "vramwise estimate 'my model' --task train --num-gpus 2 --padding 0.25 --kernels liger,apex "
        "--no-clip-grad-norm --expandable-segments"
    )
    served = {"engine": "vllm", "limit_mm_per_prompt": {"image": 2}}
    scenario = Scenario.from_dict({"model": "qwen2.5-vl-7b", "task": "serve", "serve": served})
    assert """--limit-mm-per-prompt '{"image": 2}'""" in command_line(scenario)


def test_a_change_shows():
    scenario = Scenario.from_dict({"model": "llama-3.1-8b", "task": "train"})
    changed = scenario.replace(num_gpus=4, train=scenario.train.replace(checkpointing="full", recompute=()))
    words = "vramwise estimate llama-3.1-8b --task train --num-gpus 4 --checkpointing full"
    assert command_line(changed) == words


def test_what_reading_noted_is_no_flag():
    scenario = Scenario.from_dict({"model": "llama-3.1-8b", "task": "train", "train": {"method": "qlora"}})
    assert scenario.notes
    words = "vramwise estimate llama-3.1-8b --task train --method qlora --quantization nf4"
    assert command_line(scenario) == words


def test_a_model_given_as_a_table_stands_for_its_file():
    scenario = Scenario.from_dict({"model": {"model_type": "llama"}, "task": "load"})
    assert command_line(scenario, "plan") == "vramwise plan config.json --task load"


def test_what_changed_nothing_is_a_note_and_no_flag():
    """`enforce_eager` of TGI changes nothing, which a note says; a command with --notes in it is refused."""
    table = {"engine": "tgi", "enforce_eager": True}
    scenario = Scenario.from_dict({"model": "qwen3-32b", "task": "serve", "gpu": "4090", "serve": table})
    assert scenario.notes
    words = "vramwise estimate qwen3-32b --task serve --gpu 4090 --engine tgi --enforce-eager"
    assert command_line(scenario) == words


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"engine": "lmstudio"}, "it runs llama.cpp, which is engine llama.cpp"),
        ({"engine": "koboldcpp"}, "it runs llama.cpp, which is engine llama.cpp"),
        ({"quantization": "bnb"}, "bitsandbytes-nf4 or bitsandbytes-int8"),
        ({"engine": "llama.cpp", "gguf_quant": "UD-Q4_K_XL"}, "Q4_K_M is the nearest"),
        ({"engine": "llama.cpp", "gguf_quant": "int4"}, "4 bits are Q4_K_M"),
    ],
)
def test_words_of_other_programs_are_told_what_they_are_here(settings, said) -> None:
    with pytest.raises(ScenarioError, match=said):
        Scenario.from_dict({"model": "gpt2", "task": "serve", "serve": settings})
