"""What DeBERTa has for the distances of two tokens: embeddings, their projections, a convolution."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.deberta import (
    DistancesAll,
    DistancesWithin,
    DistanceTable,
    LinearAside,
    MixedWithNeighbours,
)
from vramwise.models.operations.simple import Hold


def first(c: Config) -> bool:
    """Whether it is version 1."""
    return c.model_type == "deberta"


def compared(c: Config) -> tuple[str, ...]:
    """Which comparisons with distances there are: content to position, position to content."""
    named = c.get("pos_att_type")
    kinds = named.lower().split("|") if isinstance(named, str) else c.items("pos_att_type")
    return tuple(str(kind).strip() for kind in kinds or []) if c.flag("relative_attention") else ()


def farthest(c: Config) -> int:
    """The farthest distance that is told apart from farther ones."""
    found = c.size("max_relative_positions", default=-1, least=-1)
    return found if found >= 1 else c.size("max_position_embeddings")


def distances(c: Config, root: str) -> tuple[Block, ...]:
    """The embeddings of distances, with their norm where there are any."""
    b, width, found = BlockBuilder(f"{root}encoder", part="attention"), c.hidden_size, []
    if "layer_norm" in c.text("norm_rel_ebd", "none").lower():
        found += [b.parameter("LayerNorm", leaf, (width,), part="norm") for leaf in ("weight", "bias")]
    if not c.flag("relative_attention"):
        return (b.build(hidden=b.unary(Hold(), b.input("hidden", width), "", found)),) if found else ()
    buckets = -1 if first(c) else c.size("position_buckets", default=-1, least=-1)
    table = b.parameter("rel_embeddings", "weight", (2 * (buckets if buckets > 0 else farthest(c)), width))
    return (b.build(distances=b.op(DistanceTable(read=bool(compared(c))), "", [], [width], [table, *found])[0]),)


def projected_distances(b: BlockBuilder, c: Config) -> list[Value]:
    """The distances as keys (content to position) and as queries (position to content), as far as they are compared.

    With `share_att_key` the weights are those of the tokens' keys and queries, and both products are always made.
    """
    if not c.flag("relative_attention"):
        return []
    width = c.hidden_size
    x = b.input("distances", width)
    x = b.dropout(x, c.number("hidden_dropout_prob", 0.1))
    x = b.unary(DistancesWithin(chunk_size=farthest(c)), x) if first(c) else b.unary(DistancesAll(), x)
    own = {"c2p": "pos_proj", "p2c": "pos_q_proj"} if first(c) else {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
    shared = not first(c) and c.flag("share_att_key")
    names = {"c2p": "key_proj", "p2c": "query_proj"} if shared else own
    found = []
    for kind, name in names.items():
        module = f"attention.self.{name}"
        if kind in compared(c):
            found.append(b.linear(x, module, width, bias=not (first(c) and kind == "c2p")))
        elif shared:
            weights = [b.parameter(module, "weight", (width, width), shard="column", is_linear=True)]
            b.op(LinearAside(), module, [x], [], [*weights, b.parameter(module, "bias", (width,), shard="column")])
    return found


def convolution(c: Config, root: str) -> tuple[Block, ...]:
    """Version 2's convolution over the embeddings, added to what the first layer makes."""
    kernel = 0 if first(c) else c.size("conv_kernel_size", default=0, least=0)
    if not kernel:
        return ()
    b, width = BlockBuilder(f"{root}encoder.conv", part="attention"), c.hidden_size
    found = [b.parameter("conv", "weight", (width, width // c.size("conv_groups", default=1), kernel))]
    found += [b.parameter("conv", "bias", (width,))]
    found += [b.parameter("LayerNorm", leaf, (width,), part="norm") for leaf in ("weight", "bias")]
    x, residual = b.input("embedded", width), b.input("hidden", width)
    (y,) = b.op(
        MixedWithNeighbours(function=c.text("conv_act", "tanh"), p=c.number("hidden_dropout_prob", 0.1)),
        "",
        [x, residual],
        [width],
        found,
    )
    return (b.build(hidden=y),)
