"""What litgpt's own layers keep for backward, beside what its real classes keep.

tests/golden/litgpt_layers.jsonl is what `saved_tensors_hooks` saw of litgpt 0.5.13's GPT; litgpt_layers.py writes it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from litgpt_layers import ADAPTED, BATCH, HF_LLAMA, MODELS, ROWS, SEQUENCE, kept

from vramwise.kernels import kernels_for
from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution, Lora
from vramwise.models.step import BlockRun, record_forward

GOLDEN = [json.loads(line) for line in ROWS.read_text().splitlines()]
LLAMA = HF_LLAMA
QUERIES_AND_VALUES = Lora(8, frozenset({"q_proj", "v_proj"}), 0.05, "bf16")
FUSED = frozenset({"query_key_value", "qkv_proj"})
TARGETS = {
    "query": {"q_proj", *FUSED}, "key": {"k_proj", *FUSED}, "value": {"v_proj", *FUSED},
    "projection": {"o_proj", "dense", "self_attn.dense"},
    "mlp": {"gate_proj", "up_proj", "gate_up_proj", "down_proj", "fc1", "fc2", "dense_h_to_4h", "dense_4h_to_h"},
    "head": {"lm_head", "embed_out"},
}  # fmt: skip
AXES = with_rounded_axes(batch=BATCH, sequence=SEQUENCE)


def recorded(config: dict[str, Any], lora: Lora | None, device: str = "cpu", dtype: str = "bf16") -> Any:
    model = describe({**config, "tie_word_embeddings": False})
    own = kernels_for(("litgpt",), model.config)
    execution = Execution(param_dtype=dtype, lora=lora, device=device, kernels=own)  # type: ignore[arg-type]
    return record_forward(model, execution, batch=BATCH, sequence=SEQUENCE)


def sizes(run: BlockRun) -> list[int]:
    return sorted(int(evaluate(storage.nbytes, AXES)) for storage, _ in run.saved)


def named(row: dict[str, Any]) -> str:
    return f"{row['model']} {row['trains']} {row['dtype']}"


@pytest.mark.parametrize("row", GOLDEN, ids=named)
def test_a_layer_and_the_head_keep_what_litgpt_keeps(row: dict[str, Any]) -> None:
    config, parts = MODELS[row["model"]][0], ADAPTED[row["trains"]]
    targets = frozenset().union(*(TARGETS[part] for part in parts or ()))
    forward = recorded(config, Lora(8, targets, 0.05, row["dtype"]) if parts else None, dtype=row["dtype"])
    assert sizes(forward.runs[2]) == row["layer 1"]
    assert sizes(forward.runs[-2]) == row["head"]


@pytest.mark.parametrize("row", GOLDEN, ids=named)
def test_the_rows_are_litgpts(row: dict[str, Any]) -> None:
    pytest.importorskip("litgpt")
    settings = MODELS[row["model"]][1]
    found = kept(settings, ADAPTED[row["trains"]], row["dtype"])
    assert found == {name: row[name] for name in found}


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
    gemma = {**LLAMA, "model_type": "gemma3_text", "head_dim": 16}
    assert kernels_for(("litgpt",), describe(gemma).config)[0].overrides == ()


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
