"""Megatron-LM's arguments become a model and a scenario."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from vramwise.errors import UsageError
from vramwise.estimation import estimate
from vramwise.interop.launch import Launch, names_a_program, read_command
from vramwise.interop.launch.flags import flags_of
from vramwise.interop.launch.megatron import MEANINGS, READ_APART, UNCOUNTED
from vramwise.interop.launch.megatron_model import READ_FOR_THE_MODEL
from vramwise.models import describe
from vramwise.scenario import Scenario

RUN = "torchrun --nproc_per_node=8 --nnodes 4 --master_addr here pretrain_gpt.py"
LLAMA = (
    "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention"
    " --num-query-groups 8 --seq-length 4096 --max-position-embeddings 8192 --swiglu --normalization RMSNorm"
    " --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 128256"
    " --make-vocab-size-divisible-by 1"
)


def read(line: str) -> Launch:
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


def settings(flags: str) -> dict[str, Any]:
    return read(f"{RUN} {LLAMA} --micro-batch-size 1 {flags}").scenario["train"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--bf16", {"precision": "bf16-master", "grad_dtype": "fp32", "attention": "flash", "loss": "vocab-parallel"}),
        ("--bf16 --grad-reduce-in-bf16", {"grad_dtype": "bf16"}),
        ("--fp16", {"precision": "fp16-master", "grad_dtype": "fp16"}),
        (
            "--bf16 --fp8-format hybrid --fp8-recipe mxfp8 --fp8-param-gather --use-distributed-optimizer",
            {"precision": "fp8-mixed", "fp8_recipe": "mxfp8", "param_dtype": "fp8_e4m3", "distributed_optimizer": True},
        ),
        ("--bf16 --fp8-format e4m3", {"param_dtype": "bf16", "fp8_recipe": "delayed"}),
        ("--bf16 --recompute-activations", {"checkpointing": "selective", "recompute": ["core_attn"]}),
        (
            "--bf16 --recompute-granularity selective --recompute-modules mla_up_proj moe_act layernorm",
            {"checkpointing": "selective", "recompute": ["mla_up_proj", "moe_act", "layernorm"]},
        ),
        ("--bf16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
         {"checkpointing": "full"}),
        (
            "--bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
            " --main-params-dtype fp16 --main-grads-dtype bf16 --use-distributed-optimizer",
            {"precision_aware_optimizer": True, "optimizer_state_dtype": "bf16", "master_dtype": "fp16",
             "grad_dtype": "bf16"},
        ),
        ("--bf16 --optimizer-cpu-offload --clip-grad 0.0", {"offload_optimizer": "cpu", "clip_grad_norm": False}),
        (
            "--bf16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --sequence-parallel"
            " --num-layers-per-virtual-pipeline-stage 5 --global-batch-size 128",
            {"tensor_parallel_size": 2, "virtual_pipeline_parallel_size": 4, "pipeline_schedule": "interleaved-1f1b",
             "num_microbatches": 32, "sequence_parallel": True},
        ),
        (
            "--bf16 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 18"
            " --decoder-last-pipeline-num-layers 18",
            {"pipeline_layers": [18, 22, 22, 18]},
        ),
        ("--bf16 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", {"fsdp": "full-shard"}),
        ("--bf16 --transformer-impl local", {"attention": "eager"}),
        ("--bf16 --optimizer muon --use-distributed-optimizer", {"optimizer": "muon", "distributed_optimizer": None}),
        ("--bf16 --optimizer dist_muon", {"optimizer": "muon", "distributed_optimizer": True}),
        ("--bf16 --cross-entropy-loss-fusion", {"loss": "vocab-parallel", "compile": True, "compiled": ["loss"]}),
        ("--bf16 --cross-entropy-loss-fusion --cross-entropy-fusion-impl te", {"loss": "fused"}),
    ],
)  # fmt: skip
def test_arguments_become_settings(flags: str, expected: dict[str, Any]) -> None:
    found = settings(flags)
    assert {key: found.get(key) for key in expected} == expected


def test_embedding_and_loss_may_stand_for_a_layer_each() -> None:
    line = LLAMA.replace("--num-layers 80", "--num-layers 78")
    flags = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    found = read(f"{RUN} {line} --bf16 --pipeline-model-parallel-size 4 {flags}").scenario["train"]
    assert found["pipeline_layers"] == [19, 20, 20, 19]


@pytest.mark.parametrize(
    ("flags", "billions"),
    [
        (LLAMA, 70.554),
        ("--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --vocab-size 51200", 174.616),
        (
            "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --seq-length 4096"
            " --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear --vocab-size 32000"
            " --normalization RMSNorm --untie-embeddings-and-output-weights --num-experts 8 --moe-router-topk 2",
            46.703,
        ),
        (
            "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --seq-length 4096"
            " --swiglu --disable-bias-linear --vocab-size 129280 --untie-embeddings-and-output-weights"
            " --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048"
            " --moe-shared-expert-intermediate-size 2048 --moe-layer-freq '([0]*3+[1]*58)' --multi-latent-attention"
            " --q-lora-rank 1536 --kv-lora-rank 512"
            " --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --normalization RMSNorm",
            671.026,
        ),
        (
            "--num-layers 48 --hidden-size 2048 --num-attention-heads 32 --kv-channels 128 --seq-length 4096 --swiglu"
            " --group-query-attention --num-query-groups 4 --disable-bias-linear --qk-layernorm --vocab-size 151936"
            " --untie-embeddings-and-output-weights --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768",
            30.532,
        ),
    ],
)
def test_arguments_describe_the_model(flags: str, billions: float) -> None:
    model = describe(read(f"{RUN} {flags} --bf16 --make-vocab-size-divisible-by 1").scenario["model"])
    assert model.num_parameters / 1e9 == pytest.approx(billions, abs=0.02)


def test_gpus_are_processes_of_a_node_times_nodes() -> None:
    assert read(f"{RUN} {LLAMA} --bf16").scenario["num_gpus"] == 32
    layout = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4"
    assert read(f"python pretrain_gpt.py {LLAMA} --bf16 {layout}").scenario["num_gpus"] == 16
    assert names_a_program(shlex.split(f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {RUN} --bf16"))


def test_embedding_is_padded_and_what_is_passed_over_is_said() -> None:
    line = LLAMA.replace("--vocab-size 128256 --make-vocab-size-divisible-by 1", "--tokenizer-type GPT2BPETokenizer")
    launch = read(f"{RUN} {line} --tensor-model-parallel-size 4 --bf16 --recompute-granularity full --lr 1e-4"
                  " --recompute-method block --recompute-num-layers 4 --mtp-num-layers 1 --frobnicate 3")  # fmt: skip
    assert launch.scenario["model"]["vocab_size"] == 50688
    said = " / ".join(launch.notes)
    assert launch.scenario["train"]["recompute"] == ["block:4"]
    for part in ("--mtp-num-layers is not counted", "no effect", "unknown to Megatron", "50,688"):
        assert part in said


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--num-layers 2 --hidden-size 64 --bf16", "--num-attention-heads is missing"),
        ("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8", "--vocab-size is missing"),
        (f"{LLAMA} --optimizer shampoo", "--optimizer: expected adam"),
        (f"{LLAMA} --moe-layer-freq 2x --num-experts 4", "--moe-layer-freq"),
        (f"{LLAMA} --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 19", "80 layers do not make"),
    ],
)
def test_what_cannot_be_read_is_one_line(line: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read(f"{RUN} {line}")


def test_every_flag_that_is_read_is_megatrons() -> None:
    assert set(MEANINGS) | set(UNCOUNTED) | READ_APART | READ_FOR_THE_MODEL <= set(flags_of("megatron"))


def test_the_scenario_is_estimated() -> None:
    scenario = read(f"{RUN} {LLAMA} --bf16 --tensor-model-parallel-size 8 --sequence-parallel --micro-batch-size 1"
                    " --use-distributed-optimizer").scenario  # fmt: skip
    found = estimate({**scenario, "gpu": "h100-sxm-80gb"})
    assert found.quantities["weights"].expected == pytest.approx(2 * 70.55e9 / 8, rel=0.01)
