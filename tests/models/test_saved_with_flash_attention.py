"""What transformers keeps around flash attention of padded batches, with a kernel that keeps what flash-attn's does.

flash-attn needs a GPU; the functions below take its place: they save queries, keys, values, the result, a logarithm for
each head and token and the generator's state, as `FlashAttnFunc` and `FlashAttnVarlenFunc` do.
"""

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
from transformers import PreTrainedModel, modeling_flash_attention_utils
from transformers_models import model_config

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

TYPES = ("llama", "mistral", "qwen2", "phi3", "olmo2", "gemma2")


class Kernel(torch.autograd.Function):
    """(…, heads, head_dim) -> the same."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
        rows, heads = q.shape[:-2], q.shape[-2]
        logarithms, state = torch.empty(heads, *rows), torch.empty(2, dtype=torch.int64)
        ctx.save_for_backward(q, k, v, out, logarithms, state)
        return out


def whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **settings: Any) -> torch.Tensor:
    return Kernel.apply(q, k, v)  # type: ignore[no-any-return, no-untyped-call]


def of_several(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any,
    max_seqlen_k: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, deterministic: bool = False,
) -> torch.Tensor:  # fmt: skip
    return Kernel.apply(q, k, v)  # type: ignore[no-any-return, no-untyped-call]


def described_bytes(config: dict[str, Any], precision: str, batch: int, sequence: int) -> int:
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32",
        autocast="bf16" if precision == "bf16-mixed" else None,
        device="cpu",
        sdpa_backend="flash",
        padding=True,
        padding_share=1 / sequence,
    )
    forward = record_forward(describe(config), execution, batch=batch, sequence=sequence)
    found: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence))
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed"])
def test_padded_batches(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first token of every row is padding: of 4 or 8 tokens a share in whole thousandths."""
    around = modeling_flash_attention_utils
    functions = (whole, of_several, None, around._pad_input, around._unpad_input)
    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda *given, **named: True)
    monkeypatch.setattr(around, "_loaded_implementation", None)
    monkeypatch.setattr(around, "_lazy_imports", lambda *given, **named: functions)

    @a_family(16)
    @given(st.sampled_from(TYPES).flatmap(lambda name: STRATEGIES[name]()), st.integers(1, 3), st.sampled_from([4, 8]))
    def same(config: dict[str, Any], batch: int, sequence: int) -> None:
        config = {**model_config(config).to_dict(), "model_type": config["model_type"]}
        real = saved_by_autograd(
            config, "causal-lm", attention="flash_attention_2", precision=precision, batch=batch, sequence=sequence,
            device="cpu", padding=True,
        )  # fmt: skip
        assert described_bytes(config, precision, batch, sequence) == real

    same()
