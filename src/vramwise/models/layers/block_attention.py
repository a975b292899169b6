"""MiniMax M3's attention: normed heads, and in some layers an indexer that picks blocks of tokens for each head."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.latent import BlockScores


def attention(b: BlockBuilder, x: Value, *, c: Config, indexed: bool, columns: int) -> Value:
    """Grouped-query attention with normed heads; an indexer's mask differs by head."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    q, k, v = (
        b.heads(b.linear(x, f"self_attn.{name}_proj", count * d), count)
        for name, count in (("q", heads), ("k", groups), ("v", groups))
    )
    q, k = (b.rms_norm(part, f"self_attn.{name}_norm", style="gemma") for name, part in (("q", q), ("k", k)))
    style = "half_joined" if columns == d else "half"
    q, k = b.rotary(b.heads_first(q), b.heads_first(k), rotary_dim=columns, style=style)
    if indexed:
        indexer(b, x, c.size("index_n_heads"), c.size("index_head_dim"))
    mixed = b.attention(
        Attention(
            num_heads=heads, num_key_value_heads=groups, dropout=c.number("attention_dropout"), block_mask=indexed
        ),
        q,
        k,
        b.heads_first(v),
    )
    return b.linear(mixed, "self_attn.o_proj", x.width, shard="row")


def indexer(b: BlockBuilder, x: Value, heads: int, width: int) -> None:
    """Scores of tokens in blocks; only indices come of them, and its keys are kept."""
    module = "self_attn.indexer"
    parameters = [
        b.parameter(f"{module}.q_proj", "weight", (heads * width, x.width), is_linear=True),
        b.parameter(f"{module}.k_proj", "weight", (width, x.width), is_linear=True),
        b.parameter(f"{module}.q_norm", "weight", (width,), part="norm"),
        b.parameter(f"{module}.k_norm", "weight", (width,), part="norm"),
    ]
    b.op(BlockScores(num_heads=heads), module, [x], [], parameters)
    b.keep(LayerCache("full", 1, width, 0))
