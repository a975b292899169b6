"""RecurrentGemma (Griffin, arXiv 2402.19427): two recurrent layers to one of attention in a window."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_attention import rotary_columns
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.grouped_attention import grouped_attention
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.linear_recurrence import PlainCausalConv1d, RealGatedRecurrence
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 256_000, "hidden_size": 2560, "intermediate_size": 7680, "num_hidden_layers": 26,
    "num_attention_heads": 10, "attention_window_size": 2048, "conv1d_width": 4,
    "hidden_activation": "gelu_pytorch_tanh", "block_types": ["recurrent", "recurrent", "attention"],
    "tie_word_embeddings": True,
}  # fmt: skip
"""Defaults of `RecurrentGemmaConfig` (transformers 5.23)."""


def recurrence(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(act(y(x)) · lru(conv(x(x)))); the gates of the recurrence are a matrix for every head."""
    width, heads, module = c.size("lru_width", default=x.width), c.num_attention_heads, "temporal_block"
    if width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide lru_width ({width})")
    kernel, d = c.size("conv1d_width"), width // heads
    b.part = "mixer"
    y = b.activation(b.linear(x, f"{module}.linear_y", width, bias=True), c.text("hidden_activation"), module)
    h = b.unary(ChannelsFirst(), b.linear(x, f"{module}.linear_x", width, bias=True))
    taps = [b.parameter(f"{module}.conv_1d", "weight", (width, 1, kernel), shard="column")]
    taps.append(b.parameter(f"{module}.conv_1d", "bias", (width,), shard="column"))
    h = b.unary(ChannelsLast(), b.unary(PlainCausalConv1d(), h, f"{module}.conv_1d", taps))
    unit = f"{module}.rg_lru"
    parameters = [b.parameter(unit, "recurrent_param", (width,), shard="column")]
    for gate in ("input", "recurrent"):
        parameters.append(b.parameter(unit, f"{gate}_gate_weight", (heads, d, d), shard="column"))
        parameters.append(b.parameter(unit, f"{gate}_gate_bias", (heads, d), shard="column"))
    h = b.unary(RealGatedRecurrence(), h, unit, parameters)
    b.keep(LayerCache("recurrent", conv_state_elements=width * kernel, state_elements=width))
    return b.linear(b.multiply(h, y), f"{module}.linear_out", x.width, bias=True, shard="row")


def layer(c: Config, index: int, kind: str) -> Block:
    """A pre-norm layer; half of the config's width goes into each branch of the MLP."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(x, "temporal_pre_norm", style="gemma")
    if kind == "recurrent":
        h = recurrence(b, h, c)
    else:
        own = Config({**c.values, "head_dim": None}, c.model_id)
        h = grouped_attention(
            b, h, own, "temporal_block", bias=c.flag("attention_bias"), output_bias=True,
            columns=rotary_columns(own, Design(rotary_share=0.5)), table="own", window=c.size("attention_window_size"),
        )  # fmt: skip
    x = b.add(x, h)
    h = b.rms_norm(x, "channel_pre_norm", style="gemma")
    h = gated_mlp(b, h, c.intermediate_size // 2, c.text("hidden_activation"), module="mlp_block", bias=True)
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(CLASS_DEFAULTS)
    pattern = [str(kind) for kind in c.items("block_types") or []]
    for kind in pattern:
        if kind not in ("recurrent", "attention"):
            raise c.error(f'block_types: "{kind:.40}" is no kind of layer; known are recurrent, attention')
    b = BlockBuilder("")
    x = b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.scale_by_buffer(x, "model"))
    layers = tuple(layer(c, i, pattern[i % len(pattern)]) for i in range(c.num_hidden_layers))
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "model.final_norm", style="gemma")
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *layers, b.build(logits=b.softcap(logits)))
