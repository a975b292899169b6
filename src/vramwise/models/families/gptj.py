"""GPT-J and CodeGen: pairwise rotary positions, attention and MLP side by side on one norm, an output bias."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.early_attention import GPTJ, RotaryEveryTwo
from vramwise.models.operations.old_attention import CODEGEN, CodegenQkv

# Defaults of the configuration classes (transformers 5.23).
_DEFAULTS = {"vocab_size": 50_400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16}
CODEGEN_SLICES = 4
"""CodeGen's fused product is laid out for four cores of a TPU."""


def heads_of(b: BlockBuilder, x: Value, c: Config) -> tuple[Value, ...]:
    """q, k and v as (batch, sequence, heads, d), in CodeGen from one product of interleaved slices."""
    heads, width = c.heads_of(x.width), x.width
    if c.model_type == "gptj":
        return tuple(b.heads(b.linear(x, f"attn.{name}_proj", width), heads) for name in "qkv")
    if heads % CODEGEN_SLICES:
        raise c.error(f"num_attention_heads: expected a multiple of {CODEGEN_SLICES}, got {heads}")
    fused = b.linear(x, "attn.qkv_proj", 3 * width)
    return b.op(CodegenQkv(num_heads=heads, slices=CODEGEN_SLICES), "attn", [fused], [width // heads] * 3)


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention with fp32 scores; the class has SDPA since transformers 5.24."""
    b.part = "attention"
    heads, width = c.num_attention_heads, x.width
    q, k, v = heads_of(b, x, c)
    rotary_dim = c.size("rotary_dim", default=64)
    if rotary_dim > q.width or rotary_dim % 2:
        raise c.error(f"rotary_dim: expected an even number up to a head's width ({q.width}), got {rotary_dim}")
    keeps_fp32 = c.model_type == "codegen"
    widths = [q.width, k.width]
    b.buffer("attn", "embed_positions", (c.size("max_position_embeddings"), rotary_dim), "fp32")
    q, k = b.op(RotaryEveryTwo(rotary_dim=rotary_dim, keeps_fp32=keeps_fp32), "attn", [q, k], widths)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            dropout=c.number("attn_pdrop"),
            style=GPTJ if c.model_type == "gptj" else CODEGEN,
            eager_only=True,
            sdpa_by_version=c.model_type,
            has_flash=c.model_type == "gptj",
        ),
        b.heads_first(q),
        b.heads_first(k),
        b.heads_first(v),
        module="attn",
    )
    mixed = b.dropout(b.linear(mixed, "attn.out_proj", width, shard="row"), c.number("resid_pdrop"))
    b.still_named_in("attn", v)  # with what the rotary positions read and made: names of the module's forward
    return mixed


def layer(c: Config, index: int) -> Block:
    """A decoder layer: x + attention(norm(x)) + mlp(norm(x))."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    normed = b.layer_norm(x, "ln_1")
    mixed = attention(b, normed, c)
    b.part = "mlp"
    h = b.linear(normed, "mlp.fc_in", c.size("n_inner", default=4 * x.width), bias=True)
    h = b.activation(h, c.text("activation_function", "gelu_new"), "mlp.act")
    h = b.dropout(b.linear(h, "mlp.fc_out", x.width, bias=True, shard="row"), c.number("resid_pdrop"))
    return b.build(hidden=b.add(b.add(mixed, h), x))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    b = BlockBuilder("transformer")
    words = b.embedding("wte", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.dropout(words, c.number("embd_pdrop")))
    b = BlockBuilder("")
    x = b.layer_norm(b.input("hidden", c.hidden_size), "transformer.ln_f")
    tied_to = "transformer.wte.weight" if c.flag("tie_word_embeddings") else None
    logits = b.linear(x, "lm_head", c.vocab_size, bias=True, shard="vocab", part="head", tied_to=tied_to)
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), b.build(logits=logits))
