"""Inkling 2: layers that read the sums of blocks of layers by attention, clipped heads, sinks, taps of each token."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.inkling2_attention import attention
from vramwise.models.layers.inkling_attention import convolution
from vramwise.models.layers.inkling_ends import own_names, sliding_layers, without_padding
from vramwise.models.layers.mixture import experts
from vramwise.models.layers.routed_experts import Experts, routed_experts
from vramwise.models.operations.inkling2 import AppendState, BackTo, ReadStates
from vramwise.models.operations.simple import ToFp32

# Defaults of Inkling2TextConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 201_024, "unpadded_vocab_size": 200_058, "hidden_size": 4608, "num_hidden_layers": 48,
    "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "swa_num_attention_heads": 48,
    "swa_num_key_value_heads": 8, "swa_head_dim": 128, "sliding_window_size": 1024, "d_rel": 16, "rel_extent": 1024,
    "conv_kernel_size": 4, "moe_intermediate_size": 2304, "n_routed_experts": 384, "num_experts_per_tok": 8,
    "n_layers_per_attn_res_block": 6,
}  # fmt: skip


def read(b: BlockBuilder, x: Value, states: Value, module: str, count: int = 1) -> tuple[Value, ...]:
    """What learned queries read of the sums of blocks and of the stream."""
    shape = (x.width,) if count == 1 else (count, x.width)
    query = b.parameter(module, "query", shape, part="mixer")
    return b.op(ReadStates(), module, [x, states], [x.width] * count, [query])


def normed(b: BlockBuilder, x: Value, module: str) -> Value:
    return b.unary(BackTo(), b.rms_norm(x, module, style="fp32-product"))


def layer(c: Config, e: Experts, index: int, slides: bool) -> Block:
    """Attention and experts, each over what is read of earlier blocks; a block's first layer starts a new sum."""
    b, boundary = BlockBuilder(f"model.layers.{index}", layer=index), index % c.size("n_layers_per_attn_res_block") == 0
    x = b.input("hidden", c.hidden_size)
    states = b.input("states", c.hidden_size) if index else None
    count, names = (1, [""]) if slides else (3, ["q_", "k_", "v_"])
    found = read(b, x, states, "attention_input", count) if states is not None else (x,) * count
    sources = [normed(b, h, f"{name}input_layernorm") for h, name in zip(found, names, strict=True)]
    h = attention(b, (*sources, *sources[:1] * (3 - count)), c, slides)
    h = b.unary(ToFp32(), convolution(b, h, c, "post_attention_convolution", scaled=True))
    if boundary:
        before = [states] if states is not None else []
        states = b.op(AppendState(), "", [x, *before], [x.width])[0]
    else:
        h = b.add(b.unary(ToFp32(), x), h)
    assert states is not None
    (seen,) = read(b, h, states, "mlp_input")
    mlp = routed_experts(
        b, normed(b, seen, "post_attention_layernorm"), e, widened=True, in_place=False, epsilon=True, scaled=True,
        cast=False, capped=False,
    )  # fmt: skip
    h = b.unary(BackTo(), b.add(h, convolution(b, mlp, c, "post_mlp_convolution", scaled=True)))
    return b.build(hidden=h, states=states)


def blocks(config: Config) -> tuple[Block, ...]:
    """Normed embedding, layers, what is read of all blocks, head; logits of padding rows are dropped."""
    values = own_names(config)
    if "intermediate_size" in values:
        values["moe_intermediate_size"] = values.pop("intermediate_size")
    c, b = Config(values, config.model_id).filled(_DEFAULTS), BlockBuilder("model")
    e = experts(c, None, keys=("n_routed_experts",), routing="fp32_weight", gating="capped_halves")
    e = replace(e, function="")
    x = b.embedding("embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.rms_norm(x, "embed_tokens.embed_norm", style="fp32-product"))
    layers = [layer(c, e, i, slides) for i, slides in enumerate(sliding_layers(c))]
    b = BlockBuilder("")
    (x,) = read(b, b.input("hidden", c.hidden_size), b.input("states", c.hidden_size), "model.final_input")
    logits = b.linear(normed(b, x, "model.norm"), "lm_head", c.vocab_size, shard="vocab", part="head")
    logits = b.softcap_in_one(b.unary(ToFp32(), logits))
    return (first, *layers, b.build(logits=without_padding(b, logits, c)))
