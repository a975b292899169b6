"""torchtitan's selective checkpointing of operations: which outputs are kept, by month."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.result import Result

MIXTURE: dict[str, Any] = {
    "model_type": "deepseek_v2", "hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 256,
    "num_hidden_layers": 2, "first_k_dense_replace": 0, "num_attention_heads": 8, "num_key_value_heads": 8,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 4, "kv_lora_rank": 64, "q_lora_rank": None,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "vocab_size": 1024, "topk_method": "greedy",
}  # fmt: skip
TOKENS, LAYERS, GIB = 4096, 2, 2**30


def kept(version: str, ranks: int = 1, model: dict[str, Any] = MIXTURE) -> int:
    train = {"framework": "torchtitan", "framework_version": version, "precision": "bf16-mixed", "fsdp": "full-shard",
             "checkpointing": "selective", "recompute": ["op"], "sequence_length": TOKENS, "attention": "sdpa",
             "expert_parallel_size": ranks, "loss": "standard"}  # fmt: skip
    found: Result = estimate({"model": model, "task": "train", "num_gpus": 8, "train": train})
    end = next(phase for phase in found.phases if phase.name == "forward end").components.find("activations")
    assert end is not None
    return end.bytes


def test_grouped_products_of_experts_are_in_no_list() -> None:
    """Without a shared expert nothing that is kept is as wide as experts are inside."""
    routed = {"model_type": "qwen3_moe", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
              "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 1024,
              "num_experts": 8, "num_experts_per_tok": 4}  # fmt: skip
    narrow, wide = (kept("2025-08", model={**routed, "moe_intermediate_size": size}) for size in (128, 1024))
    assert narrow == wide


def test_exchanged_tokens_are_kept_since_september_2025() -> None:
    routed = TOKENS * MIXTURE["num_experts_per_tok"] * MIXTURE["hidden_size"] * 2
    assert kept("2025-08", ranks=8) == pytest.approx(kept("2025-08"), rel=0.01)
    assert kept("2025-09", ranks=8) - kept("2025-09") == pytest.approx(2 * LAYERS * routed, rel=0.01)


def test_biased_products_are_kept_since_march_2026() -> None:
    """Queries, keys and values of Qwen 2.5 have biases: aten.addmm, which was in no list before."""
    qwen = {"model_type": "qwen2", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
            "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1024}  # fmt: skip
    more = kept("2026-04", model=qwen) - kept("2026-02", model=qwen)
    assert more == pytest.approx(LAYERS * 3 * TOKENS * 512 * 2, rel=0.02)


@pytest.mark.parametrize(
    ("version", "parallel", "measured_gib"),
    [("torchtitan of 2025-08", {"context_parallel_size": 2, "micro_batch_size": 8}, 71.08),
     ("torchtitan of 2026-06", {"expert_parallel_size": 8, "micro_batch_size": 4}, 84.78)],
)  # fmt: skip
def test_published_deepseek_v2_lite(version: str, parallel: dict[str, int], measured_gib: float) -> None:
    """torchtitan on 8 H100, 16,384 tokens a rank: commit logs of its 16B configuration."""
    found = estimate({"model": "deepseek-ai/DeepSeek-V2-Lite", "task": "train", "num_gpus": 8, "train": {
        "framework": "torchtitan", "framework_version": version, "precision": "bf16-mixed", "fsdp": "full-shard",
        "checkpointing": "selective", "recompute": ["op"], "sequence_length": 4096,
        "loss": "standard", "optimizer_impl": "fused", **parallel,
    }})  # fmt: skip
    reserved = found.quantities["peak_reserved"]
    assert reserved.low <= measured_gib * GIB <= reserved.high
