"""Commands of Hugging Face's Trainer and TRL become scenarios, with what their launchers and files say."""

from __future__ import annotations

import ast
import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError, UsageError
from vramwise.interop.launch import Launch, names_a_program, read_command
from vramwise.interop.launch.options import READ_IN_CODE, options_of
from vramwise.scenario import Scenario, TrainSettings
from vramwise.scenario.definition import KINDS
from vramwise.scenario.names import OPTIMIZER_IMPLS, OPTIMIZERS

LLAMA = "--model_name_or_path meta-llama/Llama-3.1-8B"
PROGRAMS = ("trainer", "trl", "accelerate", "deepspeed")


def read(line: str) -> Launch:
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


def check(line: str, expected: dict[str, Any]) -> dict[str, Any]:
    scenario = read(line).scenario
    found = {**scenario, **scenario["train"]}
    assert {key: found.get(key) for key in expected} == expected
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"python train.py {LLAMA}",
            {"framework": "transformers", "method": "full", "precision": "bf16", "micro_batch_size": 8,
             "checkpointing": "none", "optimizer": "adamw", "optimizer_impl": "fused", "num_gpus": 1},
        ),
        (
            f"torchrun --nproc_per_node 4 --nnodes=2 train.py {LLAMA} --bf16 --per_device_train_batch_size 2"
            " --gradient_accumulation_steps 8 --gradient_checkpointing True --optim adamw_8bit --max_grad_norm 0"
            " --torch_dtype float32 --attn_implementation flash_attention_2 --max_seq_length 4096 --use_liger_kernel",
            {"num_gpus": 8, "gpus_per_node": 4, "precision": "bf16-mixed", "param_dtype": "fp32", "kernels": ["liger"],
             "micro_batch_size": 2, "gradient_accumulation_steps": 8, "checkpointing": "full", "loss": "fused-linear",
             "optimizer": "adamw-8bit", "clip_grad_norm": False, "attention": "flash", "sequence_length": 4096},
        ),
        (
            f"accelerate launch --num_processes 2 finetune.py {LLAMA} --lora_r 64 --lora_target_modules q_proj o_proj"
            " --load_in_4bit --use_nested_quant --bf16 True --eval_strategy steps --per-device-eval-batch-size 4",
            {"method": "qlora", "quantization": "nf4-dq", "lora_rank": 64, "lora_targets": ["q_proj", "o_proj"],
             "eval_batch_size": 4, "num_gpus": 2},
        ),
        (
            f"trl sft {LLAMA} --packing --num_processes 4 --padding_free false",
            {"precision": "bf16-mixed", "param_dtype": "fp32", "checkpointing": "full", "packing": True,
             "sequence_length": 1024, "num_gpus": 4, "method": "full", "loss": "fused-linear", "padding_free": False},
        ),
        (
            f"trl sft {LLAMA} --packing --packing_strategy wrapped --max_length 2048",
            {"packing": True, "padding_free": False, "sequence_length": 2048},
        ),
        (
            f"trl sft {LLAMA} --use_peft --load_in_4bit --dtype bfloat16 --no_gradient_checkpointing",
            {"method": "qlora", "lora_rank": 16, "lora_dropout": 0.05, "lora_targets": ["q_proj", "v_proj"],
             "lora_dtype": "bf16", "quantization": "nf4", "param_dtype": "bf16", "checkpointing": "none"},
        ),
        (
            f"accelerate launch examples/scripts/dpo.py {LLAMA} --per_device_train_batch_size 2 --fp16",
            {"micro_batch_size": 4, "extra_models": ["reference"], "precision": "fp16-mixed"},
        ),
        (
            f"python -m trl.scripts.grpo {LLAMA} --use_vllm --vllm_gpu_memory_utilization 0.4 --beta 0.04"
            " --vllm_enable_sleep_mode --max_prompt_length 512 --max_completion_length 1024",
            {"extra_models": ["reference", "rollout:vllm"], "rollout_gpu_memory_utilization": 0.4,
             "rollout_sleep": True, "sequence_length": 1536},
        ),
        (f"trl grpo {LLAMA} --use_vllm --vllm_mode server", {"extra_models": None}),
        (f"trl reward {LLAMA}", {"head": "sequence-classification", "micro_batch_size": 16, "loss": None}),
        (f"trl kto {LLAMA} --precompute_ref_log_probs", {"extra_models": None}),
        (f"CUDA_VISIBLE_DEVICES=2,3 deepspeed train.py {LLAMA}", {"num_gpus": 2}),
        (f"deepspeed --include localhost:0,1,4 train.py {LLAMA} --torch_compile", {"num_gpus": 3, "compile": True}),
        (
            f"torchrun --nproc_per_node=8 train.py {LLAMA} --bf16 --fsdp 'full_shard auto_wrap offload'",
            {"fsdp": "full-shard", "fsdp_version": 2, "param_dtype": "fp32", "offload_params": "cpu"},
        ),
        (
            f"accelerate launch --use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP --num_processes 8"
            f" --mixed_precision bf16 train.py {LLAMA}",
            {"fsdp": "shard-grad-op", "fsdp_version": 1, "precision": "bf16-mixed", "param_dtype": "fp32"},
        ),
        (
            f"trl sft {LLAMA} --accelerate_config zero3",
            {"zero_stage": 3, "num_gpus": 8, "precision": "bf16-master", "reduce_bucket_size": 500_000_000},
        ),
    ],
)  # fmt: skip
def test_a_command_becomes_a_scenario(line: str, expected: dict[str, Any]) -> None:
    check(line, expected)


