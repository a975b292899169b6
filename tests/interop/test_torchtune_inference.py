"""torchtune's recipes that train nothing, keys that its files take from others, and models told by their builders."""

from __future__ import annotations

import tracemalloc

import pytest
import yaml

from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import read_command
from vramwise.interop.launch.omegaconf import filled_in
from vramwise.scenario import Scenario

BUILDER = {
    "_component_": "torchtune.models.llama3_1.lora_llama3_1_8b",
    "lora_rank": 16,
    "lora_attn_modules": ["q_proj"],
}


def launch_of(tmp_path, table, name="run.yaml"):
    file = tmp_path / name
    file.write_text(yaml.safe_dump(table), "utf-8")
    launch = read_files([str(file)])[0].launch
    Scenario.from_dict(launch.scenario)
    return launch


def test_quantizing_loads_the_weights_in_dtype(tmp_path):
    table = {
        "model": {"_component_": "torchtune.models.llama2.llama2_7b"},
        "checkpointer": {"checkpoint_dir": "/tmp/Llama-2-7b-hf"},
        "dtype": "fp32",
        "quantizer": {"_component_": "torchtune.training.quantization.Int8DynActInt4WeightQuantizer"},
    }
    scenario = launch_of(tmp_path, table).scenario
    assert (scenario["task"], scenario["serve"]) == ("load", {"dtype": "fp32"})
    assert launch_of(tmp_path, {**table, "device": "cpu"}).scenario["num_gpus"] == 0


def test_without_a_cache_every_token_passes_again(tmp_path):
    table = {
        "model": {"_component_": "torchtune.models.llama2.llama2_7b"},
        "checkpointer": {"checkpoint_dir": "/tmp/Llama-2-7b-hf"},
        "prompt": {"user": "Tell me"},
        "enable_kv_cache": False,
    }
    found = launch_of(tmp_path, table).scenario["generate"]
    assert (found["cache_implementation"], found["prompt_tokens"], found["new_tokens"]) == ("none", 7, 300)


@pytest.mark.parametrize("folder", [None, "/tmp/my_run/epoch_0"])
def test_a_model_is_told_by_its_builder_where_no_folder_does(tmp_path, folder):
    table = {"model": BUILDER, "optimizer": {"_component_": "torch.optim.AdamW"}, "batch_size": 2}
    if folder:
        table["checkpointer"] = {"checkpoint_dir": folder}
    launch = launch_of(tmp_path, table, "8B_lora_single_device.yaml")
    assert "3.1-8B" in launch.scenario["model"]
    assert any("its builder makes" in note for note in launch.notes)
    assert launch.scenario["train"]["lora_rank"] == 16


def test_an_unknown_builder_without_a_folder_is_one_line(tmp_path):
    table = {"model": {"_component_": "mine.my_model"}, "optimizer": {"_component_": "torch.optim.AdamW"}}
    with pytest.raises(UsageError, match="names no model: expected checkpointer"):
        launch_of(tmp_path, table)


def test_a_recipe_of_workers_of_their_own_is_refused(tmp_path):
    with pytest.raises(UsageError, match="expected a recipe such as"):
        launch_of(tmp_path, {"model": BUILDER, "orchestration": {"num_steps": 1}})


def test_the_recipes_commands_are_read():
    line = "tune run generate --config llama3_1/8B_lora_single_device max_new_tokens=10 enable_kv_cache=True"
    found = read_command(line.split()).scenario
    assert (found["task"], found["generate"]["new_tokens"]) == ("generate", 10)
    assert found["generate"]["cache_implementation"] == "static"


def test_keys_are_filled_in_from_others_and_from_the_environment(monkeypatch):
    monkeypatch.setenv("VRAMWISE_TEST_FOLDER", "/models")
    table = {
        "base": "${oc.env:VRAMWISE_TEST_FOLDER}/${name}", "name": "llama", "path": "${base}/tokenizer.json",
        "files": ["${name}-1", 2], "default": "${oc.env:VRAMWISE_TEST_NOTHING,'x'}", "size": "${number}", "number": 3,
        "unknown": "${nothing}", "again": "${again}", "sum": "${eval:'1+1'}",
    }  # fmt: skip
    found = filled_in(table, {})
    assert found["path"] == "/models/llama/tokenizer.json"
    assert (found["files"], found["default"], found["size"]) == (["llama-1", 2], "x", 3)
    assert (found["unknown"], found["again"], found["sum"]) == ("${nothing}", "${again}", "${eval:'1+1'}")
    assert filled_in(table, {"VRAMWISE_TEST_FOLDER": "/own"})["base"] == "/own/llama"


def test_a_key_that_is_null_is_null_where_it_is_named(tmp_path):
    assert filled_in({"a": None, "b": "${a}", "c": "x${a}"}, {}) == {"a": None, "b": None, "c": "x${a}"}
    table = {"model": BUILDER, "optimizer": {}, "length": None, "tokenizer": {"max_seq_len": "${length}"}}
    assert "sequence_length" not in launch_of(tmp_path, table).scenario["train"]


def test_a_long_text_that_is_named_very_often_takes_little_memory():
    tracemalloc.start()
    try:
        found = filled_in({"a": "x" * 9_000, **{f"k{n}": "${a}" * 20_000 for n in range(3)}}, {})
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert found["k0"].startswith("x" * 9_000)


def test_references_that_multiply_stay_bounded():
    table = {f"k{n}": f"${{k{n + 1}}}${{k{n + 1}}}" for n in range(40)}
    assert len(str(filled_in({**table, "k40": "x" * 100}, {})["k0"])) <= 10_000
