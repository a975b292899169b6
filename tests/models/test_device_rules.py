"""Where the CPU rules and the CUDA rules keep different things: the list is part of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 64}
WITHOUT_DROPOUT = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)


def kept(config: dict[str, Any], execution: Execution) -> dict[str, int]:
    """Bytes kept by the operation and role that keeps them."""
    axes = with_rounded_axes(batch=2, sequence=8)
    table: dict[str, int] = {}
    for run in record_forward(describe(config), execution, batch=2, sequence=8).runs:
        for storage, role in run.saved:
            table[role] = table.get(role, 0) + evaluate(storage.nbytes, axes)
    return table


def differing(config: dict[str, Any], **how: Any) -> dict[str, tuple[int, int]]:
    """Role -> (bytes under CUDA rules, bytes under CPU rules), where they are not the same."""
    cuda, cpu = (kept(config, Execution(device=device, **how)) for device in ("cuda", "cpu"))
    roles = sorted(cuda.keys() | cpu.keys())
    return {role: (cuda.get(role, 0), cpu.get(role, 0)) for role in roles if cuda.get(role, 0) != cpu.get(role, 0)}


@pytest.mark.parametrize("precision", [{"param_dtype": "fp32"}, {"param_dtype": "bf16"}])
def test_eager_llama_is_the_same_on_both(precision: dict[str, str]) -> None:
    assert differing(LLAMA, attention="eager", **precision) == {}


def test_dropout_masks_are_bool_on_cuda_and_floats_on_cpu() -> None:
    tokens, width, layers, scores = 2 * 8, 64, 2, 2 * 4 * 8 * 8
    # the embedding's dropout, two residual ones and the attention's in every layer
    elements = tokens * width * (1 + 2 * layers) + scores * layers
    assert differing(GPT2, attention="eager", param_dtype="fp32") == {
        "mul.other": (GPT2_MLP_PRODUCTS, GPT2_MLP_PRODUCTS + elements * 4),
        "native_dropout.mask": (elements, 0),
    }


GPT2_MLP_PRODUCTS = 2 * (2 * 8) * (4 * 64) * 4
"""1 + tanh(…) in both layers' `gelu_new`, the other factor that fp32 products keep."""


def test_norm_statistics_are_fp32_on_cuda_and_in_the_input_dtype_on_cpu() -> None:
    norms, tokens = 2 * 2 + 1, 2 * 8
    assert differing({**GPT2, **WITHOUT_DROPOUT}, attention="eager", param_dtype="bf16") == {
        "native_layer_norm.mean": (norms * tokens * 4, norms * tokens * 2),
        "native_layer_norm.rstd": (norms * tokens * 4, norms * tokens * 2),
    }


def test_cuda_autocast_runs_pow_and_layer_norm_in_fp32_and_cpu_autocast_does_not() -> None:
    roles = differing({**GPT2, **WITHOUT_DROPOUT}, attention="eager", param_dtype="fp32", autocast="bf16")
    assert {"pow.self", "tanh.result"} <= set(roles)
    assert all(cuda > cpu for role, (cuda, cpu) in roles.items() if role in ("pow.self", "tanh.result"))


def test_grouped_heads_in_fp32_fall_back_to_scores_on_cuda_but_not_on_cpu() -> None:
    roles = differing(LLAMA, attention="sdpa", param_dtype="fp32")
    assert roles["_softmax.result"] == (2 * (2 * 4 * 8 * 8) * 4, 0)
    assert roles["_scaled_dot_product_flash_attention_for_cpu.logsumexp"][0] == 0


def test_flash_attention_keeps_its_random_state_on_cuda_alone() -> None:
    roles = differing(LLAMA, attention="sdpa", param_dtype="bf16")
    assert roles["_scaled_dot_product_flash_attention.rng_state"] == (2 * 16, 0)
