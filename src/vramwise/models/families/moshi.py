"""Moshi's text decoder: an MLP whose first product makes both halves, rotary tables of every layer's own."""

from __future__ import annotations

from functools import partial

from vramwise.errors import UnsupportedModelError
from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder import layer, lm_head
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.operations.attention import Attention

# Defaults of MoshiConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 32_000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "sliding_window": 3000, "ffn_dim": 22_528,
}  # fmt: skip


def attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Full attention; the library's cache holds a window of it all the same."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"self_attn.{name}_proj.linear", n * d), n))
        for name, n in zip("qkv", (heads, groups, groups), strict=True)
    )
    q, k = b.rotary(q, k, table="own")
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=groups, dropout=c.number("attention_dropout")),
        q,
        k,
        v,
        cache=LayerCache("sliding", groups, d, d, window=c.size("sliding_window")),
    )
    return b.linear(mixed, "self_attn.o_proj.linear", x.width, shard="row")


def mlp(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    b.part, width = "mlp", c.size("ffn_dim")
    gate, up = b.split(b.linear(x, "mlp.fc1", width), [width // 2] * 2)
    h = b.multiply(b.activation(gate, c.text("hidden_act", "silu"), "mlp.activation_fn"), up)
    return b.linear(h, "mlp.fc2", x.width, shard="row")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding with one row more than the vocabulary, layers, head. Raises UnsupportedModelError."""
    if "MoshiForConditionalGeneration" in (c.items("architectures") or []):
        raise UnsupportedModelError(
            f"{c.model_id or 'model'}: of Moshi only the text decoder (MoshiForCausalLM) is described, neither the "
            "depth decoder nor the audio codec; remove architectures from its config to count the decoder alone"
        )
    c = c.filled(_DEFAULTS)
    if c.size("ffn_dim") % 2 or c.hidden_size % c.num_attention_heads:
        raise c.error("ffn_dim must be even and hidden_size a multiple of num_attention_heads")
    s = Design(norm_style="fp32-weight")
    kind = LayerKind(attention=partial(attention, c=c), mlp=partial(mlp, c=c))
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("model.embed_tokens", c.vocab_size + 1, c.hidden_size))
    layers = (layer(c, s, i, kind) for i in range(c.num_hidden_layers))
    return (first, *layers, lm_head(c, "model.norm", tied=False, norm_style="fp32-weight"))
