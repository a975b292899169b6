"""Commands and configuration files of frameworks around Trainer become scenarios."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import SourceError, UsageError
from vramwise.estimation import estimate
from vramwise.interop.launch import Launch, read_command
from vramwise.interop.launch.options import READ_IN_CODE, options_of
from vramwise.interop.launch.torchtune import shipped
from vramwise.models import describe
from vramwise.scenario import Scenario, TrainSettings
from vramwise.scenario.definition import KINDS
from vramwise.units import format_bytes

LLAMA = "meta-llama/Llama-3.1-8B"


def read(line: str) -> Launch:
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


def check(line: str, expected: dict[str, Any]) -> Launch:
    launch = read(line)
    found = {**launch.scenario, **launch.scenario["train"]}
    assert {key: found.get(key) for key in expected} == expected
    return launch


@pytest.mark.parametrize(
    ("settings", "flags", "expected"),
    [
        (
            "finetuning_type: lora\nlora_target: all\nbf16: true\ncutoff_len: 4096\nper_device_train_batch_size: 1",
            "",
            {"framework": "llamafactory", "method": "lora", "lora_rank": 8, "lora_targets": "all-linear",
             "precision": "bf16-mixed", "param_dtype": "bf16", "checkpointing": "full", "sequence_length": 4096},
        ),
        (
            "lora_target: q_proj,v_proj\nquantization_bit: 4\nflash_attn: fa2\nneat_packing: true\nfp16: true",
            "lora_rank=64 cutoff_len=1024",
            {"method": "qlora", "quantization": "nf4-dq", "lora_rank": 64, "lora_targets": ["q_proj", "v_proj"],
             "attention": "flash", "packing": True, "document_mask": True, "precision": "fp16-mixed",
             "sequence_length": 1024, "micro_batch_size": 8},
        ),
        (
            "finetuning_type: full\nbf16: true\nenable_liger_kernel: true\nuse_adam_mini: true",
            "",
            {"precision": "bf16-mixed", "param_dtype": "fp32", "loss": "fused-linear", "optimizer": "adam-mini"},
        ),
        (
            "finetuning_type: full\nstage: dpo\npure_bf16: true\nenable_liger_kernel: true\nuse_unsloth_gc: true",
            "",
            {"precision": "bf16", "extra_models": ["reference"], "micro_batch_size": 16, "loss": "preference",
             "offload_activations": "cpu"},
        ),
        (
            "finetuning_type: freeze\nfreeze_trainable_layers: 2\nbf16: true\ndisable_gradient_checkpointing: true",
            "",
            {"method": "freeze", "trainable": [".30.", ".31."], "checkpointing": "none"},
        ),
    ],
)  # fmt: skip
def test_llamafactory(tmp_path: Path, settings: str, flags: str, expected: dict[str, Any]) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(f"model_name_or_path: {LLAMA}\ndataset: alpaca\n{settings}\n")
    launch = check(f"NPROC_PER_NODE=4 llamafactory-cli train {file} {flags}", {**expected, "num_gpus": 4})
    assert not any("unknown" in note for note in launch.notes)


@pytest.mark.parametrize("stage", [1, 2])
def test_pure_bf16_of_llamafactory_has_fp32_copies_under_zero(tmp_path: Path, stage: int) -> None:
    """DeepSpeed's stages 1 and 2 keep them whatever the weights are; a third of what is needed was missing."""
    file = tmp_path / "zero.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": stage}, "bf16": {"enabled": "auto"}}))
    flags = f"--model_name_or_path {LLAMA} --finetuning_type full --pure_bf16 --deepspeed {file}"
    expected = {"precision": "bf16-master", "zero_stage": stage}
    launch = check(f"NPROC_PER_NODE=4 llamafactory-cli train {flags}", expected)
    found = estimate(launch.scenario)
    step = next(phase for phase in found.phases if phase.name == "optimizer step").components
    masters = step.find("master weights")
    assert masters is not None
    assert masters.bytes == pytest.approx(4 * 8_030_261_248 / 4, rel=0.001)


def test_llamafactory_refuses_pure_bf16_under_zero_3(tmp_path: Path) -> None:
    file = tmp_path / "zero.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    flags = f"--model_name_or_path {LLAMA} --finetuning_type full --pure_bf16 --deepspeed {file}"
    with pytest.raises(UsageError, match="pure_bf16: LLaMA-Factory refuses it under DeepSpeed's ZeRO-3"):
        read(f"NPROC_PER_NODE=4 llamafactory-cli train {flags}")


