"""What DeBERTa keeps for the distances of two tokens: embeddings and their projections."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Parameter
from vramwise.models.config import Config


def first(c: Config) -> bool:
    """Whether it is version 1."""
    return c.model_type == "deberta"


def compared(c: Config) -> tuple[str, ...]:
    """Which comparisons with distances there are: content to position, position to content."""
    kinds = c.get("pos_att_type") or []
    kinds = kinds.lower().split("|") if isinstance(kinds, str) else kinds
    return tuple(str(kind).strip() for kind in kinds) if c.flag("relative_attention") else ()


def distance_projections(b: BlockBuilder, c: Config) -> list[Parameter]:
    """Parameters that turn the embeddings of distances into keys and queries."""
    names = {"c2p": "pos_proj", "p2c": "pos_q_proj"} if first(c) else {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
    if c.flag("share_att_key"):
        return []
    found, width = [], c.hidden_size
    for kind in ("c2p", "p2c"):
        if kind in compared(c):
            module = f"attention.self.{names[kind]}"
            found.append(b.parameter(module, "weight", (width, width), shard="column", is_linear=True))
            if not (first(c) and kind == "c2p"):
                found.append(b.parameter(module, "bias", (width,), shard="column"))
    return found


def distances(c: Config, root: str) -> tuple[Block, ...]:
    """The embeddings of distances, their norm, and version 2's convolution beside the first layer."""
    b, width = BlockBuilder(f"{root}encoder", part="attention"), c.hidden_size
    found, farthest = [], c.size("max_relative_positions", default=-1, least=-1)
    farthest = farthest if farthest >= 1 else c.size("max_position_embeddings")
    if c.flag("relative_attention"):
        buckets = -1 if first(c) else c.size("position_buckets", default=-1, least=-1)
        found.append(b.parameter("rel_embeddings", "weight", (2 * (buckets if buckets > 0 else farthest), width)))
    if "layer_norm" in c.text("norm_rel_ebd", "none").lower():
        found += [b.parameter("LayerNorm", leaf, (width,), part="norm") for leaf in ("weight", "bias")]
    kernel = 0 if first(c) else c.size("conv_kernel_size", default=0, least=0)
    if kernel:
        shape = (width, width // c.size("conv_groups", default=1), kernel)
        found += [b.parameter("conv.conv", "weight", shape), b.parameter("conv.conv", "bias", (width,))]
        found += [b.parameter("conv.LayerNorm", leaf, (width,), part="norm") for leaf in ("weight", "bias")]
    return (b.build(hidden=b.unary("hold", b.input("hidden", width), "", found)),) if found else ()
