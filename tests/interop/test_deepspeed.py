"""DeepSpeed's and accelerate's configuration files as keys of a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError, UsageError
from vramwise.interop.deepspeed import read_deepspeed, read_deepspeed_file
from vramwise.interop.deepspeed_files import shipped_files
from vramwise.interop.launch import read_command
from vramwise.scenario import Scenario

AUTO = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto"}  # fmt: skip


def zero(hidden_size: int | None = None, **settings: Any) -> dict[str, Any]:
    return read_deepspeed({"zero_optimization": settings}, hidden_size).train


def test_auto_is_what_trainer_fills_in() -> None:
    """transformers integrations/deepspeed.py: hidden², 0.9 · hidden² and 10 · hidden."""
    found = zero(4096, **AUTO)
    assert found["reduce_bucket_size"] == 4096 * 4096
    assert found["stage3_prefetch_bucket_size"] == int(0.9 * 4096 * 4096)
    assert found["stage3_param_persistence_threshold"] == 40_960
    with pytest.raises(UsageError, match=r'zero_optimization.reduce_bucket_size: "auto" needs the model'):
        zero(**AUTO)


def test_what_is_left_out_is_deepspeeds_default() -> None:
    found = zero(stage=3)
    assert (found["reduce_bucket_size"], found["stage3_prefetch_bucket_size"]) == (500_000_000, 50_000_000)
    assert found["stage3_param_persistence_threshold"] == 100_000
    assert zero(stage=2) == {"framework": "deepspeed", "zero_stage": 2, "reduce_bucket_size": 500_000_000}
    assert zero() == {"framework": "deepspeed", "zero_stage": 0}


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"reduce_bucket_size": 2e8}, "reduce_bucket_size", 200_000_000),
        ({"reduce_bucket_size": "5e7"}, "reduce_bucket_size", 50_000_000),
        ({"stage3_max_live_parameters": 0}, "stage3_max_live_parameters", 0),
        ({"max_reuse_distance": 1e6}, "stage3_max_reuse_distance", 1_000_000),
        ({"sub_group_size": 0}, "sub_group_size", 1),
        ({"overlap_comm": False}, "overlap_comm", False),
        ({"stage3_allgather_sequential": True}, "stage3_prefetch_bucket_size", 1),
        ({"zero_hpz_partition_size": 8}, "zero_hpz_partition_size", 8),
        ({"cpu_offload": True}, "offload_optimizer", "cpu"),
        ({"offload_optimizer": {"device": "nvme", "buffer_count": 6}}, "offload_optimizer_buffer_count", 6),
        ({"offload_param": {"device": "nvme", "buffer_size": 3e8}}, "offload_params_buffer_size", 300_000_000),
        ({"offload_param": {"device": "cpu", "pin_memory": False}}, "offload_pin_memory", False),
    ],
)
def test_every_setting_that_changes_memory_is_carried_over(settings: dict[str, Any], key: str, value: object) -> None:
    assert zero(stage=3, **settings)[key] == value


def test_precision_gradients_and_states() -> None:
    narrow = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    found = read_deepspeed(
        {"bf16": narrow, "data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32",
         "optimizer": {"type": "AdamW"}, "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0}
    ).train  # fmt: skip
    assert (found["precision"], found["master_dtype"], found["optimizer_state_dtype"]) == (
        "bf16-master",
        "bf16",
        "bf16",
    )
    assert (found["grad_dtype"], found["communication_data_type"]) == ("fp32", "fp32")
    assert (found["optimizer"], found["optimizer_impl"]) == ("adamw", "fused")
    assert (found["micro_batch_size"], found["clip_grad_norm"]) == (4, True)
    assert "precision" not in read_deepspeed({"bf16": {"enabled": "auto"}}).train


def test_what_no_key_says_is_noted() -> None:
    config = {"zero_optimization": {"stage": 3, "zero_quantized_gradients": True, "leaf_module": {}},
              "amp": {"enabled": False}, "torch_autocast": {"enabled": True}}  # fmt: skip
    notes = read_deepspeed(config).notes
    assert [note.split("(")[0].strip() for note in notes] == [
        "not counted: zero_optimization.zero_quantized_gradients", "not counted: torch_autocast",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"zero_optimization": [3]}, "zero_optimization: expected a table"),
        ({"zero_optimization": {"stage": "three"}}, "zero_optimization.stage: expected a whole number"),
        ({"zero_optimization": {"stage": 3, "sub_group_size": 1.5}}, "sub_group_size: expected a whole number"),
        ({"data_types": {"grad_accum_dtype": "fp8"}}, "data_types.grad_accum_dtype: expected fp32, fp16 or bf16"),
    ],
)
def test_what_deepspeed_would_not_read_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_deepspeed(config)


def test_accelerates_file_with_settings_of_its_own_or_a_file_that_it_names(tmp_path: Path) -> None:
    own = tmp_path / "accelerate.yaml"
    own.write_text(
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\n"
        "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n  gradient_accumulation_steps: 2\n"
    )
    found = read_deepspeed_file(str(own))
    assert (found.num_gpus, found.train["precision"], found.train["zero_stage"]) == (4, "bf16-master", 3)
    assert (found.train["offload_optimizer"], found.train["gradient_accumulation_steps"]) == ("cpu", 2)
    assert found.train["reduce_bucket_size"] == 500_000_000  # accelerate writes no "auto" itself
    (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": AUTO}))
    own.write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: zero.json}\n")
    assert read_deepspeed_file(str(own), 1024).train["reduce_bucket_size"] == 1024 * 1024
    own.write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: none.json}\n")
    with pytest.raises(SourceError, match=r"none.json: no such file"):
        read_deepspeed_file(str(own))
    own.write_text("distributed_type: FSDP\n")
    with pytest.raises(UsageError, match='distributed_type is "FSDP", not DEEPSPEED'):
        read_deepspeed_file(str(own))


def test_an_estimate_takes_the_file_and_flags_override_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {**AUTO, "zero_quantized_gradients": True}}))
    assert main(["estimate", "gpt2", "--deepspeed", str(path), "--sub-group-size", "5", "-n", "4", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    table = answer["scenario"]["train"]
    assert (table["reduce_bucket_size"], table["sub_group_size"], table["zero_stage"]) == (768 * 768, 5, 3)
    assert (table["framework"], answer["scenario"]["num_gpus"]) == ("deepspeed", 4)
    assert any("zero_quantized_gradients" in note for note in answer["notes"])
    assert main(["estimate", "gpt2", "--task", "serve", "--deepspeed", str(path)]) == 2
    assert "--deepspeed: belongs to the task train" in capsys.readouterr().err


@pytest.mark.parametrize(
    "zero",
    [{"reduce_bucket_size": float("inf")}, {"reduce_bucket_size": 10**400}, {"offload_optimizer": "cpu"},
     {"offload_optimizer": ["cpu"]}],
)  # fmt: skip
def test_odd_values_are_one_line(zero: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected a"):
        read_deepspeed({"zero_optimization": {"stage": 2, **zero}}, 1024)


def launched(words: list[str]) -> Any:
    launch = read_command(words)
    Scenario.from_dict(launch.scenario)
    return launch.scenario["train"], " / ".join(launch.notes)


@pytest.mark.parametrize("shipped", [name for name in shipped_files() if "/" in name])
def test_files_that_frameworks_ship_are_known_by_their_paths(shipped: str) -> None:
    found = read_deepspeed_file(f"/somewhere/else/{shipped}", 4096)
    assert found.train["zero_stage"] == int(shipped.partition("z")[2].removeprefix("ero")[0])
    assert "is not here: taken as the file that" in found.notes[0]


def test_a_shipped_file_says_what_the_framework_wrote_into_it() -> None:
    """axolotl 067b021c deepspeed_configs/zero3_bf16_cpuoffload_params.json."""
    own = {
        "stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}, "overlap_comm": True,
        "contiguous_gradients": True, "sub_group_size": 0, "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "max_live_parameters": 0,
        "max_reuse_distance": 0, "gather_16bit_weights_on_model_save": True,
    }  # fmt: skip
    named = read_deepspeed_file("deepspeed_configs/zero3_bf16_cpuoffload_params.json", 4096).train
    assert named == read_deepspeed({"bf16": {"enabled": True}, "zero_optimization": own}, 4096).train


def test_configurations_name_them(tmp_path: Path) -> None:
    axolotl, factory = tmp_path / "ax.yml", tmp_path / "lf.yaml"
    axolotl.write_text("base_model: Qwen/Qwen3-8B\ndeepspeed: deepspeed_configs/zero3_bf16.json\n")
    train, said = launched(["axolotl", "train", str(axolotl)])
    assert (train["zero_stage"], train["precision"], train["sub_group_size"]) == (3, "bf16-master", 1)
    assert "deepspeed_configs/zero3_bf16.json is not here" in said
    factory.write_text("model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\nbf16: true\n"
                       "deepspeed: examples/deepspeed/ds_z3_config.json\n")  # fmt: skip
    train, said = launched(["llamafactory-cli", "train", str(factory)])
    assert (train["zero_stage"], train["precision"], train["sub_group_size"]) == (3, "bf16-master", 10**9)
    train, _ = launched(["swift", "sft", "--model", "Qwen/Qwen3-8B", "--deepspeed", "zero2_offload"])
    assert (train["zero_stage"], train["offload_optimizer"], train["reduce_bucket_size"]) == (2, "cpu", 200_000_000)


def test_a_file_that_nobody_ships_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        read_deepspeed_file(f"{tmp_path}/deepspeed_configs/zero4.json")


@pytest.mark.parametrize(
    ("tables", "precision"),
    [
        ({"bf16": {"enabled": "auto"}, "fp16": {"enabled": False}}, "bf16-master"),
        ({"fp16": {"enabled": True}}, "fp16-master"),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": False}}, "fp32"),
        ({}, "bf16-master"),
    ],
)
def test_what_a_file_leaves_open_follows_the_trainer(tables: dict[str, Any], precision: str) -> None:
    """accelerate 1.15 utils/dataclasses.py set_mixed_precision, transformers integrations/deepspeed.py."""
    config = json.dumps({**tables, "zero_optimization": {"stage": 2}})
    line = ["python", "train.py", "--model_name_or_path", "Qwen/Qwen3-8B", "--bf16", "--deepspeed", config]
    assert launched(line)[0]["precision"] == precision


def test_a_file_beside_a_model_lists_every_name_it_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto", "wall_clock_breakdown": False,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "stagee": 2}, "_comment": "mine",
        "bf16": {"enabled": True}, "steps_per_prin": 10, "compression_training": {"sparse_pruning": {"x": 1}},
    }  # fmt: skip
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config))
    assert main(["estimate", "llama-3.1-8b", str(path), "--gpu", "h100-sxm-80gb", "--json"]) in (0, 3)
    notes = json.loads(capsys.readouterr().out)["notes"]
    said = "DeepSpeed: "
    assert (
        f"{said}read from it: train_micro_batch_size_per_gpu, zero_optimization.stage, "
        "zero_optimization.offload_optimizer.device, bf16.enabled" in notes
    )
    assert f'{said}left to the trainer ("auto"): gradient_accumulation_steps' in notes
    assert f"{said}not counted: compression_training (masks and quantized copies of weights)" in notes
    assert f"{said}unknown to it, left out: zero_optimization.stagee, steps_per_prin" in notes
    assert any(note.startswith(f"{said}no effect on the memory counted here: wall_clock_breakdown") for note in notes)
    assert not any("_comment" in note or "sparse_pruning" in note for note in notes)


def test_a_whole_batch_alone_is_said_not_to_be_shared_out(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_batch_size": 64, "zero_optimization": {"stage": 2}}))
    words = ["deepspeed", "train.py", "--model_name_or_path", "gpt2", "--deepspeed", str(path)]
    assert any("train_batch_size over GPUs" in note for note in read_command(words).notes)


def test_accelerates_file_lists_what_is_read_of_it(tmp_path: Path) -> None:
    path = tmp_path / "fsdp.yaml"
    path.write_text(
        "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\nfsdp_config:\n  fsdp_offload_params: true\n"
    )
    words = ["accelerate", "launch", "--config_file", str(path), "train.py", "--model_name_or_path", "gpt2"]
    assert (
        "accelerate: read from it: distributed_type, num_processes, mixed_precision, fsdp_offload_params"
        in read_command(words).notes
    )


@pytest.mark.parametrize(("table", "said"), [
    ({"zero_optimization": {"stage": 3}, "steps_per_print": 10, "bogus": 1},
     ("configuration of DeepSpeed", "DeepSpeed: read from it: zero_optimization.stage",
      "DeepSpeed: no effect on the memory counted here: steps_per_print", "DeepSpeed: unknown to it, left out: bogus")),
    ({"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}, "machine_rank": 0, "bogus": 1},
     ("configuration of accelerate", "accelerate: read from it: distributed_type, zero_stage",
      "no effect on the memory counted here: machine_rank", "unknown to accelerate, left out: bogus")),
])  # fmt: skip
def test_the_flags_file_is_listed_name_by_name(
    table: dict[str, object], said: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ("zero.json" if "zero_optimization" in table else "zero.yaml")
    file.write_text(json.dumps(table), "utf-8")
    assert main(["estimate", "qwen3-0.6b", "--deepspeed", str(file), "--gpu", "2xh100"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for note in said:
        assert note in printed


def test_a_card_with_a_count_says_how_many_run_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}), "utf-8")
    main(["estimate", "qwen3-0.6b", str(tmp_path / "zero.json"), "--gpu", "2xh100"])
    assert "nothing says how many GPUs" not in " ".join(capsys.readouterr().out.split())
