"""MPT: ALiBi instead of positions, norms without biases, one product for q, k and v.

The class of transformers 5.23 is described where it can express the config. What it leaves out without a word (ALiBi
off, biases, learned positions, other widths, norms of q and k) is as MosaicML's llm-foundry builds it
(`llmfoundry/models/mpt/modeling_mpt.py`, `layers/blocks.py`, `layers/attention.py`), with the same parameter names.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import LARGEST_SIZE, Config
from vramwise.models.layers.mpt_layer import Switches, layer, norm

_DEFAULTS = {"d_model": 2048, "n_heads": 16, "n_layers": 24, "vocab_size": 50_368, "max_seq_len": 2048}


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