@pytest.mark.parametrize(("bits", "taken", "is_said"), [(4, "nf4-dq", False), (8, "int8", False), (3, "nf4-dq", True)])
def test_llamafactorys_bits_other_than_4_and_8_are_said(bits: int, taken: str, is_said: bool) -> None:
    line = f"llamafactory-cli train --model_name_or_path {LLAMA} --finetuning_type lora --quantization_bit {bits}"
    launch = check(line, {"method": "qlora", "quantization": taken})
    assert any(f"quantization_bit {bits} is not described" in note for note in launch.notes) == is_said


def test_llamafactorys_flags_and_script(tmp_path: Path) -> None:
    flags = f"--model_name_or_path {LLAMA} --finetuning_type lora --bf16 True --stage sft --use_dora"
    check(
        f"torchrun --nproc_per_node 2 src/train.py {flags}", {"num_gpus": 2, "framework": "llamafactory", "dora": True}
    )
    zero = tmp_path / "zero.json"
    zero.write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}')
    check(f"llamafactory-cli train {flags} --deepspeed {zero}", {"zero_stage": 2, "precision": "bf16-master"})
    with pytest.raises(UsageError, match="finetuning_type oft: orthogonal adapters"):
        read(f"llamafactory-cli train --model_name_or_path {LLAMA} --finetuning_type oft")
    with pytest.raises(SourceError):
        read(f"llamafactory-cli train {tmp_path}/none.yaml")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            "adapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_target_linear: true\nsequence_len: 4096\n"
            "sample_packing: true\nmicro_batch_size: 2\noptimizer: adamw_bnb_8bit\nbf16: auto\nflash_attention: true\n"
            "gradient_checkpointing: true\nlora_dropout: 0.05\nlora_alpha: 16",
            {"framework": "axolotl", "method": "qlora", "quantization": "nf4-dq", "lora_rank": 32, "packing": True,
             "lora_targets": "all-linear", "sequence_length": 4096, "micro_batch_size": 2, "optimizer": "adamw-8bit",
             "attention": "flash", "checkpointing": "full", "kbit_preparation": None, "param_dtype": "bf16",
             "kernels": ["axolotl"]},
        ),
        (
            "adapter: lora\nlora_r: 8\nlora_mlp_kernel: false\nlora_qkv_kernel: false\nlora_o_kernel: false",
            {"method": "lora", "kernels": []},
        ),
        (
            "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_rms_norm: true\nadapter: lora\nlora_r: 8",
            {"method": "lora", "kernels": ["liger", "axolotl"]},
        ),
        (
            "adapter: lora\nlora_r: 8\nfsdp: [full_shard, auto_wrap]\nfsdp_config:\n  fsdp_offload_params: false",
            {"fsdp": "full-shard", "fsdp_version": 1, "kernels": []},
        ),
        (
            "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_rope: true\nliger_rms_norm: true\n"
            "liger_glu_activation: true\nliger_fused_linear_cross_entropy: true\nfsdp: [full_shard, auto_wrap]\n"
            "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_version: 2\n  reshard_after_forward: true",
            {"method": "full", "kernels": ["liger"], "loss": "fused-linear", "fsdp": "full-shard", "fsdp_version": 2,
             "offload_params": "cpu", "param_dtype": "bf16", "sequence_length": 512, "checkpointing": "none"},
        ),
        (
            "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\nadapter: lora\nlora_r: 8\n"
            "rl: dpo\nlora_target_modules: [q_proj, v_proj]\ngradient_checkpointing: offload\nfp16: true",
            {"loss": "fused-linear", "lora_targets": ["q_proj", "v_proj"], "extra_models": ["reference"],
             "micro_batch_size": 2, "offload_activations": "cpu", "precision": "fp16-mixed"},
        ),
        (
            "rl: grpo\ntrl:\n  use_vllm: true\n  max_completion_length: 256\n  beta: 0.001\n"
            "vllm:\n  gpu_memory_utilization: 0.85",
            {"extra_models": ["reference"], "rollout_gpu_memory_utilization": None, "sequence_length": 256},
        ),
        (
            "rl: grpo\ntrl:\n  use_vllm: true\n  vllm_mode: colocate\n  max_completion_length: 256\n"
            "vllm:\n  gpu_memory_utilization: 0.4",
            {"extra_models": ["rollout:vllm"], "rollout_gpu_memory_utilization": 0.4},
        ),
    ],
)  # fmt: skip
def test_axolotl(tmp_path: Path, settings: str, expected: dict[str, Any]) -> None:
    file = tmp_path / "config.yml"
    file.write_text(f"base_model: {LLAMA}\ndatasets:\n  - path: x\n    type: alpaca\n{settings}\n")
    launch = check(f"axolotl train {file} --num-processes 2", {**expected, "num_gpus": 2})
    assert not any("unknown" in note for note in launch.notes)
    check(f"accelerate launch --num_processes 4 -m axolotl.cli.train {file}", {**expected, "num_gpus": 4})
    check(f"axolotl train {file} --launcher torchrun -- --nproc_per_node=8", {"num_gpus": 8})


