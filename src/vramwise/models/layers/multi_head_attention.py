"""Multi-head attention, with a key and a value for every query, as encoders and the first decoders have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import LLAMA, Attention, AttentionStyle


def multi_head_attention(
    b: BlockBuilder, x: Value, c: Config, names: tuple[str, str, str, str], *, bias: bool = True, scaled: bool = False,
    causal: bool = True, dropout: float = 0.0, style: AttentionStyle = LLAMA, eager_only: bool = False,
    module: str = "self_attn", cache: LayerCache | Literal["own"] | None = "own", others: Sequence[Value] = (),
) -> Value:  # fmt: skip
    """`names`: the modules of queries, keys, values and of the last product; `module` and what follows: `attention`'s.

    `bias`: of the first three products; `scaled`: queries are multiplied by a number of their own.
    """
    heads, (*inner, last) = c.heads_of(x.width), names
    q, k, v = (b.heads_first(b.heads(b.linear(x, name, x.width, bias=bias), heads)) for name in inner)
    q = b.scale(q) if scaled else q
    kind = Attention(
        num_heads=heads, num_key_value_heads=heads, causal=causal, dropout=dropout, style=style, eager_only=eager_only
    )
    mixed = b.attention(kind, q, k, v, module=module, cache=cache, others=others)
    return b.linear(mixed, last, x.width, bias=True, shard="row")
