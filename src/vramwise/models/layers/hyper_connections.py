"""Hyper-connections (arXiv 2409.19606): copies of the stream that each half of a layer reads as one and adds to all.

DeepSeek V4 mixes the streams among themselves too, by a matrix whose rows and columns add up to one; HY 4 does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config


def copies(c: Config) -> Block:
    """The embedding as so many streams."""
    b = BlockBuilder("")
    return b.build(hidden=b.unary("copy_streams", b.input("hidden", c.hidden_size), copies=c.size("hc_mult")))


def _weights(c: Config, width: int) -> tuple[int, dict[str, tuple[int, ...]]]:
    """The number of streams and the shapes of what weighs them."""
    m = c.size("hc_mult")
    mixes = c.has("hc_sinkhorn_iters")
    count = (2 + m) * m if mixes else 2 * m
    return m, {"fn": (count, m * width), "base": (count,), "scale": (3 if mixes else 2,)}


def connected(b: BlockBuilder, streams: Value, c: Config, module: str) -> tuple[Value, ...]:
    """How a half's result joins the streams, how these mix where they do, and what that half reads."""
    m, shapes = _weights(c, streams.width)
    parameters = [b.parameter(module, name, shape, part="mixer") for name, shape in shapes.items()]
    if not c.has("hc_sinkhorn_iters"):
        return b.op("independent_connection", module, [streams], [m, streams.width], parameters)
    widths = [m, m, streams.width]
    return b.op("hyper_connection", module, [streams], widths, parameters, iterations=c.size("hc_sinkhorn_iters"))


def merged(b: BlockBuilder, ways: Sequence[Value], h: Value, streams: Value) -> Value:
    """The streams with a half's result added, after they are mixed where they are."""
    kind = "hyper_merge" if len(ways) == 2 else "independent_merge"
    return b.op(kind, "", [*ways, h, streams], [streams.width])[0]


def joined(b: BlockBuilder, c: Config) -> Value:
    """The streams' weighed sum, which the head reads."""
    m, kind = c.size("hc_mult"), "hyper_head" if c.has("hc_sinkhorn_iters") else "independent_head"
    shapes = {"hc_fn": (m, m * c.hidden_size), "hc_base": (m,), "hc_scale": (1,)}
    parameters = [b.parameter("model.hc_head", name, shape, part="mixer") for name, shape in shapes.items()]
    return b.unary(kind, b.input("hidden", c.hidden_size), "model.hc_head", parameters)
