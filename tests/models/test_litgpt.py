"""What litgpt's own layers keep for backward, beside what its released code keeps.

The sizes are those that `torch.autograd.graph.saved_tensors_hooks` saw in the second of three layers of litgpt 0.5's
GPT (lora.py, model.py) in bf16 on a CPU: 2 × 32 tokens, hidden 64, 4 heads, rank 8 on queries and values, dropout 0.05;
indices of `index_copy_`, which are a buffer, left out.
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution, Lora
from vramwise.models.litgpt import litgpt_forward

SIZES = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256}
LLAMA = {**SIZES, "model_type": "llama", "intermediate_size": 172, "num_key_value_heads": 4}
GROUPED = {**LLAMA, "num_key_value_heads": 2}
PHI = {**SIZES, "model_type": "phi", "intermediate_size": 256}
STABLELM = {**SIZES, "model_type": "gpt_neox", "intermediate_size": 256}
QUERIES_AND_VALUES = Lora(8, frozenset({"q_proj", "v_proj"}), 0.05, "bf16")
FUSED = Lora(8, frozenset({"query_key_value"}), 0.05, "bf16")
SHARED_BY_ALL = [1024, 2048, *[8192] * 5]
LLAMA_KEEPS = [*[256] * 4, *SHARED_BY_ALL, 16384, 16384, 16384, *[22016] * 3, 24576]
GROUPED_KEEPS = [*[256] * 4, 1024, 2048, *[8192] * 6, 12288, 16384, 16384, *[22016] * 3]
PHI_KEEPS = [128, 128, *SHARED_BY_ALL, 8192, 16384, 24576, 32768]
STABLELM_KEEPS = [128, 128, *PHI_KEEPS]
AXES = with_rounded_axes(batch=2, sequence=32)


def recorded(config: dict[str, Any], lora: Lora | None, device: str = "cpu") -> Any:
    execution = Execution(param_dtype="bf16", lora=lora, device=device)  # type: ignore[arg-type]
    forward = litgpt_forward(describe(config), execution, batch=2, sequence=32)
    assert forward is not None
    return forward


@pytest.mark.parametrize(
    ("config", "lora", "kept"),
    [
        (LLAMA, QUERIES_AND_VALUES, LLAMA_KEEPS),
        (GROUPED, QUERIES_AND_VALUES, GROUPED_KEEPS),
        (PHI, QUERIES_AND_VALUES, PHI_KEEPS),
        (STABLELM, FUSED, STABLELM_KEEPS),
    ],
)
def test_a_layer_keeps_what_litgpt_keeps(config: dict[str, Any], lora: Lora, kept: list[int]) -> None:
    layer = recorded(config, lora).runs[2]
    assert sorted(evaluate(storage.nbytes, AXES) for storage, _ in layer.saved) == kept


def test_logits_leave_in_fp32_and_their_gradients_take_the_place_of_log_probabilities() -> None:
    loss = recorded(LLAMA, QUERIES_AND_VALUES, "cuda").runs[-1]
    logits = 2 * 32 * 256 * 4
    assert evaluate(loss.incoming[0].nbytes, AXES) == logits
    assert [evaluate(storage.nbytes, AXES) for storage, _ in loss.saved] == [logits]


def test_a_product_of_a_trained_weight_keeps_its_input() -> None:
    """Queries, keys and values read one normed input, gate and up another; each of the three norms keeps its own."""
    layer = recorded(LLAMA, None).runs[2]
    inputs = [role for _, role in layer.saved if role == "mm.self"]
    assert len(inputs) == 4


def test_what_litgpt_has_no_described_class_for_runs_as_in_transformers() -> None:
    gemma = {**LLAMA, "model_type": "gemma2", "head_dim": 16}
    assert litgpt_forward(describe(gemma), Execution(), batch=1, sequence=32) is None


def test_gemma_scales_its_embedding_and_gates_with_gelu() -> None:
    gemma = {**LLAMA, "model_type": "gemma", "head_dim": 16}
    first, layer = recorded(gemma, QUERIES_AND_VALUES).runs[:2]
    assert [node.op for node in first.nodes] == ["embedding", "mul_scalar"]
    assert "gelu" in {node.op for node in layer.nodes}


def test_adapters_on_queries_keys_and_values_need_no_zeros_between() -> None:
    everything = Lora(8, frozenset({"q_proj", "k_proj", "v_proj"}), 0.05, "bf16")
    operations = [
        {node.op for node in recorded(LLAMA, lora).runs[2].nodes} for lora in (QUERIES_AND_VALUES, everything)
    ]
    assert ["index_copy_" in names for names in operations] == [True, False]


def test_heads_that_the_kernel_pads_are_cut_back() -> None:
    uneven = {**LLAMA, "hidden_size": 80}  # 20 a head, 24 in the kernel
    assert recorded(uneven, QUERIES_AND_VALUES, "cuda").runs[2].outgoing[0].shape[-1] == 80
