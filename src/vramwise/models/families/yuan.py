"""Yuan 2: Llama whose queries and keys are read from two short convolutions over neighbouring positions.

Parameter names are those of `yuan_hf_model.py` in IEITYuan/Yuan2-2B-hf. What autograd keeps is derived from that file's
operations in training. Not described: the attention router of Yuan2-M32.
"""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.mixers import LocalizedFiltering, ScaledTwice
from vramwise.models.operations.simple import Concatenate

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def filtered(b: BlockBuilder, x: Value) -> Value:
    """`LocalizedFiltering`: two causal convolutions of two positions each, added to their input and normed."""
    module, half = "self_attn.lf_gate", x.width // 2
    weights = [
        b.parameter(f"{module}.conv1", "weight", (half, x.width, 2, 1), shard="column"),
        b.parameter(f"{module}.conv1", "bias", (half,), shard="column"),
        b.parameter(f"{module}.conv2", "weight", (x.width, half, 2, 1), shard="row"),
        b.parameter(f"{module}.conv2", "bias", (x.width,)),
    ]
    b.keep(LayerCache("recurrent", conv_state_elements=2 * x.width))
    h = b.unary(LocalizedFiltering(), x, module, weights)
    return b.rms_norm(b.add(h, x), f"{module}.output_layernorm")


def attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Values from the layer's input, queries and keys from the filtered one (or one product, scaled twice)."""
    b.part = "attention"
    heads = c.num_attention_heads
    d = c.size("attention_projection_size", default=x.width) // heads
    if d * heads != c.size("attention_projection_size", default=x.width):
        raise c.error(f"num_attention_heads ({heads}) does not divide the width of attention")
    v = b.linear(x, "self_attn.v_proj", heads * d)
    if c.flag("use_shareqk"):
        shared = b.linear(x, "self_attn.qk_proj", heads * d)
        weights = [b.parameter("self_attn", leaf, (2, x.width)) for leaf in ("qk_weight", "qk_bias")]
        q, k = b.op(ScaledTwice(), "self_attn", [shared], [heads * d] * 2, weights)
        q, k = b.heads(q, heads), b.heads(k, heads)
    else:
        h = filtered(b, x)
        joined = [b.linear(h, "self_attn.q_proj", heads * d), b.linear(h, "self_attn.k_proj", heads * d)]
        q, k = b.split(b.heads(b.op(Concatenate(), "", joined, [2 * heads * d])[0], heads), [d, d])
    v = b.heads_first(b.heads(v, heads))
    q, k = b.rotary(b.heads_first(q), b.heads_first(k), rotary_dim=min(x.width // heads, d))
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=heads), q, k, v)
    return b.linear(mixed, "self_attn.o_proj", x.width, shard="row")


def mlp(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """down(gate(x) · act(up(x))): the activation is on the other branch than Llama's."""
    b.part = "mlp"
    up = b.linear(x, "mlp.up_proj", c.intermediate_size)
    gate = b.linear(x, "mlp.gate_proj", c.intermediate_size)
    h = b.multiply(gate, b.activation(up, c.text("hidden_act", "silu"), "mlp.act_fn"))
    return b.linear(h, "mlp.down_proj", x.width, shard="row")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    experts = c.table("moe_config")
    if experts is not None and experts.size("moe_num_experts", default=0, least=0):
        raise c.error("moe_config: the attention router of Yuan2-M32 is not described")
    c = c.filled(_DEFAULTS)
    kind = LayerKind(attention=partial(attention, c=c), mlp=partial(mlp, c=c))
    return model(c, Design(tied=True), [kind] * c.num_hidden_layers)
