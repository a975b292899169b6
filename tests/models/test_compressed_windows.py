"""DeepSeek V4's far tokens: a text shorter than a window compresses none, and its keys stay what autocast made them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from saved_by_autograd import saved_by_autograd
from transformers_models import model_config

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"


def small_config(kind: str) -> dict[str, Any]:
    config = {
        "model_type": "deepseek_v4", "vocab_size": 17, "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 8,
        "moe_intermediate_size": 8, "num_experts_per_tok": 1, "n_routed_experts": 2, "layer_types": [kind],
        "mlp_layer_types": ["moe"], "compress_rates": {SPARSE: 2, HEAVY: 2}, "hc_mult": 2, "hc_sinkhorn_iters": 1,
        "sliding_window": 3, "o_groups": 1, "o_lora_rank": 8, "index_n_heads": 1, "index_head_dim": 16,
        "index_topk": 2, "partial_rotary_factor": 0.25, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "max_position_embeddings": 64,
    }  # fmt: skip
    return {**model_config(config).to_dict(), "model_type": "deepseek_v4"}


@pytest.mark.oracle
@pytest.mark.parametrize("kind", [SPARSE, HEAVY])
@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (2, 1), (1, 2), (1, 5)])
def test_saved_bytes_of_texts_around_one_window(kind: str, batch: int, sequence: int) -> None:
    config = small_config(kind)
    execution = Execution(param_dtype="fp32", autocast="bf16", attention="eager", device="cpu")
    forward = record_forward(describe(config), execution, batch=batch, sequence=sequence)
    described = evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence))
    assert described == saved_by_autograd(
        config, "causal-lm", attention="eager", precision="bf16-mixed", batch=batch, sequence=sequence, device="cpu"
    )
