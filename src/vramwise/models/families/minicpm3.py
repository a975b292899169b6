"""MiniCPM 3: dense layers with multi-head latent attention; embeddings, residuals and hidden states are scaled."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.latent_attention import attention
from vramwise.models.layers.latent_design import Latent, sizes
from vramwise.models.layers.mlp import gated_mlp

# Defaults of MiniCPM3Config (transformers 5.23); v_head_dim is hidden_size / num_attention_heads.
_DEFAULTS = {
    "vocab_size": 73_448, "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62,
    "num_attention_heads": 40, "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
}  # fmt: skip


def completed(c: Config) -> Config:
    """The config with its class's defaults; an explicit null of `q_lora_rank` means queries without compression."""
    c = Config({**_DEFAULTS, **c.values}, c.model_id)
    if not c.has("v_head_dim") and c.hidden_size % c.num_attention_heads:
        raise c.error(f"num_attention_heads ({c.num_attention_heads}) does not divide hidden_size ({c.hidden_size})")
    default = {} if c.has("v_head_dim") else {"v_head_dim": c.hidden_size // c.num_attention_heads}
    return Config({**c.values, **default, "rope_interleave": False}, c.model_id)


def layer(c: Config, s: Latent, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x, bias = b.input("hidden", c.hidden_size), c.flag("mlp_bias")
    x = b.add(x, b.scale(attention(b, b.rms_norm(x, "input_layernorm"), c, s)))
    h = b.rms_norm(x, "post_attention_layernorm")
    h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"), bias=bias)
    return b.build(hidden=b.add(x, b.scale(h)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = completed(c)
    s = sizes(c)
    b = BlockBuilder("")
    x = b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.scale_by_buffer(x, "model.embed_tokens"))
    b = BlockBuilder("")
    x = b.scale(b.rms_norm(b.input("hidden", c.hidden_size), "model.norm"))
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings", True) else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *(layer(c, s, index) for index in range(c.num_hidden_layers)), b.build(logits=logits))
