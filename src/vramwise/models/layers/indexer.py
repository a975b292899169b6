"""DeepSeek sparse attention's indexer: small heads score every earlier token, and attention reads the best few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.latent import LightningIndexer, PooledIndexer
from vramwise.records import record

INDEXED = {"axk2": (16, 128), "deepseek_v32": (64, 128), "glm5_next_text": (32, 128), "glm_moe_dsa": (32, 128)}
"""Types with an indexer: the classes' default numbers of its heads and their width."""


@record
class Indexer:
    """Number and width of its heads; it picks groups of `pool` tokens, 0 where it picks them one by one."""

    num_heads: int
    head_dim: int
    pool: int = 0


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
    settings: dict[str, Any] = {"num_heads": s.num_heads, "head_dim": s.head_dim}
    if not s.pool:
        b.op(LightningIndexer(**settings), module, [x, compressed_query], [], parameters)
        return
    parameters += [
        b.parameter(module, "index_kpool_compress_ape", (s.pool, s.head_dim)),
        b.parameter(module, "index_kpool_compress_gate", (s.head_dim, x.width), is_linear=True),
    ]
    b.op(PooledIndexer(**settings, pool=s.pool), module, [x, compressed_query], [], parameters)


def indexers(c: Config) -> list[Indexer | None]:
    """The indexer of each layer; GLM 5 can let layers share that of a layer before."""
    layers = range(c.num_hidden_layers)
    if c.model_type not in INDEXED:
        return [None for _ in layers]
    heads, width = INDEXED[c.model_type]
    pool = c.size("index_kpool", default=16) if c.model_type == "glm5_next_text" else 0
    own = Indexer(c.size("index_n_heads", default=heads), c.size("index_head_dim", default=width), pool)
    if not c.model_type.startswith("glm"):
        return [own for _ in layers]
    types: Sequence[object] | None = c.by_layer("indexer_types")
    if types is None:
        pattern, period = c.get("index_topk_pattern"), c.size("index_topk_freq", default=1)
        offset = c.size("index_skip_topk_offset", default=2, least=0)
        types = pattern or [max(i - offset + 1, 0) % period == 0 for i in layers]
    if len(types) < len(layers):
        raise c.error(f"indexer_types names {len(types)} layers, num_hidden_layers is {len(layers)}")
    return [own if kind in (True, "full", "F") else None for kind in types[: len(layers)]]