def test_axolotl_on_rays_workers(tmp_path: Path) -> None:
    file = tmp_path / "ray.yaml"
    file.write_text(f"base_model: {LLAMA}\nadapter: lora\nuse_ray: true\nray_num_workers: 4\n"
                    "resources_per_worker:\n  GPU: 1\n")  # fmt: skip
    launch = check(f"axolotl train {file}", {"num_gpus": 4, "method": "lora"})
    assert not any("unknown" in note for note in launch.notes)


def test_axolotls_flags_win_over_its_file(tmp_path: Path) -> None:
    file, zero = tmp_path / "config.yml", tmp_path / "zero3.json"
    file.write_text(f"base_model: {LLAMA}\nmicro_batch_size: 4\nfrobnicate: 1\ndeepspeed: {zero}\nadapter: lora\n")
    with pytest.raises(SourceError, match=r"zero3\.json"):
        read(f"axolotl train {file}")
    zero.write_text('{"zero_optimization": {"stage": 3}}')
    expected = {"micro_batch_size": 1, "zero_stage": 3, "precision": "bf16-master", "lora_dtype": "bf16"}
    launch = check(f"axolotl train {file} --micro-batch-size 1", expected)
    assert any("unknown to axolotl, left out: frobnicate" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"NPROC_PER_NODE=2 swift sft --model {LLAMA} --train_type lora --torch_dtype bfloat16 --lora_rank 16"
            " --per_device_train_batch_size 2 --target_modules all-linear --max_length 2048 --attn_impl flash_attn"
            " --packing true --deepspeed zero3_offload",
            {"framework": "ms-swift", "num_gpus": 2, "method": "lora", "lora_rank": 16, "zero_stage": 3,
             "offload_optimizer": "cpu", "offload_params": "cpu", "precision": "bf16-master", "attention": "flash",
             "packing": True, "gradient_accumulation_steps": 4, "checkpointing": "full", "reduce_bucket_size": None},
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0 swift sft --model {LLAMA} --tuner_type full --deepspeed zero2",
            {"method": "full", "zero_stage": 2, "reduce_bucket_size": 200_000_000, "gradient_accumulation_steps": 16},
        ),
        (
            f"swift pt --model {LLAMA} --quant_bits 4 --quant_method bnb --gradient_checkpointing false",
            {"method": "qlora", "quantization": "nf4-dq", "lora_dropout": 0.05, "lora_targets": "all-linear",
             "precision": "bf16-mixed", "param_dtype": "bf16", "checkpointing": "none"},
        ),
        (
            f"swift rlhf --rlhf_type grpo --model {LLAMA} --use_vllm true --vllm_mode colocate --sleep_level 1"
            " --vllm_gpu_memory_utilization 0.5 --max_length 1024 --max_completion_length 1024 --tuner_type full",
            {"extra_models": ["reference", "rollout:vllm"], "rollout_sleep": True, "sequence_length": 2048,
             "rollout_gpu_memory_utilization": 0.5},
        ),
        (
            f"swift sft --model {LLAMA} --dataset ./a.json ./b.json --model_name Swift Robot --max_length 2048",
            {"sequence_length": 2048},
        ),
        (
            "swift sft --model_type qwen1.5-7b-chat --sft_type lora --lora_target_modules '[q_proj, \"v_proj\"]'",
            {"model": "qwen1.5-7b-chat", "lora_targets": ["q_proj", "v_proj"]},
        ),
        (
            f"swift rlhf --rlhf_type dpo --model {LLAMA} --fsdp fsdp2",
            {"extra_models": ["reference"], "micro_batch_size": 2, "fsdp": "full-shard", "fsdp_version": 2},
        ),
    ],
)  # fmt: skip
def test_swift(line: str, expected: dict[str, Any]) -> None:
    assert not any("unknown" in note for note in check(line, expected).notes)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "torchrun --nnodes 1 --nproc_per_node 4 getting-started/finetuning/finetuning.py --enable_fsdp --use_peft"
            f" --peft_method lora --model_name {LLAMA} --fsdp_config.pure_bf16 --batch_size_training 2",
            {
                "framework": "pytorch",
                "micro_batch_size": 2,
                "sequence_length": 4096,
                "fsdp": "full-shard",
                "fsdp_version": 1,
                "checkpointing": "full",
                "method": "lora",
                "lora_targets": ["q_proj", "v_proj"],
                "num_gpus": 4,
            },
        ),
        (
            f"python -m llama_cookbook.finetuning --use_peft --quantization 8bit --model_name {LLAMA}"
            " --lora_config.r 16",
            {"method": "qlora", "quantization": "int8", "lora_rank": 16, "checkpointing": "none", "fsdp": None},
        ),
        (
            f"torchrun --nproc_per_node 8 finetuning.py --enable_fsdp --low_cpu_fsdp --quantization 4bit"
            f" --quantization_config.quant_type nf4 --use_peft --peft_method lora --model_name {LLAMA}"
            " --fsdp_config.fsdp_cpu_offload",
            {"quantization": "nf4", "offload_params": "cpu", "micro_batch_size": 4},
        ),
        (
            f"python finetuning.py --model_name_or_path {LLAMA} --per_device_train_batch_size 2",
            {"framework": "transformers", "micro_batch_size": 2},
        ),
    ],
)
def test_llama_cookbooks_script(line: str, expected: dict[str, Any]) -> None:
    """meta-llama/llama-cookbook getting-started/finetuning/*.md; a script of one's own of that name is Trainer's."""
    assert not any("unknown" in note for note in check(line, expected).notes)


