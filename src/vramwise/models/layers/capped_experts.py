"""Switch's experts: a token meets one of them, and each takes no more tokens of a sequence than its capacity."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.capped_experts import CappedRouter
from vramwise.models.operations.experts import ExpertMlps

MOST_EXPERTS = 4096


def capped_experts(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    """One expert of two products for each token, as far as its capacity goes."""
    count, width = c.size("num_experts"), c.size("d_ff")
    if count > MOST_EXPERTS:
        raise c.error(f"num_experts: at most {MOST_EXPERTS}, got {count}")
    router = f"{module}.router.classifier"
    gate = [b.parameter(router, "weight", (count, x.width), part="router")]
    if c.flag("router_bias"):
        gate.append(b.parameter(router, "bias", (count,), part="router"))
    noisy = c.number("router_jitter_noise", 0.01) > 0
    x, chosen = b.op(CappedRouter(jitters=noisy), router, [x], [x.width, 1], gate)
    weights = []
    for i in range(count):
        name = f"{module}.experts.expert_{i}"
        weights += [
            b.parameter(f"{name}.wi", "weight", (width, x.width), part="experts", shard="expert_column"),
            b.parameter(f"{name}.wo", "weight", (x.width, width), part="experts", shard="expert_row"),
        ]
    return b.op(
        ExpertMlps(
            num_experts=count,
            experts_per_token=1,
            style="capped",
            chunk_size=c.size("expert_capacity", default=64),
            dropout=c.number("dropout_rate"),
            function=c.text("dense_act_fn", "relu"),
        ),
        f"{module}.experts",
        [x, chosen],
        [x.width],
        weights,
    )[0]
