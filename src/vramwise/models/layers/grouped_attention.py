"""Grouped-query attention of decoders that share little else, with the few switches that these differ by."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention


def grouped_attention(
    b: BlockBuilder, x: Value, c: Config, module: str = "self_attn", *, bias: bool = False, turned: str | None = "half",
    columns: int | None = None, table: str = "default", norms: tuple[str, str] | None = None, output: str = "o_proj",
    output_bias: bool = False, window: int | None = None, scaled_keys: bool = False, width: int | None = None,
    head_dim: int | None = None,
) -> Value:  # fmt: skip
    """Grouped-query attention; `turned`: how the first `columns` of each head turn, None without positions; `norms`:
    modules that norm queries and keys by head; `width`: that of the result where it is not the input's."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, head_dim or c.head_dim
    q = b.heads(b.linear(x, f"{module}.q_proj", heads * d, bias=bias), heads)
    q = b.heads_first(b.rms_norm(q, f"{module}.{norms[0]}") if norms else q)
    k = b.heads(b.linear(x, f"{module}.k_proj", groups * d, bias=bias), groups)
    k = b.heads_first(b.rms_norm(k, f"{module}.{norms[1]}") if norms else k)
    k = b.scale(k) if scaled_keys else k
    v = b.heads_first(b.heads(b.linear(x, f"{module}.v_proj", groups * d, bias=bias), groups))
    if turned is not None:
        q, k = b.rotary(q, k, rotary_dim=columns, style=turned, table=table)
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=groups, window=window, dropout=c.number("attention_dropout")),
        q,
        k,
        v,
        module=module,
    )
    return b.linear(mixed, f"{module}.{output}", width or x.width, bias=output_bias, shard="row")
