"""Inkling: biases by distance in place of rotary positions, short convolutions, shared experts that the router weighs.

The layers for multi-token prediction that checkpoints hold are not part of the class.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.inkling_attention import attention, convolution
from vramwise.models.layers.inkling_ends import own_names, sliding_layers, without_padding
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.weighed_experts import sparse_mlp
from vramwise.models.operations.simple import ScaleBy

# Defaults of InklingTextConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 201_024, "hidden_size": 6144, "num_hidden_layers": 66, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16,
    "swa_head_dim": 128, "sliding_window_size": 512, "d_rel": 16, "rel_extent": 1024, "conv_kernel_size": 4,
    "intermediate_size": 24_576, "moe_intermediate_size": 3072, "n_routed_experts": 256, "num_experts_per_tok": 6,
    "n_shared_experts": 2, "hidden_act": "silu",
}  # fmt: skip


def named(c: Config) -> Config:
    """The config under the class's own names, with its defaults."""
    values = own_names(c)
    if c.has("dense_intermediate_size"):  # then `intermediate_size` is the experts'
        values["moe_intermediate_size"] = c.get("intermediate_size")
        values["intermediate_size"] = c.get("dense_intermediate_size")
    return Config(values, c.model_id).filled(_DEFAULTS)


def layer(c: Config, index: int, slides: bool, sparse: bool) -> Block:
    """A pre-norm decoder layer with a convolution after attention and one after the MLP."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = attention(b, b.rms_norm(x, "input_layernorm"), c, slides)
    x = b.add(x, convolution(b, h, c, "attn_sconv"))
    h, b.part = b.rms_norm(x, "post_attention_layernorm"), "mlp"
    if sparse:
        h = sparse_mlp(b, h, c)
    else:
        h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act"))
        h = b.unary(ScaleBy(), h, "mlp", [b.parameter("mlp", "global_scale", (1,))])
    return b.build(hidden=b.add(x, convolution(b, h, c, "mlp_sconv")))


def blocks(c: Config) -> tuple[Block, ...]:
    """Normed embedding, layers, head; logits of padding rows are dropped."""
    c, b = named(c), BlockBuilder("model")
    x = b.rms_norm(b.embedding("embed_tokens", c.vocab_size, c.hidden_size), "embed_tokens.embed_norm")
    first = b.build(hidden=x)
    kinds = zip(
        sliding_layers(c, c.items("local_layer_ids")),
        sparse_layers(c, c.size("dense_mlp_idx", default=0, least=0)),
        strict=True,
    )
    layers = [layer(c, i, slides, sparse) for i, (slides, sparse) in enumerate(kinds)]
    b = BlockBuilder("")
    x = b.scale(b.rms_norm(b.input("hidden", c.hidden_size), "model.norm"))
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head")
    return (first, *layers, b.build(logits=without_padding(b, logits, c)))
