"""Qwen, first generation: `intermediate_size` is stored doubled; only the product for q, k and v has a bias.

Parameter names are those of `modeling_qwen.py` in Qwen/Qwen-7B. What autograd keeps is derived from the rotary
positions in fp32 and the attention of Llama's kind that the file has.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.operations.attention import Attention

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 151_936, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128,
    "intermediate_size": 22_016,
}  # fmt: skip


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention from one product; `rotary_pct` of every head turns."""
    b.part = "attention"
    heads, d, share = c.num_attention_heads, c.size("kv_channels"), c.number("rotary_pct", 1.0)
    if not 0 < share <= 1:
        raise c.error(f"rotary_pct: expected a number above 0 and at most 1, got {share}")
    fused = b.split(b.linear(x, "attn.c_attn", 3 * heads * d, bias=True), [heads * d] * 3)
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in fused)
    q, k = b.rotary(q, k, rotary_dim=int(d * share), style="half_fp32", table="fp32")
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=heads, dropout=c.number("attn_dropout_prob")),
        q,
        k,
        v,
        module="attn",
    )
    return b.linear(mixed, "attn.c_proj", x.width, bias=not c.flag("no_bias", True), shard="row")


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index)
    width, bias = c.intermediate_size // 2, not c.flag("no_bias", True)
    x = b.input("hidden", c.hidden_size)
    x = b.add(attention(b, b.rms_norm(x, "ln_1"), c), x)
    h = b.rms_norm(x, "ln_2")
    b.part = "mlp"
    up, gate = b.linear(h, "mlp.w1", width, bias=bias), b.linear(h, "mlp.w2", width, bias=bias)
    h = b.multiply(up, b.activation(gate, "silu", "mlp"))
    return b.build(hidden=b.add(x, b.linear(h, "mlp.c_proj", x.width, bias=bias, shard="row")))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    b = BlockBuilder("")
    words = b.embedding("transformer.wte", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.dropout(words, c.number("emb_dropout_prob")))
    last = lm_head(c, "transformer.ln_f", tied=c.flag("tie_word_embeddings"), embedding="transformer.wte")
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)