def test_swifts_sequences_over_ranks_are_filled_up_and_their_loss_goes_by_rows() -> None:
    """modelscope/ms-swift examples/train/sequence_parallel/sequence_parallel_qwen3_5.sh, which printed 68.05 GiB."""
    line = f"NPROC_PER_NODE=8 CELOSS_PARALLEL_SIZE=2048 swift sft --model {LLAMA} --max_length 65535"
    launch = check(f"{line} --sequence_parallel_size 4", {"sequence_length": 65_536, "loss": "chunked"})
    assert any("65,536" in note for note in launch.notes)
    check(line, {"sequence_length": 65_535, "loss": None})


@pytest.mark.parametrize(
    ("flags", "said"),
    [("", True), ("--use_logits_to_keep false", False), ("--sequence_parallel_size 4", False)],
)
def test_swift_makes_logits_of_answers_alone_and_says_that_all_are_taken(flags: str, said: bool) -> None:
    """ms-swift 4.6 trainers/mixin.py get_use_logits_to_keep."""
    launch = check(f"NPROC_PER_NODE=8 swift sft --model {LLAMA} --max_length 4096 {flags}", {})
    assert any("use_logits_to_keep" in note and "every position" in note for note in launch.notes) is said


@pytest.mark.parametrize(
    "line",
    [
        f"swift rlhf --rlhf_type grpo --model {LLAMA} --use_vllm true --vllm_mode server --max_completion_length 1024",
        f"trl grpo --model_name_or_path {LLAMA} --use_vllm --vllm_mode server",
    ],
)
def test_an_engine_on_cards_of_its_own_is_said_not_to_count(line: str) -> None:
    launch = check(line, {"extra_models": ["reference"] if "swift" in line else None})
    assert any("cards of its own" in note for note in launch.notes)


QWEN = "Qwen/Qwen2.5-7B-Instruct"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"NPROC_PER_NODE=8 megatron sft --model {QWEN} --tensor_model_parallel_size 2 --sequence_parallel true"
            " --pipeline_model_parallel_size 2 --global_batch_size 32 --recompute_granularity full"
            " --recompute_method uniform --recompute_num_layers 1 --max_length 8192 --optimizer_cpu_offload true",
            {"framework": "megatron", "model": QWEN, "method": "full", "num_gpus": 8, "tensor_parallel_size": 2,
             "pipeline_parallel_size": 2, "sequence_parallel": True, "num_microbatches": 16, "checkpointing": "full",
             "sequence_length": 8192, "offload_optimizer": "cpu", "precision": "bf16-master",
             "distributed_optimizer": True, "grad_dtype": "fp32"},
        ),
        (
            f"megatron pt --model {QWEN} --tensor_model_parallel_size 4 --context_parallel_size 2",
            {"num_gpus": 8, "checkpointing": "selective", "recompute": ["core_attn"], "attention": "flash",
             "micro_batch_size": 1, "gradient_accumulation_steps": 16, "compile": True, "compiled": ["loss"]},
        ),
        (
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True NPROC_PER_NODE=4 megatron sft"
            " --load /app/Qwen3-30B-A3B-Instruct-2507-mcore --train_type lora --lora_rank 16"
            " --target_modules linear_qkv linear_proj --expert_model_parallel_size 2 --recompute_granularity none",
            {"model": "Qwen3-30B-A3B-Instruct-2507", "method": "lora", "lora_rank": 16, "expert_parallel_size": 2,
             "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"], "checkpointing": None,
             "expandable_segments": True, "lora_dropout": 0.05},
        ),
        (
            f"megatron rlhf --rlhf_type dpo --model {QWEN} --torch_dtype float16 --use_distributed_optimizer false",
            {"extra_models": ["reference"], "micro_batch_size": 2, "precision": "fp16-master",
             "distributed_optimizer": None, "grad_dtype": "fp16"},
        ),
        (
            f"megatron rlhf --rlhf_type grpo --model {QWEN} --vllm_mode colocate --sleep_level 1 --max_length 512",
            {"extra_models": ["reference", "rollout:vllm"], "rollout_sleep": True, "sequence_length": 1024,
             "compile": None},
        ),
    ],
)  # fmt: skip
def test_megatron_swift(line: str, expected: dict[str, Any]) -> None:
    assert not any("unknown" in note or "left out" in note for note in check(line, expected).notes)


