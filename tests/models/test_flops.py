"""FLOPs read off the tape equal torch's own counter on the real module."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from config_strategies import STRATEGIES
from how_many import a_family
from hypothesis import assume, given
from hypothesis import strategies as st
from test_saved_for_backward import NOT_RUN
from torch.utils.flop_counter import FlopCounterMode
from transformers_models import model_config, model_inputs, real_model

from by_turns import by_turns
from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

# The state-space scans have no matrix products to count, and torch's counter takes the backward of depthwise
# convolutions for a dense one's (test_delta_net.py holds one such model against it without them).
DEPTHWISE = frozenset(
    {"bailing_hybrid", "bamba", "falcon_h1", "falcon_mamba", "glm5_next", "granitemoehybrid", "inkling2_text",
     "inkling_text", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "lfm2_vl", "lfm3", "mamba", "mamba2", "minicpm_ocr",
     "minicpmv4_6", "minicpmv4_7", "nemotron_h",
     "olmo_hybrid", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp",
     "qwen4_exp_text", "recurrent_gemma", "zamba", "zamba2", "zaya"}
)  # fmt: skip
UNCOUNTED = DEPTHWISE | set(NOT_RUN) | {"gemma3"}
TYPES = sorted(set(STRATEGIES) - UNCOUNTED)


def grouped_product(rows: Any, matrices: Any, *_: Any, **__: Any) -> int:
    """Grouped expert products, which the counter has no formula for: each row meets one expert's matrix.

    (rows, inner) by (experts, inner, columns), or for the weights' gradient (inner, rows) by (rows, columns).
    """
    return 2 * int(rows[0]) * int(rows[1]) * int(matrices[-1])


COUNTED_TOO = {torch.ops.aten._grouped_mm: grouped_product}


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", by_turns(TYPES, 2))
def test_forward_and_backward(model_type: str) -> None:
    @a_family(2)
    @given(STRATEGIES[model_type](), st.integers(1, 3), st.integers(1, 9))
    def same(config: dict[str, Any], batch: int, sequence: int) -> None:
        config = {**model_config(config).to_dict(), "model_type": model_type}
        model = describe(config)
        assume(model.head != "none")
        real = real_model(config, model.head, device="cpu").train()
        inputs = model_inputs(real, model.head, batch, sequence)
        with FlopCounterMode(display=False, custom_mapping=COUNTED_TOO) as forward_counter:
            loss = real(**inputs).loss
        with FlopCounterMode(display=False, custom_mapping=COUNTED_TOO) as backward_counter:
            loss.backward()
        execution = Execution(param_dtype="fp32", attention="eager", device="cpu")
        forward = record_forward(model, execution, batch=batch, sequence=sequence)
        axes = with_rounded_axes(batch=batch, sequence=sequence)
        assert evaluate(forward.flops, axes) == forward_counter.get_total_flops()
        assert evaluate(forward.backward_flops, axes) == backward_counter.get_total_flops()

    same()
