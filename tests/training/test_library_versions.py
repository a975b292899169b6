"""What older versions of bitsandbytes and torch hold more: their published source, and measured peaks."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.frameworks.versions import bitsandbytes_version
from vramwise.scenario import Scenario
from vramwise.units import GB, MIB


def peak(version: str, framework: str = "litgpt") -> float:
    """Llama 2 7B, QLoRA on queries and values, one alpaca sample of 1,304 tokens."""
    train = {
        "framework": framework, "framework_version": f"torch 2.1.0, bitsandbytes {version}", "method": "qlora",
        "precision": "bf16", "param_dtype": "bf16", "optimizer_impl": "foreach", "micro_batch_size": 1,
        "gradient_accumulation_steps": 128, "sequence_length": 1304, "checkpointing": "none", "loss": "chunked",
        "attention": "sdpa", "quantization": "nf4", "lora_rank": 8, "lora_targets": ["q_proj", "v_proj"],
        "lora_dropout": 0.05, "lora_dtype": "bf16",
    }  # fmt: skip
    scenario = {"model": "meta-llama/Llama-2-7b-hf", "task": "train", "gpu": "A100-40GB", "train": train}
    return estimate(scenario).quantities["peak_allocated"].expected


def test_a_measured_peak_with_a_version_that_keeps_inputs() -> None:
    """Lightning-AI/litgpt tutorials/resource-tables.md: 14.14 GB with bitsandbytes 0.41.1."""
    assert peak("0.41.1") == pytest.approx(14.14 * GB, rel=0.005)


def test_inputs_are_left_from_0_43_2_and_fp16_copies_from_0_43() -> None:
    """`ctx.tensors = (A, B)` in 0.43.1, `(None, B)` in 0.43.2; `.half()` in Params4bit.cuda until 0.42."""
    assert peak("0.42.0") > peak("0.43.0") == peak("0.43.1") > peak("0.43.2") == peak("0.50.2")


def test_transformers_keeps_them_too() -> None:
    assert peak("0.43.1", "transformers") > peak("0.43.2", "transformers")


BERT = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 1024,
    "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30522,
    "max_position_embeddings": 512, "num_labels": 2,
}  # fmt: skip


def quantities(version: str, **changed: Any) -> Any:
    """BERT large without a head in fp32 on a V100: four samples of 512 tokens, attention in single operations."""
    train = {
        "framework": "transformers", "framework_version": version, "method": "full", "precision": "fp32",
        "optimizer_impl": "for-loop", "micro_batch_size": 4, "sequence_length": 512, "checkpointing": "none",
        "attention": "eager", **changed,
    }  # fmt: skip
    return estimate({"model": BERT, "task": "train", "gpu": "V100-16GB", "train": train}).quantities


def test_softmax_keeps_its_input_before_torch_1_11() -> None:
    """24 layers of 16 heads, 4 samples, 512 × 512 scores of 4 bytes."""
    kept, left = (quantities(f"torch {version}")["peak_allocated"].expected for version in ("1.10", "1.11"))
    assert kept - left == pytest.approx(24 * 16 * 4 * 512 * 512 * 4, rel=0.01)


def test_kernels_load_at_the_start_before_torch_1_13() -> None:
    """The transformers documentation measured 1,343 MiB on a V100 after a tensor of one element."""

    def outside(version: str) -> float:
        found = quantities(f"torch {version}")
        return float(found["nvidia_smi"].expected - found["peak_reserved"].expected)

    assert outside("1.12.1") == pytest.approx(1343 * MIB, rel=0.01)
    assert outside("1.13.0") == outside("2.13") < 500 * MIB


def test_a_documented_run_with_such_a_torch() -> None:
    """huggingface/transformers perf_train_gpu_one.mdx: NVML 14,949 MiB, 13,939 in fp16; a fifth more than without."""
    assert quantities("torch 1.10")["nvidia_smi"].expected == pytest.approx(14949 * MIB, rel=0.06)
    half = quantities("torch 1.10", precision="fp16-mixed")
    assert half["nvidia_smi"].expected == pytest.approx(13939 * MIB, rel=0.09)


@pytest.mark.parametrize(("quantization", "widens"), [("nf4", True), ("gptq-int4", False)])
def test_preparation_widens_nothing_beside_gptq_weights(quantization: str, widens: bool) -> None:
    """peft's prepare_model_for_kbit_training casts embeddings and norms to fp32 for bitsandbytes, not for GPTQ."""
    train = {"method": "qlora", "quantization": quantization, "precision": "bf16", "lora_rank": 8}
    sizes = [
        estimate({"model": "meta-llama/Llama-2-7b-hf", "task": "train", "train": {**train, "kbit_preparation": done}})
        .quantities["weights"].expected
        for done in (False, True)
    ]  # fmt: skip
    assert (sizes[1] > sizes[0]) == widens


def test_the_described_bitsandbytes_stands_for_one_that_nobody_names() -> None:
    train = Scenario.from_dict({"model": "gpt2", "task": "train", "train": {"framework": "pytorch"}}).train
    assert bitsandbytes_version(train) == (0, 50, 2)
