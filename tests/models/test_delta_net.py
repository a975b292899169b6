"""Gated DeltaNet against the real modules: lengths around its chunks, states that do not grow, gates."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from saved_by_autograd import saved_by_autograd
from test_state_space import described
from torch.utils.flop_counter import FlopCounterMode
from transformers_models import model_config, real_model

from vramwise.errors import SourceError
from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

SHARED: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 40, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "linear_key_head_dim": 4, "linear_value_head_dim": 6, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
QWEN3_5 = {"model_type": "qwen3_5_text", "intermediate_size": 24, **SHARED}
QWEN3_NEXT = {
    "model_type": "qwen3_next", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8, **SHARED,
}  # fmt: skip
KIMI = {
    "model_type": "kimi_linear", "hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 40, "num_attention_heads": 2,
    "num_key_value_heads": 2, "linear_head_dim": 4, "linear_num_heads": 2, "intermediate_size": 24,
    "layer_types": ["linear_attention"], "pad_token_id": None,
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-mixed"])
@pytest.mark.parametrize("config", [QWEN3_5, QWEN3_NEXT, KIMI], ids=lambda config: config["model_type"])
def test_lengths_around_chunks(config: dict[str, Any], precision: str) -> None:
    completed = {**model_config(config).to_dict(), "model_type": config["model_type"]}
    for batch, sequence in [(2, 1), (1, 64), (2, 65), (1, 128)]:
        real = saved_by_autograd(
            completed, "causal-lm", attention="sdpa", precision=precision, batch=batch, sequence=sequence, device="cpu"
        )
        assert described(completed, precision, batch, sequence) == real, (batch, sequence)


@pytest.mark.oracle
@pytest.mark.parametrize(("batch", "sequence"), [(1, 5), (2, 65), (1, 130)])
@pytest.mark.parametrize("small", [QWEN3_5, KIMI], ids=lambda config: config["model_type"])
def test_flops(small: dict[str, Any], batch: int, sequence: int) -> None:
    """Torch's counter takes the backward of a depthwise convolution for a dense one's, so that is left out."""
    config = {**model_config(small).to_dict(), "model_type": small["model_type"]}
    real, ids = real_model(config, "causal-lm", device="cpu").train(), torch.zeros(batch, sequence, dtype=torch.int64)
    with FlopCounterMode(display=False) as forward_counter:
        loss = real(input_ids=ids, labels=ids, use_cache=False).loss
    with FlopCounterMode(display=False) as backward_counter:
        loss.backward()
    execution = Execution(param_dtype="fp32", attention="eager", device="cpu")
    forward = record_forward(describe(config), execution, batch=batch, sequence=sequence)
    axes = with_rounded_axes(batch=batch, sequence=sequence)
    assert evaluate(forward.flops, axes) == forward_counter.get_total_flops()
    convolution = forward_counter.get_flop_counts()["Global"][torch.ops.aten.convolution]
    dense = backward_counter.get_flop_counts()["Global"][torch.ops.aten.convolution_backward]
    assert evaluate(forward.backward_flops, axes) - 2 * convolution == backward_counter.get_total_flops() - dense


def test_states_of_each_kind_of_layer() -> None:
    """A linear layer keeps 2·8 + 24 channels of 4 positions and 4 matrices of 4 by 6; a full one keys and values."""
    linear, full = describe(QWEN3_5).caches
    assert (linear.conv_state_elements, linear.state_elements) == (40 * 4, 4 * 4 * 6)
    assert linear.elements(10) == linear.elements(100_000)
    assert (full.kind, full.elements_per_token) == ("full", 1 * (8 + 8))


def test_text_alone_when_the_architecture_says_so() -> None:
    config = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForCausalLM"], "text_config": QWEN3_5}
    assert "vision" not in describe(config).parts
    assert describe(config).num_parameters == describe(QWEN3_5).num_parameters


def test_heads_that_do_not_share_evenly_are_one_line() -> None:
    with pytest.raises(SourceError, match=r"linear_num_key_heads \(3\) does not divide linear_num_value_heads \(4\)"):
        describe({**QWEN3_5, "linear_num_key_heads": 3})


def test_unknown_kinds_of_layers_are_one_line() -> None:
    with pytest.raises(SourceError, match=r'"spiral" is no kind of layer; known are linear_attention, full'):
        describe({**QWEN3_5, "layer_types": ["spiral", "full_attention"]})
