"""State-space mixers against the real modules: every length, also one token, and chunks that do not come out even."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from saved_by_autograd import saved_by_autograd

from vramwise.errors import SourceError
from vramwise.models import describe
from vramwise.models.autograd import axis, evaluate, with_rounded_axes
from vramwise.models.autograd.size import chunks_of
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

MAMBA: dict[str, Any] = {"model_type": "mamba", "hidden_size": 24, "state_size": 4, "num_hidden_layers": 2,
                         "vocab_size": 40}  # fmt: skip
MAMBA2: dict[str, Any] = {"model_type": "mamba2", "hidden_size": 24, "state_size": 4, "num_hidden_layers": 2,
                          "vocab_size": 40, "num_heads": 6, "head_dim": 8, "n_groups": 2, "chunk_size": 4}  # fmt: skip
SIZES = [(1, 1), (2, 1), (1, 7), (2, 8), (3, 12), (2, 3), (2, 4), (2, 5), (1, 4)]


def described(config: dict[str, Any], precision: str, batch: int, sequence: int, padding: bool = False) -> int:
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32",
        autocast="bf16" if precision == "bf16-mixed" else None,
        device="cpu",
        padding=padding,
    )
    forward = record_forward(describe(config), execution, batch=batch, sequence=sequence)
    total: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence))
    return total


@pytest.mark.oracle
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-mixed"])
@pytest.mark.parametrize("config", [MAMBA, MAMBA2], ids=lambda config: config["model_type"])
def test_every_length(config: dict[str, Any], precision: str) -> None:
    for batch, sequence in SIZES:
        real = saved_by_autograd(
            config, "causal-lm", attention="eager", precision=precision, batch=batch, sequence=sequence, device="cpu"
        )
        assert described(config, precision, batch, sequence) == real, (batch, sequence)


@pytest.mark.oracle
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-mixed"])
@pytest.mark.parametrize("config", [MAMBA, MAMBA2], ids=lambda config: config["model_type"])
def test_padding_mask_is_kept_once(config: dict[str, Any], precision: str) -> None:
    real = saved_by_autograd(
        config, "causal-lm", attention="eager", precision=precision, batch=2, sequence=8, device="cpu", padding=True
    )
    assert described(config, precision, 2, 8, padding=True) == real


def test_state_does_not_grow() -> None:
    """A Mamba layer leaves 2 · 24 channels of a convolution window of 4 and of 4 states, whatever the length."""
    caches = describe(MAMBA).caches
    assert [cache.elements(10) for cache in caches] == [48 * 4 + 48 * 4] * 2
    assert caches[0].elements(10) == caches[0].elements(100_000)


def test_chunks_are_an_axis_of_their_own() -> None:
    """One recording answers for many lengths: 256 tokens a chunk, each begun chunk counted whole."""
    axes = with_rounded_axes(batch=2, sequence=300)
    assert evaluate(chunks_of(axis("sequence"), 256), axes) == 2
    assert evaluate(chunks_of(axis("sequence"), 256), with_rounded_axes(sequence=512)) == 2
    assert chunks_of(513, 256) == 3


def test_heads_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(SourceError, match=r"num_heads · head_dim \(56\) is not expand · hidden_size \(48\)"):
        describe({**MAMBA2, "num_heads": 7})


def test_published_count() -> None:
    """Mamba-130M: 129 135 360 parameters (state-spaces/mamba-130m-hf, by its class in transformers 5.23.0)."""
    config = {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "time_step_rank": 48}
    assert describe(config).num_parameters == 129_135_360
