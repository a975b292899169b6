"""MLPs: gated, or two products with an activation between them."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.operations.simple import Xielu


def activated(b: BlockBuilder, x: Value, function: str, module: str) -> Value:
    """An MLP's activation; xIELU has two trainable numbers of its own."""
    if function != "xielu":
        return b.activation(x, function, module)
    return b.unary(Xielu(), x, module, [b.parameter(module, f"alpha_{n}", (1,), part="mlp") for n in "pn"])


def gated_mlp(
    b: BlockBuilder, x: Value, width: int, function: str, *, module: str = "mlp", bias: bool = False,
    sub_norm: str | None = None, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Value:  # fmt: skip
    """down(act(gate(x)) · up(x)), with a norm before the last product where `sub_norm` names one."""
    gate = b.linear(x, f"{module}.{names[0]}", width, bias=bias, part="mlp")
    gate = b.activation(gate, function, f"{module}.act_fn")
    up = b.linear(x, f"{module}.{names[1]}", width, bias=bias, part="mlp")
    h = b.multiply(gate, up)
    h = b.rms_norm(h, sub_norm) if sub_norm else h
    return b.linear(h, f"{module}.{names[2]}", x.width, bias=bias, shard="row", part="mlp")


def plain_mlp(
    b: BlockBuilder, x: Value, width: int, function: str, *, module: str = "mlp",
    names: tuple[str, str] = ("up_proj", "down_proj"), act: str = "act_fn", bias: bool = False,
) -> Value:  # fmt: skip
    """down(act(up(x)))."""
    h = b.linear(x, f"{module}.{names[0]}", width, bias=bias, part="mlp")
    h = activated(b, h, function, f"{module}.{act}")
    return b.linear(h, f"{module}.{names[1]}", x.width, bias=bias, shard="row", part="mlp")
