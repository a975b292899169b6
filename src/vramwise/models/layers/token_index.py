"""DeepSeek sparse attention's indexer: small heads score every earlier token, and attention reads the best few."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import BlockBuilder, Value


@dataclass(frozen=True, slots=True)
class Indexer:
    """Number and width of its heads."""

    num_heads: int
    head_dim: int


def indexer(b: BlockBuilder, x: Value, compressed_query: Value, s: Indexer, module: str) -> None:
    """Scores of every earlier token; runs outside of autograd."""
    width = s.num_heads * s.head_dim
    parameters = [
        b.parameter(f"{module}.wq_b", "weight", (width, compressed_query.width), is_linear=True),
        b.parameter(f"{module}.wk", "weight", (s.head_dim, x.width), is_linear=True),
        b.parameter(f"{module}.k_norm", "weight", (s.head_dim,), part="norm"),
        b.parameter(f"{module}.k_norm", "bias", (s.head_dim,), part="norm"),
        b.parameter(f"{module}.weights_proj", "weight", (s.num_heads, x.width), is_linear=True),
    ]
    b.op("indexer", module, [x, compressed_query], [], parameters, num_heads=s.num_heads, head_dim=s.head_dim)
