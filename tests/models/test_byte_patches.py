"""Byte Latent Transformer: exact for any number of patches, between two stated bounds where the text decides it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from config_strategies import STRATEGIES
from how_many import a_family
from hypothesis import given
from hypothesis import strategies as st
from saved_by_autograd import saved_by_autograd
from test_saved_for_backward import PRECISIONS, completed

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward


def described(
    config: dict[str, Any], precision: str, attention: str, batch: int, length: int, fewest: bool = False
) -> int:
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32", autocast="bf16" if precision == "bf16-mixed" else None,
        attention=attention, device="cpu", fewest_routed=fewest,  # type: ignore[arg-type]
    )  # fmt: skip
    forward = record_forward(describe(config), execution, batch=batch, sequence=length)
    found: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=length))
    return found


def real(
    config: dict[str, Any], precision: str, attention: str, ids: torch.Tensor, lengths: torch.Tensor | None
) -> int:
    """What the class keeps; `lengths`: those of all patches, None where it makes them itself."""
    given_lengths = {} if lengths is None else {"patch_lengths": lengths}
    inputs = {"input_ids": ids, "labels": ids.clone(), "use_cache": False, **given_lengths}
    batch, length = ids.shape
    return saved_by_autograd(
        config, "causal-lm", attention=attention, precision=precision, batch=batch, sequence=length, device="cpu",
        others=inputs,
    )  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("precision", PRECISIONS)
def test_exact_for_patches_of_a_known_length(precision: str) -> None:
    @a_family(8)
    @given(
        STRATEGIES["blt"](), st.sampled_from(["eager", "sdpa"]), st.integers(1, 3), st.integers(1, 9),
        st.integers(1, 5), st.sampled_from([0.0, 0.1]),
    )  # fmt: skip
    def same(config: dict[str, Any], attention: str, batch: int, length: int, each: int, dropout: float) -> None:
        config["patch_size"] = each
        for part in ("encoder", "decoder", "global"):
            config[f"{part}_config"]["dropout"] = dropout
        config, lengths = completed(config), None
        if config["patch_in_forward"]:
            lengths = torch.full((batch, -(-length // each)), each)
            lengths[:, -1] = length - each * (lengths.shape[1] - 1)
        ids = torch.zeros(batch, length, dtype=torch.int64)
        expected = real(config, precision, attention, ids, lengths)
        assert described(config, precision, attention, batch, length) == expected

    same()


@pytest.mark.oracle
@pytest.mark.parametrize("threshold", [0.0, 2.9, 9.0])
def test_within_the_bounds_where_the_text_decides(threshold: float) -> None:
    part = {"vocab_size": 20, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    local = {**part, "hidden_size_global": 16, "cross_attn_k": 2}
    config = completed({
        "model_type": "blt", "vocab_size": 20, "encoder_hash_byte_group_vocab": 6, "patching_threshold": threshold,
        "patcher_config": part, "encoder_config": local, "decoder_config": local, "global_config": part,
    })  # fmt: skip
    ids = torch.arange(2 * 12).view(2, 12) % 20
    most = completed({**config, "patching_mode": "static"})
    low, high = described(config, "fp32", "eager", 2, 12, fewest=True), described(most, "fp32", "eager", 2, 12)
    found = real(config, "fp32", "eager", ids, None)
    assert low <= found <= high
    assert found == (high if threshold == 0.0 else low if threshold == 9.0 else found)
    assert real(most, "fp32", "eager", ids, None) == high
