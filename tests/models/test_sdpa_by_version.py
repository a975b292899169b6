"""Classes that had SDPA in other versions of transformers than the one installed: what autograd keeps with it."""

from __future__ import annotations

from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

from config_strategies import STRATEGIES
from how_many import a_family
from hypothesis import given
from hypothesis import strategies as st
from saved_by_autograd import saved_by_autograd
from transformers_models import model_config

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward


@pytest.mark.oracle
@pytest.mark.parametrize(("model_type", "named"), [("gemma2", "Gemma2"), ("vaultgemma", "VaultGemma")])
def test_gemma_2_with_sdpa_leaves_the_cap_on_scores_out(
    model_type: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in 4.48 to 5.20, where the class has SDPA and is the same otherwise; the one installed refuses a cap."""
    monkeypatch.setattr(getattr(transformers, f"{named}PreTrainedModel"), "_supports_sdpa", True)

    @a_family(10)
    @given(STRATEGIES[model_type](), st.sampled_from(["fp32", "bf16"]), st.integers(1, 3), st.integers(4, 9))
    def same(config: dict[str, Any], precision: str, batch: int, sequence: int) -> None:
        config = {**model_config(config).to_dict(), "model_type": model_type}
        head = describe(config).head
        uncapped = {**config, "attn_logit_softcapping": None}
        real = saved_by_autograd(
            uncapped, head, attention="sdpa", precision=precision, batch=batch, sequence=sequence, device="cpu"
        )
        execution = Execution(param_dtype=precision, device="cpu", types_gaining_sdpa=frozenset({model_type}))
        forward = record_forward(describe(config), execution, batch=batch, sequence=sequence)
        assert evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence)) == real

    same()


SMALL_GPTJ = {"n_layer": 3, "n_embd": 64, "n_head": 4, "rotary_dim": 8, "n_positions": 256, "vocab_size": 128}
SIZES = ((2, 7), (2, 16), (1, 32))


@pytest.mark.parametrize(
    ("model_type", "recorded"),
    [("gptj", (152_996, 349_700, 352_780)), ("codegen", (165_092, 377_348, 383_500))],
)
def test_gptj_and_codegen_have_sdpa_since_5_24(model_type: str, recorded: tuple[int, ...]) -> None:
    """What autograd keeps in bf16 on the CPU, recorded with transformers 5.24.0 and torch 2.13.0."""
    model = describe({"model_type": model_type, **SMALL_GPTJ})
    execution = Execution(device="cpu", types_gaining_sdpa=frozenset({model_type}))
    for (batch, sequence), expected in zip(SIZES, recorded, strict=True):
        forward = record_forward(model, execution, batch=batch, sequence=sequence)
        assert evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence)) == expected


@pytest.mark.parametrize(
    ("model_type", "recorded"), [("t5", (232_066, 588_034, 698_626)), ("mt5", (285_826, 710_914, 821_506))]
)
def test_t5_widens_scores_before_5_15(model_type: str, recorded: tuple[int, ...]) -> None:
    """What autograd keeps in bf16 on the CPU with eager attention, recorded with transformers 4.52.4."""
    config = {"num_layers": 2, "d_model": 64, "d_ff": 96, "num_heads": 4, "d_kv": 16, "vocab_size": 128}
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if model_type == "mt5" else {}
    model = describe({"model_type": model_type, **config, **gated})
    execution = Execution(device="cpu", attention="eager", wide_softmax=True)
    for (batch, sequence), expected in zip(SIZES, recorded, strict=True):
        forward = record_forward(model, execution, batch=batch, sequence=sequence)
        assert evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence)) == expected
