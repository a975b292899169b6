"""InternLM 2 and 2.5: grouped queries from one product whose rows are ordered by group.

Parameter names are those of `modeling_internlm2.py` in internlm/internlm2-chat-7b. What autograd keeps is derived from
Llama's paths, which the file follows.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.early_attention import GroupedQkv

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 103_168, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Each group's queries, key and value lie side by side in the product's result."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("bias", True)
    fused = b.linear(x, "attention.wqkv", (heads + 2 * groups) * d, bias=bias)
    pieces = b.op(
        GroupedQkv(num_heads=heads, num_key_value_heads=groups, broadcast=False, views=True),
        "attention",
        [fused],
        [d, d, d],
    )
    q, k, v = (b.heads_first(piece) for piece in pieces)
    q, k = b.rotary(q, k)
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=groups), q, k, v, module="attention")
    return b.linear(mixed, "attention.wo", x.width, bias=bias, shard="row")


def layer(c: Config, index: int, name: str) -> Block:
    """A pre-norm decoder layer; w1 is the gate, w3 goes up and w2 down."""
    b = BlockBuilder(f"{name}model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(x, attention(b, b.rms_norm(x, "attention_norm"), c))
    h = b.rms_norm(x, "ffn_norm")
    names = ("w1", "w3", "w2")
    h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"), module="feed_forward", names=names)
    return b.build(hidden=b.add(x, h))


def blocks(c: Config, name: str = "") -> tuple[Block, ...]:
    """Embedding, layers, head; `name` is what parameter names begin with."""
    c = c.filled(_DEFAULTS)
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding(f"{name}model.tok_embeddings", c.vocab_size, c.hidden_size))
    tied = c.flag("tie_word_embeddings")
    last = lm_head(c, f"{name}model.norm", tied=tied, module=f"{name}output", embedding=f"{name}model.tok_embeddings")
    return (first, *(layer(c, i, name) for i in range(c.num_hidden_layers)), last)
