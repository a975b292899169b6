"""Step 3.7 under autocast, where what is kept depends on how many experts are used: here all of them are."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from hypothesis import HealthCheck, given, settings
from saved_by_autograd import saved_by_autograd
from strategies_step import step3p7
from test_saved_for_backward import completed, described_bytes


@pytest.mark.oracle
def test_saved_bytes_under_autocast_when_every_expert_is_used() -> None:
    @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(step3p7())
    def same(config: dict[str, Any]) -> None:
        text = config["text_config"]
        config = completed({**config, "text_config": {**text, "num_experts_per_tok": text["n_routed_experts"]}})
        precision, batch, sequence = "bf16-mixed", 2, 5
        real = saved_by_autograd(
            config, "causal-lm", attention="eager", precision=precision, batch=batch, sequence=sequence, device="cpu"
        )
        assert described_bytes(config, "eager", precision, batch, sequence, "cpu") == real

    same()
