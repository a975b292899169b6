"""Multi-head attention, with a key and a value for every query, as encoders and the first decoders have it."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import BlockBuilder, Value
from vramwise.models.config import Config


def multi_head_attention(
    b: BlockBuilder, x: Value, c: Config, names: tuple[str, str, str, str], *, bias: bool = True, scaled: bool = False,
    **settings: Any,
) -> Value:  # fmt: skip
    """`names`: the modules of queries, keys, values and of the last product; `settings`: those of `attention`.

    `bias`: of the first three products; `scaled`: queries are multiplied by a number of their own.
    """
    heads, (*inner, last) = c.heads_of(x.width), names
    q, k, v = (b.heads_first(b.heads(b.linear(x, name, x.width, bias=bias), heads)) for name in inner)
    q = b.scale(q) if scaled else q
    mixed = b.attention(q, k, v, num_heads=heads, num_key_value_heads=heads, **settings)
    return b.linear(mixed, last, x.width, bias=True, shard="row")
