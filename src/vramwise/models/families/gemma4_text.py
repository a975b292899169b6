"""Gemma 4's language model: wider heads in full layers, keys shared by the last layers, embeddings for each layer."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import lm_head
from vramwise.models.layers.gemma4_experts import with_experts
from vramwise.models.layers.gemma_attention import LayerSizes, attention, norm, sources
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.per_layer_embeddings import layer_input_block, layer_input_gate, layer_input_width
from vramwise.models.operations.gemma import ScaleByBufferInPlace


def layer_types(c: Config) -> list[str]:
    """Every sixth layer is full unless the config says otherwise; the last always is."""
    layers = range(c.num_hidden_layers)
    types = c.layer_types() or ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in layers]
    return [*types[:-1], "full_attention"]


def overrides(c: Config, index: int, kind: str) -> Config:
    """What a layer has instead of the config's sizes: by its number, which is written with zeros before it, or kind."""
    own = c.of_layer(index)
    if own is not None:
        return own
    if kind != "full_attention":
        return Config({}, c.model_id)
    groups = c.get("num_global_key_value_heads") if c.flag("attention_k_eq_v") else None
    wide = {"head_dim": c.size("global_head_dim", default=512), "num_key_value_heads": groups}
    return Config(wide, c.model_id)


def layer_sizes(c: Config) -> list[LayerSizes]:
    """Heads, windows and the sharing of keys and values of each layer."""
    types, window = layer_types(c), c.size("sliding_window")
    if c.text("use_bidirectional_attention") == "all":
        window = window // 2 + 1
    sizes = []
    for i, (kind, source) in enumerate(zip(types, sources(c, types, shared=0), strict=True)):
        full, other = kind == "full_attention", overrides(c, i, kind)
        wider = 2 if source == "shared" and c.flag("use_double_wide_mlp") else 1
        sizes.append(LayerSizes(
            full, other.size("num_key_value_heads", default=c.num_key_value_heads),
            other.size("head_dim", default=c.head_dim), None if full else window, source, wider * c.intermediate_size,
        ))  # fmt: skip
    return sizes


def layer(c: Config, index: int, s: LayerSizes) -> Block:
    """A decoder layer; where there are embeddings for each layer, a gate lets them in at its end."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x, function = b.input("hidden", c.hidden_size), c.text("hidden_activation", "gelu_pytorch_tanh")
    h, kept = attention(b, norm(b, x, "input_layernorm"), c, s)
    x = b.add(x, norm(b, h, "post_attention_layernorm"))
    h = gated_mlp(b, norm(b, x, "pre_feedforward_layernorm"), s.inner, function)
    if c.flag("enable_moe_block"):
        h = with_experts(b, h, x, c, function)
    x = b.add(x, norm(b, h, "post_feedforward_layernorm"))
    if layer_input_width(c):
        x = b.add(x, layer_input_gate(b, x, c, function))
    return b.build(hidden=b.unary(ScaleByBufferInPlace(), x), **kept)


def blocks(c: Config) -> tuple[Block, ...]:
    """Token embedding, those for each layer, which read images in the places of tokens, layers, head."""
    c = with_class_defaults(c)
    b, module = BlockBuilder(""), "model.embed_tokens"
    first = b.build(hidden=b.scale_by_buffer(b.embedding(module, c.vocab_size, c.hidden_size), module))
    layers = (layer(c, index, s) for index, s in enumerate(layer_sizes(c)))
    tied, capped = c.flag("tie_word_embeddings", True), c.has("final_logit_softcapping")
    return (
        first,
        *layer_input_block(c),
        *layers,
        lm_head(c, "model.norm", tied=tied, norm_style="gemma4", capped=capped),
    )
