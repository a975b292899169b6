"""prime-rl's TOML files and commands, by its own configuration classes (0.8.1, 559b44772 prime_rl/configs)."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import UsageError
from vramwise.interop.files.launches import FileLaunch, read_files
from vramwise.interop.launch import Launch, read_command
from vramwise.interop.launch.options import options_of
from vramwise.scenario import Scenario

RL = """
max_steps = 20
seq_len = 32768
[model]
name = "Qwen/Qwen3-30B-A3B-Thinking-2507"
[deployment]
type = "multi_node"
num_train_nodes = 2
num_infer_nodes = 2
[slurm]
job_name = "math"
[trainer.model]
impl = "custom"
attn = "flash_attention_3"
[trainer.model.compile]
[trainer.model.ac]
freq = 1
[trainer.optim]
type = "adamw"
lr = 1e-6
[orchestrator]
batch_size = 512
[[orchestrator.train.source]]
name = "math"
[inference.vllm]
tensor_parallel_size = 4
max_num_seqs = 256
"""
SFT = """
max_steps = 100
[ckpt]
[model]
name = "Qwen/Qwen3-0.6B"
[data]
name = "an/own-dataset"
seq_len = 4096
batch_size = 32
micro_batch_size = 2
[optim]
lr = 2e-5
[deployment]
num_train_gpus = 4
"""


def written(folder: Path, text: str, name: str = "run.toml") -> Path:
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def answers(folder: Path, text: str) -> dict[str, Launch]:
    found: list[FileLaunch] = read_files([str(written(folder, text))])
    for one in found:
        Scenario.from_dict(one.launch.scenario)
    return {one.name: one.launch for one in found}


def train(launch: Launch) -> dict[str, Any]:
    found = launch.scenario["train"]
    assert isinstance(found, dict)
    return found


def test_rl_is_a_trainer_and_a_server_of_its_own(tmp_path: Path) -> None:
    found = answers(tmp_path, RL)
    assert list(found) == ["trainer", "inference"]
    trainer, server = found["trainer"].scenario, found["inference"].scenario
    assert (trainer["num_gpus"], trainer["gpus_per_node"]) == (16, 8)
    settings = train(found["trainer"])
    assert settings["expert_parallel_size"] == 8  # resolve_ep: min(island, 8) of a model with experts
    assert (settings["sequence_length"], settings["micro_batch_size"]) == (32768, 1)
    assert settings["gradient_accumulation_steps"] == 512 // 16
    assert (settings["checkpointing"], settings["offload_activations"], settings["loss"]) == (
        "full", "cpu", "fused-linear",
    )  # fmt: skip
    assert (settings["precision"], settings["param_dtype"], settings["fsdp_version"]) == ("bf16-mixed", "fp32", 2)
    assert "offload_optimizer" not in settings  # states come back to the GPU for the step
    serve = server["serve"]
    assert isinstance(serve, dict)
    assert (serve["tensor_parallel_size"], serve["max_num_seqs"]) == (4, 256)
    assert serve["data_parallel_size"] == 2  # auto_setup_deployment: 8 GPUs of a node over 4
    assert serve["gpu_memory_utilization"] == 0.9
    notes = " / ".join(found["trainer"].notes)
    assert "optim_cpu_offload: states are on the GPU while the optimizer steps" in notes
    assert "slurm.job_name" in notes
    assert "unknown" not in notes


def test_sft(tmp_path: Path) -> None:
    launch = answers(tmp_path, SFT)["trainer"]
    settings = train(launch)
    assert launch.scenario["num_gpus"] == 4
    assert (settings["sequence_length"], settings["micro_batch_size"]) == (4096, 2)
    assert settings["gradient_accumulation_steps"] == 4
    assert "expert_parallel_size" not in settings


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--model.ac None --model.ac-offloading None", {"checkpointing": "none"}),
        ("--no-model.compile", {"compile": None}),
        ("--model.lora.rank 32", {"method": "lora", "lora_rank": 32, "lora_targets": "all-linear"}),
        ("--model.lora", {"method": "lora", "lora_rank": 16}),
        ("--model.lora.target-modules q_proj v_proj", {"lora_targets": ["q_proj", "v_proj"]}),
        ("--model.cp 2 --model.cp-style ulysses", {"context_parallel_size": 2, "context_parallel_kind": "ulysses"}),
        ("--model.fsdp-cpu-offload", {"offload_params": "cpu", "offload_optimizer": "cpu"}),
        ("--model.full-offload --no-model.optim-cpu-offload",
         {"precision": "bf16", "param_dtype": "bf16", "offload_optimizer": "cpu", "gradient_release": True,
          "clip_grad_norm": False, "gradient_accumulation_steps": 1}),
        ("--optim.type muon --optim.max-norm None", {"optimizer": "muon", "clip_grad_norm": False}),
        ("--optim.type sign_sgd", {"optimizer": "sgd"}),
        ("--model.optimization-dtype bfloat16", {"precision": "bf16", "param_dtype": "bf16"}),
        ("--model.quantization.type fp8", {"precision": "fp8-mixed", "fp8_recipe": "blockwise"}),
        ("--model.fused-lm-head-token-chunk-size disabled", {"loss": "standard"}),
        ("--no-model.reshard-after-forward", {"reshard_after_forward": False}),
        ("--model.dp-replicate 2", {"fsdp": "hybrid-shard"}),
    ],
)  # fmt: skip
def test_its_words_win_over_its_file(tmp_path: Path, words: str, expected: dict[str, object]) -> None:
    launch = read_command(["uv", "run", "sft", "@", str(written(tmp_path, SFT)), *shlex.split(words)])
    Scenario.from_dict(launch.scenario)
    settings = train(launch)
    assert {key: settings.get(key) for key in expected} == expected
    assert not [note for note in launch.notes if note.startswith("unknown")]


def test_files_of_parts_and_later_ones(tmp_path: Path) -> None:
    base = written(tmp_path, RL, "base.toml")
    part = written(tmp_path, "[model]\nseq_len = 8192\n[model.lora]\n", "trainer.toml")
    launch = read_command(["uv", "run", "rl", "@", str(base), "--trainer", "@", str(part)])
    assert train(launch)["sequence_length"] == 8192
    assert train(launch)["method"] == "lora"


def test_torchruns_trainer() -> None:
    line = (
        "uv run torchrun --nproc-per-node=8 src/prime_rl/trainer/rl/train.py --model.name Qwen/Qwen3-4B-Instruct-2507"
        " --model.seq-len 16384 --model.attn flash_attention_3 --model.compile --model.ac --data.fake.batch-size 16"
    )
    launch = read_command(shlex.split(line))
    assert launch.scenario["num_gpus"] == 8
    assert (train(launch)["sequence_length"], train(launch)["gradient_accumulation_steps"]) == (16384, 2)


def test_its_inference_server_alone(tmp_path: Path) -> None:
    text = '[vllm]\nmodel = "Qwen/Qwen3-8B"\nmax_model_len = 8192\nenable_lora = true\nmax_lora_rank = 20\n'
    launch = read_command(["uv", "run", "inference", "@", str(written(tmp_path, text))])
    assert launch.scenario["model"] == "Qwen/Qwen3-8B"
    serve = launch.scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["max_model_len"], serve["max_loras"], serve["max_lora_rank"]) == (8192, 8, 32)
    assert list(answers(tmp_path, text)) == ["inference"]


def test_adapters_go_to_the_server_too(tmp_path: Path) -> None:
    serve = answers(tmp_path, RL + "\n[trainer.model.lora]\nrank = 8\n")["inference"].scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["max_loras"], serve["max_lora_rank"]) == (8, 8)


def test_what_it_refuses(tmp_path: Path) -> None:
    orchestrator = '[model]\nname = "Qwen/Qwen3-0.6B"\n[train.sampling]\nmax_completion_tokens = 128\n'
    with pytest.raises(UsageError, match="needs no GPU"):
        read_files([str(written(tmp_path, orchestrator))])
    with pytest.raises(UsageError, match=r"optim\.type: expected adamw"):
        read_command(["uv", "run", "sft", "@", str(written(tmp_path, SFT)), "--optim.type", "lamb"])
    sparse = SFT.replace("Qwen/Qwen3-0.6B", "zai-org/GLM-5")
    with pytest.raises(UsageError, match="sparse attention of its own"):
        read_command(["uv", "run", "sft", "@", str(written(tmp_path, sparse))])
    with pytest.raises(UsageError, match="a file is named behind @"):
        read_command(["uv", "run", "rl", "@"])


def test_every_row_stands_in_both_places() -> None:
    """The trainer's options stand alone in its own file and below `trainer` in that of all parts."""
    rows = options_of("prime-rl")
    assert not [name for name in rows if name.startswith(("model.", "optim.")) and f"trainer.{name}" not in rows]