def test_ranks_that_a_layout_needs_where_nothing_says_how_many_run() -> None:
    """modelscope/ms-swift@3602360a examples/megatron/moe/qwen3_moe.sh: two stages of eight ranks of experts."""
    line = "megatron sft --model Qwen/Qwen3-30B-A3B --pipeline_model_parallel_size 2 --expert_model_parallel_size 8"
    check(line, {"num_gpus": 16, "expert_tensor_parallel_size": 1})
    check(f"{line} --tensor_model_parallel_size 4", {"num_gpus": 16, "tensor_parallel_size": 4})


def test_the_python_of_an_environment_is_python() -> None:
    for python in ("/opt/venv/bin/python", "/opt/conda/envs/rl/bin/python3.12"):
        check(f"{python} -m openrlhf.cli.train_dpo --pretrain {LLAMA}", {"framework": "deepspeed", "zero_stage": 2})
        check(f"ray job submit -- {python} train.py --model_name_or_path {LLAMA}", {"framework": "transformers"})


SLIME = (
    "ray job submit -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --hf-checkpoint /root/Qwen3-4B"
    " --swiglu --num-layers 36 --hidden-size 2560 --vocab-size 151936 --rollout-batch-size 32 --n-samples-per-prompt 8"
    " --rollout-max-response-len 8192 --global-batch-size 256 --tensor-model-parallel-size 2 --sequence-parallel"
    " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--colocate --use-dynamic-batch-size --max-tokens-per-gpu 9216 --context-parallel-size 2"
            " --sglang-mem-fraction-static 0.7",
            {"framework": "megatron", "model": "Qwen3-4B", "num_gpus": 16, "gpus_per_node": 8, "micro_batch_size": 1,
             "sequence_length": 18432, "tensor_parallel_size": 2, "context_parallel_size": 2, "checkpointing": "full",
             "precision": "bf16-master", "distributed_optimizer": True, "extra_models": ["rollout:sglang"],
             "rollout_gpu_memory_utilization": 0.7, "rollout_sleep": True},
        ),
        (
            "--use-kl-loss --rollout-max-prompt-len 1024 --micro-batch-size 2 --optimizer-cpu-offload",
            {"sequence_length": 9216, "micro_batch_size": 2, "extra_models": None, "offload_optimizer": "cpu",
             "gradient_accumulation_steps": 16},
        ),
    ],
)  # fmt: skip
def test_slime(flags: str, expected: dict[str, Any]) -> None:
    notes = check(f"{SLIME} {flags}", expected).notes
    assert not any("unknown" in note or "left out" in note for note in notes)
    logits = format_bytes(4 * 9216 * 151_936 // 2)  # of a rank's 9,216 tokens, cut over two ranks
    assert any(f"the logits in fp32 once more than Megatron's own ({logits})" in note for note in notes)


EXPERTS = ["experts.down_proj", "experts.gate_up_proj"]


@pytest.mark.parametrize(
    ("model", "targets", "expected"),
    [
        (QWEN, "", "all-linear"),
        ("Qwen/Qwen3-30B-A3B", "", ["all-linear", *EXPERTS]),
        ("Qwen/Qwen3-30B-A3B", "--target_modules linear_qkv", ["q_proj", "k_proj", "v_proj"]),
        ("Qwen/Qwen3-30B-A3B", "--target_modules linear_fc2", ["down_proj", EXPERTS[0]]),
        ("Qwen/Qwen3-30B-A3B", "--target_modules all-linear all-router", ["all-linear", *EXPERTS]),
        (
            "OpenGVLab/InternVL3_5-30B-A3B",
            "",
            [r".*(model\.language_model\.).*\.(k_proj|o_proj|q_proj|v_proj)", *EXPERTS],
        ),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "--freeze_vit false", "all-linear"),
    ],
)
def test_megatrons_adapters_lie_on_experts_and_not_on_a_frozen_tower(
    model: str, targets: str, expected: str | list[str]
) -> None:
    """ms-swift 4.6 megatron/utils/utils.py get_target_modules: TEGroupedLinear is a linear layer; routers are named."""
    launch = read(f"megatron sft --model {model} --tuner_type lora {targets}")
    train = launch.scenario["train"]
    assert (train["lora_targets"], train["lora_dtype"]) == (expected, "bf16")
    assert estimate(launch.scenario).quantities["weights"].expected
    assert any("routers" in note for note in launch.notes) == ("all-router" in targets)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", ("freeze", ["model.language_model.", "lm_head."])),
        ("--freeze_vit false", ("freeze", ["model.language_model.", "model.visual.patch_embed.",
                                           "model.visual.blocks.", "lm_head."])),
        ("--freeze_vit false --freeze_aligner false", ("full", None)),
        ("--freeze_llm true --freeze_aligner false", ("freeze", ["model.visual.merger."])),
        ("--task_type seq_cls --num_labels 3", ("freeze", ["model.language_model.", "score."])),
    ],
)  # fmt: skip
def test_megatron_swift_trains_the_language_model_alone_unless_told_otherwise(
    flags: str, expected: tuple[str, list[str] | None]
) -> None:
    """ms-swift 4.6 megatron_args.py: freeze_vit and freeze_aligner are on by default."""
    launch = read(f"megatron sft --model Qwen/Qwen2.5-VL-7B-Instruct {flags}")
    train = launch.scenario["train"]
    method, trainable = expected
    assert (train["method"], sorted(train.get("trainable", ()))) == (method, sorted(trainable or ()))
    assert estimate(launch.scenario).quantities["weights"].expected


