"""Baichuan 1 and 2: Llama with one product for queries, keys and values; those of 13B have ALiBi.

Parameter names are those of the modeling files in baichuan-inc/Baichuan-7B and Baichuan2-13B-Chat. What autograd keeps
is derived from transformers' Llama.
"""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.early_attention import FALCON

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 64_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def packed_attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """One product for q, k and v; ALiBi instead of rotary positions in the models of 13B.

    The config does not say which. As in vLLM's `baichuan.py`, `BaiChuanForCausalLM` and a width of 4096 turn.
    """
    b.part = "attention"
    heads = c.num_attention_heads
    alibi = c.hidden_size != 4096 and "BaiChuanForCausalLM" not in (c.items("architectures") or [])
    fused = b.split(b.linear(x, "self_attn.W_pack", 3 * x.width), [x.width] * 3)
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in fused)
    if alibi:
        mixed = b.attention(
            Attention(num_heads=heads, num_key_value_heads=heads, style=FALCON, alibi=True), q, k, v, others=[x]
        )
    else:
        q, k = b.rotary(q, k)
        mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=heads), q, k, v)
    return b.linear(mixed, "self_attn.o_proj", x.width, shard="row")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    return alike(c, Design(), LayerKind(attention=partial(packed_attention, c=c)))
