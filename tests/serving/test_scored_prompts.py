"""A prompt that is scored has logits for every token; without a cache every token passes again with all before it."""

from __future__ import annotations

import pytest
import torch

from vramwise import estimate

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 32_000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def phases(**settings):
    table = {"batch_size": 4, "prompt_tokens": 512, "new_tokens": 8, **settings}
    result = estimate({"model": LLAMA, "task": "generate", "generate": table})
    return {phase.name: phase for phase in result.phases}


def test_scoring_holds_fp32_logits_and_their_log_softmax():
    found = phases(prompt_logits=True)
    assert set(found) == {"load", "scoring"}
    logits = found["scoring"].components.find("logits")
    with torch.device("meta"):
        made = torch.empty(4, 512, 32_000, dtype=torch.bfloat16)
        copied = made.float()
        scores = torch.log_softmax(copied, -1)
    assert logits.bytes == copied.nbytes + scores.nbytes
    assert logits.high == logits.bytes + made.nbytes


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_without_a_cache_nothing_is_kept_and_all_tokens_pass_again(cache):
    kept, again = phases(cache_implementation=cache), phases(cache_implementation="none")
    assert kept["decode"].components.find("KV cache").bytes > 0
    assert again["decode"].components.find("KV cache").bytes == 0
    passed = again["decode"].components.find("activations")
    assert passed.inputs["tokens"] == 512 + 8 - 1
    assert passed.bytes > kept["prefill"].components.find("activations").bytes