def test_a_frozen_tower_that_is_checkpointed_is_said() -> None:
    """ms-swift 4.6 megatron/trainers/base.py _prepare_vit_gradient_checkpointing: its inputs want gradients then."""
    line = "megatron sft --model Qwen/Qwen2.5-VL-7B-Instruct --vit_gradient_checkpointing true"
    assert any("frozen tower" in note for note in read(line).notes)
    assert not any("frozen tower" in note for note in read(f"{line} --freeze_vit false").notes)


def test_everything_of_a_model_frozen_is_one_line() -> None:
    with pytest.raises(UsageError, match="leave nothing to train"):
        read("megatron sft --model Qwen/Qwen2.5-VL-7B-Instruct --freeze_llm true")


def test_packs_of_pairs_and_other_heads_of_megatron_swift() -> None:
    line = f"megatron rlhf --rlhf_type dpo --model {QWEN}"
    assert read(line).scenario["train"]["micro_batch_size"] == 2
    packed = read(f"{line} --packing true --max_length 8192")
    assert packed.scenario["train"]["micro_batch_size"] == 1
    assert any("a pack holds chosen and rejected" in note for note in packed.notes)
    check(f"megatron sft --model {QWEN} --task_type embedding", {"head": "none"})
    notes = read(f"megatron sft --model {QWEN} --task_type generative_reranker").notes
    assert any("two logits a token" in note for note in notes)


@pytest.mark.parametrize(("flags", "is_said"), [("", True), ("--packing true", False), ("--padding_free false", False)])
def test_unpacked_samples_of_megatron_swift_take_their_own_tokens(flags: str, is_said: bool) -> None:
    """ms-swift 3.7 and 4.6 megatron_args.py: padding_free is on unless told otherwise."""
    notes = read(f"megatron sft --model {QWEN} --max_length 4096 {flags}").notes
    assert any("4,096 tokens each at most" in note for note in notes) is is_said


def test_a_share_of_the_optimizer_may_stay_on_the_gpu() -> None:
    line = f"megatron sft --model {QWEN} --optimizer_offload_fraction 0.65"
    check(f"{line} --optimizer_cpu_offload true", {"offload_optimizer": "cpu", "offload_optimizer_fraction": 0.65})
    check(line, {"offload_optimizer": None, "offload_optimizer_fraction": None})


def test_megatron_swifts_configuration_is_read_under_swifts_name_too(tmp_path: Path) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text(f"model: {QWEN}\ntuner_type: full\ntensor_model_parallel_size: 2\nmax_length: 4096\n")
    for line in (f"megatron sft --config {file}", f"swift sft {file}"):
        check(line, {"framework": "megatron", "tensor_parallel_size": 2, "sequence_length": 4096, "method": "full"})
    with pytest.raises(UsageError, match="--tuner_type: expected full, lora, lora_llm"):
        read(f"megatron sft --config {file} --tuner_type vera")
    with pytest.raises(UsageError, match="Megatron-SWIFT names no model"):
        read("megatron sft --max_length 4096")
    with pytest.raises(UsageError, match="--tensor_model_parallel_size"):
        read(f"megatron sft --model {QWEN} --tensor_model_parallel_size two")


