"""Pieces that many decoder families share."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config


def token_embedding(c: Config, module: str = "model.embed_tokens") -> Block:
    """The first block: token ids -> hidden states."""
    b = BlockBuilder("")
    return b.build(hidden=b.embedding(module, c.vocab_size, c.hidden_size))


def gated_mlp(
    b: BlockBuilder, x: Value, width: int, function: str, *, module: str = "mlp", bias: bool = False,
    sub_norm: str | None = None,
) -> Value:  # fmt: skip
    """down(act(gate(x)) · up(x)), with a norm before the last product where `sub_norm` names one."""
    gate = b.linear(x, f"{module}.gate_proj", width, bias=bias, part="mlp")
    gate = b.activation(gate, function, f"{module}.act_fn")
    up = b.linear(x, f"{module}.up_proj", width, bias=bias, part="mlp")
    h = b.multiply(gate, up)
    h = b.rms_norm(h, sub_norm) if sub_norm else h
    return b.linear(h, f"{module}.down_proj", x.width, bias=bias, shard="row", part="mlp")


def gated_norm(b: BlockBuilder, x: Value, module: str, rank: int) -> Value:
    """Root-mean-square norm, times a gate of two products with `rank` columns between them unless that is 0."""
    if not rank:
        return b.rms_norm(x, module)
    y = b.rms_norm(x, f"{module}.norm")
    inner = b.activation(b.linear(y, f"{module}.mlp.fc1", rank, part="norm"), "silu", f"{module}.mlp")
    gate = b.linear(inner, f"{module}.mlp.fc2", x.width, shard="row", part="norm")
    return b.op("sigmoid_gate", module, [y, gate], [x.width])[0]


def activated(b: BlockBuilder, x: Value, function: str, module: str) -> Value:
    """An MLP's activation; xIELU has two trainable numbers of its own."""
    if function != "xielu":
        return b.activation(x, function, module)
    return b.unary("xielu", x, module, [b.parameter(module, f"alpha_{n}", (1,), part="mlp") for n in "pn"])


def plain_mlp(
    b: BlockBuilder, x: Value, width: int, function: str, *, module: str = "mlp",
    names: tuple[str, str] = ("up_proj", "down_proj"), act: str = "act_fn", bias: bool = False,
) -> Value:  # fmt: skip
    """down(act(up(x)))."""
    h = b.linear(x, f"{module}.{names[0]}", width, bias=bias, part="mlp")
    h = activated(b, h, function, f"{module}.{act}")
    return b.linear(h, f"{module}.{names[1]}", x.width, bias=bias, shard="row", part="mlp")


def logits(
    b: BlockBuilder, x: Value, c: Config, norm: str, *, tied: bool, norm_style: str = "llama", layer_norm: bool = False,
    module: str = "lm_head", embedding: str = "model.embed_tokens", capped: bool = False,
) -> Value:  # fmt: skip
    """Final norm and output projection, whose weight may be that of the embedding `embedding`."""
    x = b.layer_norm(x, norm) if layer_norm else b.rms_norm(x, norm, style=norm_style)
    tied_to = f"{embedding}.weight" if tied else None
    y = b.linear(x, module, c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return b.softcap(y) if capped else y


def lm_head(c: Config, norm: str, **switches: Any) -> Block:
    """The last block: `logits` of the stream."""
    b = BlockBuilder("")
    return b.build(logits=logits(b, b.input("hidden", c.hidden_size), c, norm, **switches))
