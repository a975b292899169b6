"""Kimi Linear's attention hands its query on as it was projected: values as wide as keys show it."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from saved_by_autograd import saved_by_autograd
from test_saved_for_backward import completed, described_bytes

CONFIG = {
    "model_type": "kimi_linear", "hidden_size": 16, "intermediate_size": 10, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 17, "tie_word_embeddings": False,
    "q_lora_rank": None, "pad_token_id": None, "moe_intermediate_size": 8, "num_local_experts": 8,
    "num_experts_per_tok": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "kv_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "linear_head_dim": 4, "linear_num_heads": 1,
    "linear_attn_config": {
        "head_dim": 4, "num_heads": 2, "short_conv_kernel_size": 2, "full_attn_layers": [1], "kda_layers": [],
    },
    "first_k_dense_replace": 0,
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_queries_are_not_put_together_again(attention: str) -> None:
    config = completed(CONFIG)
    where = {"attention": attention, "precision": "fp32", "batch": 1, "sequence": 2, "device": "cpu"}
    assert described_bytes(config, **where) == saved_by_autograd(config, "causal-lm", **where)