def test_swifts_tuners_that_are_not_described_are_refused() -> None:
    with pytest.raises(UsageError, match="--tuner_type: expected lora or full"):
        read(f"swift sft --model {LLAMA} --tuner_type vera")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "lora_finetune_single_device --config llama3_1/8B_lora_single_device batch_size=4 dataset.packed=True"
            " tokenizer.max_seq_len=4096 model.lora_rank=32",
            {"framework": "torchtune", "method": "lora", "lora_rank": 32, "micro_batch_size": 4, "packing": True,
             "sequence_length": 4096, "gradient_accumulation_steps": 8, "optimizer_impl": "fused", "precision": "bf16",
             "checkpointing": "full", "clip_grad_norm": False, "num_gpus": 1,
             "lora_targets": ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj", "up_proj"]},
        ),
        (
            "full_finetune_single_device --config llama3_1/8B_full_single_device",
            {"method": "full", "optimizer": "paged-adamw-8bit", "gradient_release": True, "micro_batch_size": 2},
        ),
        (
            "--nproc_per_node 8 full_finetune_distributed --config=llama3_1/70B_full fsdp_cpu_offload=True",
            {"fsdp": "full-shard", "num_gpus": 8, "offload_params": "cpu", "offload_optimizer": "cpu"},
        ),
        (
            "lora_finetune_single_device --config phi3/mini_lora_single_device",
            {"lora_targets": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
        ),
        (
            "lora_finetune_single_device --config llama3/8B_qlora_single_device optimizer=torchao.optim.AdamW8bit",
            {"method": "qlora", "quantization": "nf4-dq", "optimizer": "torchao-adamw-8bit", "lora_dtype": "bf16"},
        ),
    ],
)  # fmt: skip
def test_torchtune(line: str, expected: dict[str, Any]) -> None:
    assert not any("unknown" in note for note in check(f"tune run {line}", expected).notes)


def test_torchtunes_configuration_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("model:\n  _component_: torchtune.models.qwen2_5.qwen2_5_7b_instruct\nbatch_size: 3\n"
                    "checkpointer:\n  checkpoint_dir: /data/Qwen2.5-7B-Instruct/\ndtype: fp32\n")  # fmt: skip
    line = f"tune run full_finetune_single_device --config {file}"
    assert check(line, {"precision": "fp32", "micro_batch_size": 3}).scenario["model"] == "Qwen2.5-7B-Instruct"
    with pytest.raises(SourceError, match="did you mean llama3_1/8B_lora"):
        read("tune run lora_finetune_single_device --config llama3_1/8B_lora_single_devise")
    with pytest.raises(UsageError, match="expected a recipe"):
        read("tune run convert --config generation")
    with pytest.raises(SourceError, match="configuration generation is not known"):
        read("tune run generate --config generation")


def test_shipped_configurations_are_read() -> None:
    for name in shipped():
        recipe = "full_finetune_distributed" if "lora" not in name else "lora_finetune_single_device"
        assert read(f"tune run {recipe} --config {name}").engine == "torchtune"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "finetune_lora checkpoints/meta-llama/Llama-3.2-1B --precision bf16-true --quantize bnb.nf4-dq --lora_r 32"
            " --lora_key true --lora_mlp=true --train.micro_batch_size 2 --train.max_seq_length 512",
            {"framework": "litgpt", "model": "meta-llama/Llama-3.2-1B", "method": "qlora", "quantization": "nf4-dq",
             "lora_rank": 32, "lora_targets": ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj"],
             "sequence_length": 512, "gradient_accumulation_steps": 8, "checkpointing": "none", "num_gpus": 1},
        ),
        (
            "finetune EleutherAI/pythia-410m --devices 4",
            {"lora_targets": ["query_key_value"], "fsdp": "full-shard", "fsdp_version": 2, "checkpointing": "full",
             "gradient_accumulation_steps": 4, "precision": "bf16-mixed", "lora_dtype": "fp32"},
        ),
        (
            "finetune_full google/gemma-2b --devices 4 --precision 16-mixed",
            {"precision": "fp16-mixed", "fsdp": "full-shard", "fsdp_version": 1, "checkpointing": "full"},
        ),
        (
            "finetune_full google/gemma-2b --precision transformer-engine",
            {"precision": "fp8-mixed", "kernels": ["transformer-engine"]},
        ),
        (
            "pretrain EleutherAI/pythia-160m --devices 8 --optimizer SGD",
            {"optimizer": "sgd", "optimizer_impl": "fused", "fsdp": "hybrid-shard", "micro_batch_size": 4,
             "gradient_accumulation_steps": 16},
        ),
    ],
)  # fmt: skip
def test_litgpt(line: str, expected: dict[str, Any]) -> None:
    assert not any("unknown" in note for note in check(f"litgpt {line}", expected).notes)


def test_litgpts_configuration(tmp_path: Path) -> None:
    file = tmp_path / "lora.yaml"
    file.write_text("checkpoint_dir: checkpoints/google/gemma-2b\nprecision: bf16-true\nlora_r: 4\ntrain:\n"
                    "  micro_batch_size: 3\n  epochs: 2\n")  # fmt: skip
    check(f"litgpt finetune_lora --config {file} --lora_r 6", {"lora_rank": 6, "micro_batch_size": 3})
    with pytest.raises(UsageError, match="--precision: expected bf16-true"):
        read("litgpt finetune_lora google/gemma-2b --precision 8-true")


