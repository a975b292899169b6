"""litgpt's training loop: what outlives a micro-batch, and peaks that its documentation prints."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.units import GB, GIB

LLAMA_2, LLAMA_3 = "meta-llama/Llama-2-7b-hf", "meta-llama/Meta-Llama-3-8B"


def step(model: str, version: str, **changed: Any) -> Any:
    """Rank 32 on queries and values, two samples of 512 tokens, bf16."""
    train = {
        "framework": "litgpt", "framework_version": version, "method": "lora", "precision": "bf16",
        "param_dtype": "bf16", "optimizer_impl": "foreach", "micro_batch_size": 2, "sequence_length": 512,
        "gradient_accumulation_steps": 4, "checkpointing": "none", "attention": "sdpa", "loss": "chunked",
        "lora_rank": 32, "lora_targets": ["q_proj", "v_proj"], "lora_dropout": 0.05, "lora_dtype": "bf16", **changed,
    }  # fmt: skip
    return estimate({"model": model, "task": "train", "gpu": "A10G", "train": train})


@pytest.mark.parametrize(
    ("model", "changed", "printed"),
    [
        (LLAMA_2, {}, 19.77),
        (LLAMA_2, {"method": "qlora", "quantization": "nf4"}, 13.68),
        (LLAMA_3, {"micro_batch_size": 1}, 19.73),
        (LLAMA_3, {"method": "qlora", "quantization": "nf4"}, 17.41),
    ],
)
def test_peaks_of_its_own_table(model: str, changed: dict[str, Any], printed: float) -> None:
    """Lightning-AI/litgpt config_hub/finetune/README.md; the last is the fp16 and bf16 copy of a large output layer."""
    found = step(model, "litgpt 0.4, bitsandbytes 0.42.0", **changed).quantities["peak_allocated"]
    assert found.expected == pytest.approx(printed * GB, rel=0.005)
    assert found.low < printed * GB < found.high


def test_inputs_of_the_last_step_linger_with_old_bitsandbytes_only() -> None:
    def lingering(version: str) -> int:
        found = step(LLAMA_2, version, method="qlora", quantization="nf4")
        returned = next(phase for phase in found.phases if phase.name == "forward return")
        return sum(node.bytes for node in returned.components.children if node.name == "inputs of the last step")

    # Two norms, attention's output and the MLP's product in each of 32 layers; the last norm, but not the first, which
    # needs no gradient; in bf16.
    assert lingering("litgpt 0.4, bitsandbytes 0.42.0") == 2 * 512 * 2 * 32 * (3 * 4096 + 11008)
    assert lingering("litgpt 0.4, bitsandbytes 0.43.2") == 0
    assert lingering("torch 2.1, bitsandbytes 0.41.1") == 0  # the longest sample came first


def test_no_weights_are_shared_between_embedding_and_output() -> None:
    """Llama 3.2 1B has 1,235,814,400 parameters where they are, and 128,256 × 2,048 more in litgpt."""
    found = step("meta-llama/Llama-3.2-1B", "litgpt 0.5")
    assert found.quantities["params"].expected == 1_235_814_400 + 128_256 * 2048


def test_gradients_wait_whole_beside_the_longest_sample_since_it_no_longer_comes_first() -> None:
    sharded = {"checkpointing": "full", "fsdp": "full-shard", "fsdp_version": 1}
    scenario = {"model": LLAMA_2, "task": "train", "gpu": "A100-40GB", "num_gpus": 2}
    train = {"framework": "litgpt", "method": "lora", "precision": "bf16", "micro_batch_size": 4,
             "sequence_length": 1304, "gradient_accumulation_steps": 16, "lora_targets": ["q_proj", "v_proj"],
             **sharded}  # fmt: skip
    old, new = (
        estimate({**scenario, "train": {**train, "framework_version": version}}).quantities["peak_allocated"].expected
        for version in ("torch 2.1.0", "litgpt 0.5, torch 2.7")
    )
    assert old == pytest.approx(23.39 * GB, rel=0.05)  # tutorials/resource-tables.md
    assert new - old > GIB


def test_norms_of_2024_keep_what_they_scale_in_16_bit() -> None:
    """From 0.2.0 to 0.4.5 a norm goes back to 16 bits before the trained weight, since 0.4.6 behind it (for Gemma 2).

    Two norms a layer and the last one, of 4,096 tokens; Lightning-AI/lightning-thunder PR #940 prints the peak.
    """

    def peaks(version: str) -> tuple[int, float]:
        train = {
            "framework": "litgpt", "framework_version": version, "method": "full", "precision": "bf16",
            "optimizer_impl": "fused", "attention": "sdpa", "loss": "standard", "loss_upcast": False,
            "checkpointing": "none", "gradient_accumulation_steps": 1, "micro_batch_size": 1, "sequence_length": 4096,
            "fsdp": "shard-grad-op", "fsdp_version": 2, "reshard_after_forward": False,
        }  # fmt: skip
        found = estimate({"model": LLAMA_2, "task": "train", "gpu": "H100-80GB", "num_gpus": 8, "train": train})
        phase = next(phase for phase in found.phases if phase.name == "forward end")
        saved = sum(node.bytes for node in phase.components.children if node.name == "activations")
        return saved, found.quantities["peak_allocated"].expected

    (old, printed), (new, _) = peaks("litgpt 0.3.1"), peaks("litgpt 0.4.6")
    assert new - old == (2 * 32 + 1) * (4096 * 4096 * 2 + 4096 * 4)  # and the fp32 copy of the weight
    assert printed == pytest.approx(47.45 * GB, rel=0.005)
    assert peaks("litgpt 0.4.5")[0] == old
    assert peaks("torch 2.1.0")[0] == new  # lit-gpt of 2023


def test_adapters_left_gemmas_logits_uncapped_before_0_5_3() -> None:
    """lora.py handed chunks of logits out before the cap, whose tangent is kept for backward; model.py capped them."""

    def saved(version: str, method: str) -> int:
        train = {
            "framework": "litgpt", "framework_version": version, "method": method, "precision": "bf16",
            "checkpointing": "none", "loss": "standard", "micro_batch_size": 2, "sequence_length": 512,
        }  # fmt: skip
        found = estimate({"model": "google/gemma-2-2b", "task": "train", "gpu": "H100-80GB", "train": train})
        phase = next(phase for phase in found.phases if phase.name == "forward end")
        return sum(node.bytes for node in phase.components.children if node.name == "activations")

    assert saved("litgpt 0.5.3", "lora") - saved("litgpt 0.5.2", "lora") == 2 * 512 * 256_000 * 2
    assert saved("litgpt 0.5.3", "full") == saved("litgpt 0.5.2", "full")
