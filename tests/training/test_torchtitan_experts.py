"""torchtitan's own experts: Llama 4's see the tokens that chose them, and scores multiply in fp32."""

from __future__ import annotations

from typing import Any

from vramwise import estimate

TOKENS, HIDDEN, INNER = 4096, 512, 1024
CONFIG: dict[str, Any] = {
    "model_type": "llama4_text", "hidden_size": HIDDEN, "intermediate_size": INNER, "intermediate_size_mlp": INNER,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 512,
    "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "tie_word_embeddings": False,
}  # fmt: skip

MOE = {"model_type": "qwen3_moe", "moe_intermediate_size": INNER, "num_experts": 8, "decoder_sparse_step": 1}


def activations(framework: str, **changes: object) -> int:
    train = {"framework": framework, "precision": "bf16", "micro_batch_size": 1, "sequence_length": TOKENS,
             "checkpointing": "none", "attention": "sdpa", "fsdp": "none", "loss": "standard"}  # fmt: skip
    found = estimate({"model": {**CONFIG, **changes}, "task": "train", "train": train}).phases
    return next(phase for phase in found if phase.name == "forward end").components.find("activations").bytes


def test_more_experts_keep_no_more_where_tokens_choose() -> None:
    few, many = (activations("torchtitan", num_local_experts=n) for n in (8, 16))
    assert abs(many - few) < 0.01 * few  # scores alone
    few, many = (activations("pytorch", num_local_experts=n) for n in (8, 16))
    assert many > 1.5 * few


def test_what_a_second_expert_of_each_token_keeps() -> None:
    """Its rows in fp32 before the score and in 16 bits behind it, gate and up, act(gate), and the product of both."""
    one, two = (activations("torchtitan", num_experts_per_tok=n) for n in (1, 2))
    rows = CONFIG["num_hidden_layers"] * TOKENS
    assert abs((two - one) / rows - (4 * HIDDEN + 2 * HIDDEN + 2 * 4 * INNER)) < 64  # indices and scores besides


def test_outputs_stay_in_fp32_where_scores_come_behind() -> None:
    one, two = (activations("torchtitan", **MOE, num_experts_per_tok=n) for n in (1, 2))
    rows = CONFIG["num_hidden_layers"] * TOKENS
    assert abs((two - one) / rows - (2 * HIDDEN + 2 * 4 * INNER + 4 * HIDDEN)) < 64


def test_experts_that_it_runs_as_transformers_does() -> None:
    mixtral = {**CONFIG, "model_type": "mixtral", "num_experts_per_tok": 2}
    assert activations("torchtitan", **mixtral) == activations("pytorch", **mixtral)
