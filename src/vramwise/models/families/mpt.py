"""MPT: ALiBi instead of positions, norms without biases, one product for q, k and v.

The class of transformers 5.23 is described where it can express the config. What it leaves out without a word (ALiBi
off, biases, learned positions, other widths, norms of q and k) is as MosaicML's llm-foundry builds it
(`llmfoundry/models/mpt/modeling_mpt.py`, `layers/blocks.py`, `layers/attention.py`), with the same parameter names.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import LARGEST_SIZE, Config

_DEFAULTS = {"d_model": 2048, "n_heads": 16, "n_layers": 24, "vocab_size": 50_368, "max_seq_len": 2048}


@dataclass(frozen=True, slots=True)
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


def switches(c: Config) -> Switches:
    a = c.table("attn_config") or Config({})
    heads, ratio = c.num_attention_heads, c.number("expansion_ratio", 4)
    if not 0 < ratio <= LARGEST_SIZE:
        raise c.error(f"expansion_ratio: expected a positive number, got {ratio}")
    inner = int(ratio * c.hidden_size)
    alibi, bias, norm_heads = a.flag("alibi", True), not c.flag("no_bias", True), a.flag("qk_ln")
    kinds = {"multihead_attention": heads, "multiquery_attention": 1}
    groups = a.size("kv_n_heads", default=kinds.get(a.text("attn_type"), heads))
    if c.hidden_size % heads or heads % groups:
        raise c.error(f"n_heads ({heads}) must divide d_model ({c.hidden_size}) and be a multiple of kv_n_heads")
    own = not alibi or bias or norm_heads or groups != heads or inner != 4 * c.hidden_size
    low = own and c.text("norm_type", "low_precision_layernorm") == "low_precision_layernorm"
    pdrop = a.number("attn_pdrop")
    return Switches(
        alibi, bias, inner, groups, norm_heads, pdrop, c.number("resid_pdrop") if own else pdrop,
        a.number("clip_qkv") > 0, "low-precision" if low else "torch", own,
    )  # fmt: skip


def norm(b: BlockBuilder, x: Value, name: str, s: Switches) -> Value:
    return b.layer_norm(x, name, bias=s.bias, style=s.norm_style)


def attention(b: BlockBuilder, x: Value, c: Config, s: Switches) -> Value:
    """Attention in eager mode where ALiBi is on; without it the usual paths."""
    b.part = "attention"
    heads, d = c.num_attention_heads, x.width // c.num_attention_heads
    fused = b.linear(x, "attn.Wqkv", x.width + 2 * s.groups * d, bias=s.bias)
    if s.clip:
        fused = b.unary("clip" if s.own else "clamp", fused)
    q, k, v = b.split(fused, [x.width, s.groups * d, s.groups * d])
    if s.norm_heads:
        q, k = norm(b, q, "attn.q_ln", s), norm(b, k, "attn.k_ln", s)
    q, k, v = (b.heads_first(b.heads(y, n)) for y, n in ((q, heads), (k, s.groups), (v, s.groups)))
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=s.groups, module="attn", dropout=s.dropout,
        style="mpt" if s.alibi else "llama", eager_only=s.alibi,
    )  # fmt: skip
    return b.linear(mixed, "attn.out_proj", x.width, bias=s.bias, shard="row")


def layer(c: Config, s: Switches, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"transformer.blocks.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(b.dropout(attention(b, norm(b, x, "norm_1", s), c, s), s.after), x)
    b.part = "mlp"
    h = b.linear(norm(b, x, "norm_2", s), "ffn.up_proj", s.inner, bias=s.bias)
    h = b.linear(b.activation(h, "gelu", "ffn.act"), "ffn.down_proj", x.width, bias=s.bias, shard="row")
    return b.build(hidden=b.add(b.dropout(h, s.after), x))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, learned positions where there is no ALiBi, layers, head."""
    c = c.filled(_DEFAULTS)
    s = switches(c)
    b = BlockBuilder("transformer")
    x = b.embedding("wte", c.vocab_size, c.hidden_size)
    if not s.alibi and c.flag("learned_pos_emb", True):
        positions = b.embedding("wpe", c.size("max_seq_len"), c.hidden_size, ids="position_ids", shard="replicated")
        x = b.add(x, positions)
    first = b.build(hidden=b.dropout(x, c.number("emb_pdrop")) if s.own else x)
    b = BlockBuilder("")
    x = norm(b, b.input("hidden", c.hidden_size), "transformer.norm_f", s)
    tied_to = "transformer.wte.weight" if c.flag("tie_word_embeddings", True) else None
    last = b.build(logits=b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to))
    return (first, *(layer(c, s, i) for i in range(c.num_hidden_layers)), last)
