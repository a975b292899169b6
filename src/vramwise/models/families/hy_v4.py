"""Hunyuan 4: residual streams weighed independently, latent attention with an indexer, sinks and gates, experts."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import token_embedding
from vramwise.models.layers.hyper_connections import connected, copies, joined, merged
from vramwise.models.layers.indexer import Indexer
from vramwise.models.layers.latent_attention import attention
from vramwise.models.layers.latent_design import Latent, sizes
from vramwise.models.layers.mixture import Mixture, experts, feed_forward, grouped, sparse_layers
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.simple import ToParameterDtype

# Defaults of HYV4Config (transformers 5.23); the layers for multi-token prediction are not part of the class.
_DEFAULTS: dict[str, object] = {
    "vocab_size": 120_832, "hidden_size": 2816, "intermediate_size": 6912, "moe_intermediate_size": 768,
    "num_hidden_layers": 34, "num_attention_heads": 32, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "v_head_dim": 256, "index_head_dim": 128, "index_n_heads": 16, "hc_mult": 4,
}  # fmt: skip


def indexes(c: Config) -> list[bool]:
    """Which layers have an indexer of their own; the others read the tokens that the last one chose."""
    types = c.by_layer("indexer_types")
    if types is None:
        return [i == 0 or (i - 1) % 4 == 0 for i in range(c.num_hidden_layers)]
    return [kind == "full" for kind in types]


def mixture(c: Config) -> Mixture:
    """Experts of the best groups by corrected sigmoid scores, gates and values clamped; shared ones are not."""
    e = experts(
        c, None, keys=("n_routed_experts", "num_local_experts"), routing="deepseek_v3", gating="limited",
        normalized=c.flag("norm_topk_prob", True),
    )  # fmt: skip
    return Mixture(
        replace(e, function="silu"), routing=grouped(c, e), shared=e.intermediate_size * c.size("n_shared_experts")
    )


def layer(c: Config, s: Latent, index: int, m: Mixture | None) -> Block:
    """Attention and MLP, each between a weighing of the streams and its own addition to all of them."""
    b, function = BlockBuilder(f"model.layers.{index}", layer=index), c.text("hidden_act", "silu")
    x = b.input("hidden", c.hidden_size)
    *ways, h = connected(b, x, c, "attn_hc")
    x = merged(b, ways, attention(b, b.rms_norm(h, "input_layernorm"), c, s), x)
    *ways, h = connected(b, x, c, "ffn_hc")
    h = b.rms_norm(h, "post_attention_layernorm")
    h = gated_mlp(b, h, c.intermediate_size, function) if m is None else feed_forward(b, h, m=m)
    return b.build(hidden=merged(b, ways, h, x))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, the streams' weighed sum, head."""
    c = c.filled(_DEFAULTS)
    sparse = sparse_layers(c, 1)
    mlp = mixture(c) if any(sparse) else None
    # With positions of three axes (Hunyuan 4 VL) pairs turn in fp32, by tables that every layer spreads anew.
    style, table = ("pairs_widened", "spread rows") if c.has("mrope_section") else ("half", "default")
    s = replace(sizes(c), style=style, table=table, masked=True, sinks=True, output_gate="by_element")
    own = Indexer(c.size("index_n_heads"), c.size("index_head_dim"))
    each = enumerate(zip(indexes(c), sparse, strict=True))
    layers = [layer(c, replace(s, indexer=own if flag else None), i, mlp if wide else None) for i, (flag, wide) in each]
    b = BlockBuilder("")
    x = b.unary(ToParameterDtype(), b.rms_norm(joined(b, c), "model.norm"))
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (token_embedding(c), copies(c), *layers, b.build(logits=logits))