def test_accelerates_file_says_how_states_are_shared(tmp_path: Path) -> None:
    file = tmp_path / "fsdp.yaml"
    file.write_text(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\nfsdp_config:\n"
        "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n  fsdp_activation_checkpointing: true\n"
        "  fsdp_cpu_ram_efficient_loading: true\n"
    )
    expected = {"fsdp": "shard-grad-op", "fsdp_version": 2, "checkpointing": "full", "cpu_ram_efficient_loading": True,
                "num_gpus": 16, "gpus_per_node": 8, "precision": "bf16-mixed"}  # fmt: skip
    check(f"accelerate launch --config_file {file} train.py {LLAMA}", expected)
    check(f"accelerate launch --config_file {file} --num_processes 4 train.py {LLAMA}", {"num_gpus": 4})
    file.write_text(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
        "  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n  fsdp_activation_checkpointing_offload: true\n"
        "  fsdp_cpu_ram_efficient_loading: false\n"
    )
    expected = {"checkpointing": "full", "offload_activations": "cpu", "cpu_ram_efficient_loading": False}
    check(f"accelerate launch --config_file {file} train.py {LLAMA}", expected)


def test_deepspeeds_file_leaves_auto_open_and_has_defaults_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "zero.json"
    zero = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": 5e7, "overlap_comm": True,
            "offload_optimizer": {"device": "cpu", "pin_memory": True}, "offload_param": {"device": "none"},
            "sub_group_size": 1e9, "zero_quantized_gradients": True}  # fmt: skip
    file.write_text(json.dumps({"bf16": {"enabled": "auto"}, "zero_optimization": zero, "train_batch_size": "auto",
                                "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}))  # fmt: skip
    line = f"deepspeed --num_gpus 8 train.py {LLAMA} --deepspeed {file} --bf16 --use_lora True --optim adafactor"
    expected = {"zero_stage": 3, "reduce_bucket_size": None, "stage3_prefetch_bucket_size": 50_000_000,
                "stage3_param_persistence_threshold": 100_000, "offload_optimizer": "cpu", "offload_params": None,
                "offload_pin_memory": True, "sub_group_size": 10**9, "overlap_comm": True, "precision": "bf16-master",
                "lora_dtype": "bf16", "optimizer": "adamw", "num_gpus": 8}  # fmt: skip
    check(line, expected)
    assert any("not counted: zero_optimization.zero_quantized_gradients" in note for note in read(line).notes)


def test_a_configuration_gives_way_to_flags(tmp_path: Path) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text("model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 2048\nper_device_train_batch_size: 4\n")
    found = check(f"trl sft --config {file} --max_length 512", {"sequence_length": 512, "micro_batch_size": 4})
    assert found["model"] == "Qwen/Qwen2.5-0.5B"
    check(f"python run_sft.py {file}", {"sequence_length": 2048, "num_gpus": 1})


def test_what_is_passed_over_is_said() -> None:
    launch = read(f"accelerate launch train.py {LLAMA} --learning_rate 1e-4 --frobnicate 3 --optim ademamix"
                  " --auto_find_batch_size --lora_exclude_modules lm_head")  # fmt: skip
    said = " / ".join(launch.notes)
    for part in ("no effect on the memory counted here: --learning_rate", "unknown to Trainer, left out: --frobnicate",
                 "--auto_find_batch_size is not counted", "ademamix: its third state", "--lora_exclude_modules is not",
                 "weights are loaded in bf16", "nothing says how many GPUs"):  # fmt: skip
        assert part in said, part


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("accelerate launch train.py --bf16", "names no model"),
        (f"python train.py {LLAMA} --per_device_train_batch_size many", "--per_device_train_batch_size: expected"),
        (f"python train.py {LLAMA} --gradient_checkpointing=perhaps", "--gradient_checkpointing: expected on or off"),
        (f"python train.py {LLAMA} --fsdp --max_length", "--max_length needs a value|--fsdp needs a value"),
        (f"accelerate launch --use_fsdp --fsdp_sharding_strategy 9 train.py {LLAMA}", "fsdp: expected full_shard"),
        (f"python train.py {LLAMA} --deepspeed '{{x'", "expected a JSON object"),
    ],
)
def test_what_cannot_be_read_is_one_line(line: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read(line)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SourceError):
        read(f"accelerate launch --config_file {tmp_path}/no.yaml train.py {LLAMA}")
    assert main(["estimate", "--", "python", "train.py", *LLAMA.split(), "--deepspeed", f"{tmp_path}/no.json"]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_own_flags_before_the_command_win(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(f"estimate --json --gpu 4090 --micro-batch-size 3 --num-gpus 2 -- trl sft {LLAMA} --use_peft")
    main(words)
    scenario = json.loads(capsys.readouterr().out)["scenario"]
    assert (scenario["train"]["micro_batch_size"], scenario["num_gpus"], scenario["train"]["method"]) == (3, 2, "lora")


def test_scripts_of_engines_are_not_taken_for_training() -> None:
    assert not names_a_program(["python", "-m", "http.server"])
    assert not names_a_program(["trl", "vllm-serve", "--model", "x"])
    assert read_command(["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "gpt2"]).engine == "vllm"
    assert names_a_program(["python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_sets_a_key_of_the_scenario(program: str) -> None:
    for name, option in options_of(program).items():
        assert option.takes in ("0", "1", "?", "~", "+"), name
        assert option.key in ("", READ_IN_CODE) or option.key in KINDS[TrainSettings], name
        assert not (option.key and option.note), name


def test_every_optimizer_is_one_of_the_scenarios() -> None:
    for name, option in options_of("optimizer").items():
        optimizer, _, implementation = option.key.partition(" ")
        assert optimizer in OPTIMIZERS, name
        assert implementation in ("", *OPTIMIZER_IMPLS), name


def source_of(package: str, file: str) -> ast.Module:
    """A file of an installed package, read without importing it, which takes long."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return ast.parse((Path(spec.origin).parent / file).read_text("utf-8"))


def test_trainers_options_are_transformers_own() -> None:
    classes = {node.name: node for node in ast.walk(source_of("transformers", "training_args.py"))
               if isinstance(node, ast.ClassDef)}  # fmt: skip
    fields = [node.target.id for node in classes["TrainingArguments"].body
              if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]  # fmt: skip
    assert "optim" in fields
    assert {name for name in fields if not name.startswith("_")} - set(options_of("trainer")) == set()
    optimizers = [ast.literal_eval(node.value) for node in classes["OptimizerNames"].body
                  if isinstance(node, ast.Assign)]  # fmt: skip
    assert set(optimizers) - set(options_of("optimizer")) == set()


def test_default_targets_are_pefts() -> None:
    tables = {node.targets[0].id: node.value for node in source_of("peft", "utils/constants.py").body
              if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
    targets = ast.literal_eval(tables["TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING"])
    for kind, option in options_of("peft_targets").items():
        if isinstance(targets[kind], list):
            assert option.key.split() == targets[kind], kind


@pytest.mark.parametrize(
    "start", ["torchrun --nproc_per_node 2 -m train", "python -m sft", "python3 -m torch.distributed.run -m train"]
)
def test_a_module_of_ones_own_without_a_package_is_a_training_script(start: str) -> None:
    assert read(f"{start} {LLAMA} --per_device_train_batch_size 3").scenario["train"]["micro_batch_size"] == 3


@pytest.mark.parametrize(
    ("line", "script"),
    [("python -m pdb train.py", "train.py"), ("python -m accelerate launch train.py", "train.py"),
     ("accelerate launch -m lm_eval --model hf", None), ("torchrun -m pytest tests", None)],
)  # fmt: skip
def test_a_module_that_runs_another_is_no_training_script(line: str, script: str | None) -> None:
    if script is None:
        assert not names_a_program(shlex.split(line))
    else:
        assert read(f"{line} {LLAMA}").scenario["model"] == "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    "line",
    ["deepspeed --include @ train.py --model_name_or_path gpt2",
     "torchrun --nproc_per_node ² train.py --model_name_or_path gpt2",
     "accelerate launch --num_processes 2 train.py --model_name_or_path gpt2 --use_liger_kernel"],
)  # fmt: skip
def test_odd_launchers_are_read_as_far_as_they_go(line: str) -> None:
    assert read(line).scenario["model"] == "gpt2"


def test_flags_replace_what_a_command_says_with_all_that_follows(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--", "trl", "sft", "--model_name_or_path", "Qwen/Qwen2.5-0.5B", "--use_peft"]
    assert main(["estimate", "--json", "--method", "full", "--precision", "bf16", "--num-gpus", "1", *command]) == 0
    found = json.loads(capsys.readouterr().out)
    train = found["scenario"]["train"]
    assert (train["method"], train["param_dtype"], train["lora_rank"]) == ("full", "bf16", 8)
    assert not any("how many GPUs" in note for note in found["notes"])


@pytest.mark.parametrize("words", [
    "python create_dataset.py --model Qwen/Qwen3-8B --num-samples 8000", "python3 eval.py --model_name Qwen/Qwen3-8B",
])  # fmt: skip
def test_a_script_that_nothing_says_to_train_is_no_training(words: str) -> None:
    with pytest.raises(UsageError, match="is told nothing but a model that a training has: vramwise dry-run"):
        read_command(words.split())


@pytest.mark.parametrize("words", [
    "python finetune_xml.py --model Qwen/Qwen3-8B", "accelerate launch create.py --model_name Qwen/Qwen3-8B",
    "python create.py --model Qwen/Qwen3-8B --per_device_train_batch_size 1",
])  # fmt: skip
def test_a_name_a_launcher_or_an_option_says_that_a_script_trains(words: str) -> None:
    assert read_command(words.split()).scenario["task"] == "train"


def test_a_scripts_own_batch_is_that_of_a_gpu() -> None:
    launch = read_command(
        ["python", "finetune.py", "--model", "Qwen/Qwen3-8B", "--batch-size", "2", "--grad-accum", "4", "--own", "1"]
    )
    train = launch.scenario["train"]
    assert isinstance(train, dict)
    assert (train["micro_batch_size"], train["gradient_accumulation_steps"]) == (2, 4)
    assert launch.notes[0] == "--batch-size is taken as the batch of one GPU"
    assert launch.notes[1].startswith("finetune.py is taken as a training by Trainer: what it sets itself is not seen")
