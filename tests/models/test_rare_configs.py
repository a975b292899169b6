"""Configurations at edges that random ones rarely draw: what autograd keeps equals the real modules', byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from saved_by_autograd import saved_by_autograd
from test_saved_for_backward import completed, described_bytes

from vramwise.errors import SourceError
from vramwise.models import describe

KIMI = {
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
"""Values are as wide as keys: a query that was put together again would lie otherwise than the class's."""
MODERNBERT = {
    "model_type": "modernbert", "hidden_size": 16, "intermediate_size": 5, "num_hidden_layers": 2,
    "num_attention_heads": 1, "vocab_size": 17, "hidden_activation": "gelu", "tie_word_embeddings": False,
    "attention_dropout": 0.0, "local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "cls_token_id": 1, "sep_token_id": 2,
}  # fmt: skip
"""A sequence of half the window is the first that gets a mask."""


@pytest.mark.oracle
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("config", "head", "sequence"),
    [(KIMI, "causal-lm", 2), (MODERNBERT, "masked-lm", 3), (MODERNBERT, "masked-lm", 4), (MODERNBERT, "masked-lm", 5)],
)
def test_edges(config: dict[str, Any], head: str, sequence: int, attention: str) -> None:
    whole = completed(config)
    where = {"attention": attention, "precision": "fp32", "batch": 1, "sequence": sequence, "device": "cpu"}
    assert described_bytes(whole, **where) == saved_by_autograd(whole, head, **where)


QWEN2_AUDIO = {
    "model_type": "qwen2_audio",
    "text_config": {
        "model_type": "qwen2", "hidden_size": 16, "intermediate_size": 10, "num_hidden_layers": 1, "vocab_size": 17,
        "num_attention_heads": 2, "num_key_value_heads": 2,
    },
    "audio_config": {
        "model_type": "qwen2_audio_encoder", "d_model": 32, "encoder_ffn_dim": 5, "encoder_layers": 1,
        "encoder_attention_heads": 2, "num_mel_bins": 4, "max_source_positions": 16,
    },
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (3, 1), (3, 2)])
def test_a_shifted_view_of_one_token_is_empty_and_so_no_copy(batch: int, sequence: int) -> None:
    """torch takes a view of no values as it is: the loss then keeps the labels themselves."""
    whole = completed(QWEN2_AUDIO)
    where = {"attention": "eager", "precision": "fp32", "batch": batch, "sequence": sequence, "device": "cpu"}
    assert described_bytes(whole, **where) == saved_by_autograd(whole, "causal-lm", **where)


def test_exaone_s_pattern_of_letters_is_that_of_a_number() -> None:
    """The files of EXAONE 4 and 4.5 say "LLLG" and name each layer besides."""
    sizes = {"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window": 4096}
    lettered, numbered = (describe({**sizes, "sliding_window_pattern": pattern}) for pattern in ("LLLG", 4))
    assert [cache.kind for cache in lettered.caches] == [cache.kind for cache in numbered.caches]
    with pytest.raises(SourceError, match='expected layers "L" and then one "G", got GLLG'):
        describe({**sizes, "sliding_window_pattern": "GLLG"})
