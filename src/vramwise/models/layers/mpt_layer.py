"""A layer of MPT, as transformers and MosaicML's llm-foundry build it."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.mlp import plain_mlp
from vramwise.models.operations.attention import LLAMA, Attention
from vramwise.models.operations.early_attention import MPT
from vramwise.models.operations.experts import Clip
from vramwise.models.operations.simple import Clamp
from vramwise.records import record


@record
class Switches:
    """What llm-foundry lets a config choose; `own` says that the class of transformers cannot."""

    alibi: bool
    bias: bool
    inner: int
    groups: int
    norm_heads: bool
    dropout: float
    after: float
    clip: bool
    norm_style: str
    own: bool


def norm(b: BlockBuilder, x: Value, name: str, s: Switches) -> Value:
    return b.layer_norm(x, name, bias=s.bias, style=s.norm_style)


def attention(b: BlockBuilder, x: Value, c: Config, s: Switches) -> Value:
    """Attention in eager mode where ALiBi is on; without it the usual paths."""
    b.part = "attention"
    heads, d = c.num_attention_heads, x.width // c.num_attention_heads
    fused = b.linear(x, "attn.Wqkv", x.width + 2 * s.groups * d, bias=s.bias)
    if s.clip:
        fused = b.unary(Clip() if s.own else Clamp(), fused)
    q, k, v = b.split(fused, [x.width, s.groups * d, s.groups * d])
    if s.norm_heads:
        q, k = norm(b, q, "attn.q_ln", s), norm(b, k, "attn.k_ln", s)
    q, k, v = (b.heads_first(b.heads(y, n)) for y, n in ((q, heads), (k, s.groups), (v, s.groups)))
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=s.groups,
            dropout=s.dropout,
            style=MPT if s.alibi else LLAMA,
            eager_only=s.alibi,
            has_flash=True,
        ),
        q,
        k,
        v,
        module="attn",
    )
    return b.linear(mixed, "attn.out_proj", x.width, bias=s.bias, shard="row")


def layer(c: Config, s: Switches, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"transformer.blocks.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(b.dropout(attention(b, norm(b, x, "norm_1", s), c, s), s.after), x)
    h = plain_mlp(b, norm(b, x, "norm_2", s), s.inner, "gelu", module="ffn", act="act", bias=s.bias)
    return b.build(hidden=b.add(b.dropout(h, s.after), x))
