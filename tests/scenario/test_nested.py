"""Tables inside a task's table, by whose the keys are: they say what the flat keys say."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from vramwise.errors import ScenarioError
from vramwise.scenario import Scenario, read_scenario_file, scenario_schema
from vramwise.scenario.definition import KINDS, TABLES
from vramwise.scenario.nested import nested_tables

VALIDATOR = Draft202012Validator(scenario_schema())
PAIRS = [
    ("train", {"zero": {"stage": 3}}, {"zero_stage": 3}),
    ("train", {"zero": {"stage": 2, "overlap_comm": False}}, {"zero_stage": 2, "overlap_comm": False}),
    ("train", {"method": "lora", "lora": {"rank": 16, "dora": True}},
     {"method": "lora", "lora_rank": 16, "dora": True}),
    ("train", {"fsdp": {"sharding_strategy": "full-shard", "version": 1}},
     {"fsdp": "full-shard", "fsdp_version": 1}),
    ("train", {"pipeline": {"parallel_size": 2, "schedule": "gpipe"}},
     {"pipeline_parallel_size": 2, "pipeline_schedule": "gpipe"}),
    ("train", {"offload": {"optimizer": "cpu"}, "zero": {"stage": 2}}, {"offload_optimizer": "cpu", "zero_stage": 2}),
    ("train", {"rollout": {"gpu_memory_utilization": 0.5, "sleep": True}},
     {"rollout_gpu_memory_utilization": 0.5, "rollout_sleep": True}),
    ("train", {"framework": "megatron", "megatron": {"precision_aware_optimizer": True, "micro_batch_size": 2}},
     {"framework": "megatron", "precision_aware_optimizer": True, "micro_batch_size": 2}),
    ("serve", {"engine": "llama.cpp", "llama.cpp": {"n_ctx": 4096, "max_model_len": 2048}},
     {"engine": "llama.cpp", "n_ctx": 4096, "max_model_len": 2048}),
    ("serve", {"vllm": {"max_num_seqs": 8}, "max_model_len": 512}, {"max_num_seqs": 8, "max_model_len": 512}),
    ("serve", {"sglang": None}, {}),
]  # fmt: skip


def asked(task, table):
    return {"model": "m", "task": task, task: table}


@pytest.mark.parametrize(("task", "nested", "flat"), PAIRS)
def test_a_nested_table_says_what_the_flat_keys_say(task, nested, flat):
    data = asked(task, nested)
    assert VALIDATOR.is_valid(data)
    assert Scenario.from_dict(data) == Scenario.from_dict(asked(task, flat))
    assert Scenario.from_dict(data).settings.explicit == Scenario.from_dict(asked(task, flat)).settings.explicit


@pytest.mark.parametrize(
    ("task", "table", "message"),
    [
        ("train", {"zero": {"stage": 4}}, "train.zero.stage: expected a whole number ≤ 3, got 4"),
        ("train", {"zero": {"stge": 3}}, "train.zero.stge: unknown key: did you mean stage?"),
        ("train", {"zero": 3}, "train.zero: expected a table, got 3"),
        ("train", {"zero": {"stage": 3}, "zero_stage": 3},
         "train.zero_stage: is given twice: train.zero.stage is the same"),
        ("train", {"lora": {"rank": 4}}, "train.lora_rank: needs method lora or qlora; it is full"),
        ("serve", {"llama.cpp": {"n_ctx": 4096}}, "serve.llama.cpp: belongs to the engine llama.cpp; the"),
        ("serve", {"sglang": {"max_model_len": 4}}, "serve.sglang: belongs to the engine sglang; the engine is vllm"),
        ("serve", {"vllm": {"n_ctx": 4}}, "serve.vllm.n_ctx: unknown key"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_it_is_said(task, table, message):
    with pytest.raises(ScenarioError) as caught:
        Scenario.from_dict(asked(task, table))
    assert str(caught.value).startswith(message)


def test_every_key_of_one_owner_stands_in_its_table():
    for cls in TABLES.values():
        for name, table in nested_tables(cls).items():
            assert set(table.keys.values()) <= set(KINDS[cls])
            assert len(set(table.keys.values())) == len(table.keys), name


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", 'model = "m"\ntask = "train"\n[train.zero]\nstage = 3\n'),
        (".yaml", "model: m\ntask: train\ntrain:\n  zero:\n    stage: 3\n"),
        (".json", '{"model": "m", "task": "train", "train": {"zero": {"stage": 3}}}'),
    ],
)
def test_files_hold_nested_tables(suffix, text, tmp_path):
    path = tmp_path / f"scenario{suffix}"
    path.write_text(text, "utf-8")
    assert read_scenario_file(path).train.zero_stage == 3


def test_the_page_lists_every_table_with_its_keys():
    page = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text("utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert set(rows) == {f"{name}.{table}" for name, cls in TABLES.items() for table in nested_tables(cls)}
    for name, cls in TABLES.items():
        for table, nested in nested_tables(cls).items():
            if nested.program is None:
                row = rows[f"{name}.{table}"]
                assert all(f"`{inside}`" in row and f"`{key}`" in row for inside, key in nested.keys.items())


def test_a_setting_without_its_owner_is_noted():
    read = Scenario.from_dict(asked("train", {"reduce_bucket_size": 1000, "zero": {"stage": 0}}))
    assert read.notes == ("reduce_bucket_size changed nothing here: it needs zero_stage above 0; it is 0",)
