"""JetMoE's experts: a router's choices sorted by expert, and products with each expert's own matrix one by one."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.experts import ExpertMlps, SortedRouter
from vramwise.models.operations.simple import AddBias


def route(b: BlockBuilder, x: Value, c: Config, module: str) -> tuple[Value, ...]:
    """Weights of the chosen experts sorted by expert, the order, and the token of each row."""
    count, chosen = c.size("num_local_experts"), c.size("num_experts_per_tok")
    if chosen > count:
        raise c.error(f"num_experts_per_tok ({chosen}) is more than the number of experts ({count})")
    router = [b.parameter(f"{module}.router.layer", "weight", (count, x.width), part="router", is_linear=True)]
    choose = SortedRouter(num_experts=count, experts_per_token=chosen)
    return b.op(choose, f"{module}.router", [x], [1, 1, 1], router)


def experts(
    b: BlockBuilder, c: Config, module: str, style: str, inputs: list[Value], width: int,
    shapes: dict[str, tuple[int, int]],
) -> Value:  # fmt: skip
    """Products with each expert's own matrix, one after another."""
    count, chosen = c.size("num_local_experts"), c.size("num_experts_per_tok")
    parameters = [
        b.parameter(
            f"{module}.{name}", "weight", (count, *shape), part="experts",
            shard="expert_column" if name == "input_linear" else "expert_row",
        )
        for name, shape in shapes.items()
    ]  # fmt: skip
    return b.op(
        ExpertMlps(
            num_experts=count, experts_per_token=chosen, style=style, function=c.text("activation_function", "silu")
        ),
        module,
        inputs,
        [width],
        parameters,
    )[0]


def with_bias(b: BlockBuilder, x: Value, module: str) -> Value:
    return b.unary(AddBias(), x, module, [b.parameter(module, "bias", (x.width,), part="mlp")])
