"""Hyper-connections (arXiv 2409.19606): copies of the stream that each half of a layer reads as one and adds to all.

DeepSeek V4 mixes the streams among themselves too, by a matrix whose rows and columns add up to one; HY 4 does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.hyper import CopyStreams, HyperConnection, HyperHead, HyperMerge
from vramwise.models.operations.independent_streams import IndependentConnection, IndependentHead, IndependentMerge


def copies(c: Config) -> Block:
    """The embedding as so many streams."""
    b = BlockBuilder("")
    return b.build(hidden=b.unary(CopyStreams(copies=c.size("hc_mult")), b.input("hidden", c.hidden_size)))


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
        return b.op(IndependentConnection(), module, [streams], [m, streams.width], parameters)
    widths = [m, m, streams.width]
    return b.op(HyperConnection(iterations=c.size("hc_sinkhorn_iters")), module, [streams], widths, parameters)


def merged(b: BlockBuilder, ways: Sequence[Value], h: Value, streams: Value) -> Value:
    """The streams with a half's result added, after they are mixed where they are."""
    merge = HyperMerge() if len(ways) == 2 else IndependentMerge()
    return b.op(merge, "", [*ways, h, streams], [streams.width])[0]


def joined(b: BlockBuilder, c: Config) -> Value:
    """The streams' weighed sum, which the head reads."""
    m, head = c.size("hc_mult"), HyperHead() if c.has("hc_sinkhorn_iters") else IndependentHead()
    shapes = {"hc_fn": (m, m * c.hidden_size), "hc_base": (m,), "hc_scale": (1,)}
    parameters = [b.parameter("model.hc_head", name, shape, part="mixer") for name, shape in shapes.items()]
    return b.unary(head, b.input("hidden", c.hidden_size), "model.hc_head", parameters)