@pytest.mark.parametrize(
    "program", ["llamafactory", "axolotl", "swift", "megatron-swift", "slime", "torchtune", "litgpt"]
)
def test_every_option_sets_a_key_of_the_scenario(program: str) -> None:
    for name, option in options_of(program).items():
        assert option.key in ("", READ_IN_CODE) or option.key in KINDS[TrainSettings], name
        assert not (option.key and option.note), name


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", {"precision": "fp8-mixed", "fp8_recipe": "tensorwise"}),
        ("--float8.recipe_name rowwise", {"fp8_recipe": "rowwise", "fp8_operands": None}),
        (
            "--float8.enable_fsdp_float8_all_gather --float8.force_recompute_fp8_weight_in_bwd",
            {"fp8_recipe": "tensorwise", "fp8_all_gather": True, "fp8_operands": "recomputed"},
        ),
    ],
)
def test_torchtitans_float8(flags: str, expected: dict[str, Any]) -> None:
    config = "torchtitan/models/llama3/train_configs/llama3_8b.toml"
    line = f"torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file {config} --model.converters float8"
    check(f"{line} {flags}", expected)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--activation_checkpoint.mode none --activation_checkpoint.selective_ac_option 2", {"checkpointing": "none"}),
        ("--float8.enable_float8_linear", {"precision": "fp8-mixed"}),
        ("--training.fp8_linear dynamic", {"precision": "fp8-mixed"}),
        ("--training.data_parallel_degree 1", {"fsdp": "full-shard"}),
        (
            "--training.batch_size 16 --experimental.pipeline_parallel_degree 2 "
            "--experimental.pipeline_parallel_schedule Interleaved1F1B --experimental.pipeline_parallel_microbatches 4",
            {"pipeline_schedule": "interleaved-1f1b", "num_microbatches": 4, "micro_batch_size": 4},
        ),
        ("--training.disable_cuda_graphs", {"set_to_none": True}),
        ("--model.name llama2 --model.flavor 7B", {"model": "meta-llama/Llama-2-7b-hf"}),
        (
            "--model.name transformers_modeling_backend --model.flavor full --hf_transformers.model Qwen/Qwen3-4B",
            {"model": "Qwen/Qwen3-4B"},
        ),
    ],
)
def test_torchtitans_names_of_every_year(flags: str, expected: dict[str, Any]) -> None:
    """Until 2024 `training.` and `experimental.` held what `parallelism.` does since; float8 had a switch."""
    model = "" if "model.name" in flags else "--model.name llama3 --model.flavor 8B "
    check(f"torchrun --nproc_per_node=8 -m torchtitan.train {model}{flags}", expected)


@pytest.mark.parametrize(
    ("flags", "attention"),
    [
        ("--attn_implementation eager", "eager"),
        ("--attn_implementation flash_attention_2", "flash"),
        ("--param_dtype bf16", "flash"),  # 0.9 train_sft.py: the default
        ("--bf16", None),  # before 0.9 a flag asked for it
        ("--bf16 --packing_samples", "flash"),
    ],
)
def test_openrlhfs_attention_by_version(flags: str, attention: str | None) -> None:
    launch = check(f"deepspeed --module openrlhf.cli.train_sft --pretrain {LLAMA} {flags}", {"attention": attention})
    assert not any("unknown" in note for note in launch.notes)


@pytest.mark.parametrize(("words", "kind", "layers", "parameters"), [
    ("CONFIG_FILE=./torchtitan/models/llama3/train_configs/debug_model.toml ./run_train.sh", "llama", 6, 6_163_712),
    ("torchrun --nproc_per_node 2 -m torchtitan.train --config llama3_debugmodel", "llama", 6, 6_163_712),
    ("torchrun --nproc_per_node 2 -m torchtitan.train --config qwen3_debugmodel", "qwen3", 8, 31_987_968),
])  # fmt: skip
def test_torchtitans_debug_models_are_their_own_sizes(words: str, kind: str, layers: int, parameters: int) -> None:
    """torchtitan b5bcd76c6 models/llama3/__init__.py and models/qwen3/__init__.py: what run_train.sh trains unasked."""
    launch = read_command(words.split())
    model, train = launch.scenario["model"], launch.scenario["train"]
    assert isinstance(model, dict)
    assert isinstance(train, dict)
    assert (model["model_type"], model["num_hidden_layers"]) == (kind, layers)
    assert (train["micro_batch_size"], train["sequence_length"]) == (8, 2048)
    assert describe(model).num_parameters == parameters
