"""Embeddings of every token for each layer, of Gemma 3n and 4."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.gemma_attention import norm
from vramwise.models.operations.gemma import LayerSlice, ScaleByBufferInPlace


def layer_input_width(c: Config) -> int:
    """Width of the embeddings for each layer, 0 without any."""
    default = 256 if c.model_type != "gemma4_unified_text" else 0
    return c.size("hidden_size_per_layer_input", default=default, least=0)


def layer_input_gate(b: BlockBuilder, x: Value, c: Config, function: str) -> Value:
    """The layer's own embedding of each token, let in by a gate."""
    width = layer_input_width(c)
    h = b.activation(b.linear(x, "per_layer_input_gate", width, part="mlp"), function, "act_fn")
    h = b.multiply(h, b.unary(LayerSlice(), b.input("layer_inputs", width)))
    h = b.linear(h, "per_layer_projection", c.hidden_size, shard="row", part="mlp")
    return norm(b, h, "post_per_layer_input_norm")


def layer_inputs(b: BlockBuilder, x: Value, c: Config) -> Value:
    """An embedding of every token for each layer, to which a product of the first embedding is added.

    Gemma 3n looks up ids of its own, those that the smaller table holds, and scales by buffers.
    """
    width, layers, third = layer_input_width(c), c.num_hidden_layers, c.model_type.startswith("gemma3n")
    module, ids = "model.embed_tokens_per_layer", "layer_input_ids" if third else "input_ids"
    own = b.embedding(module, c.size("vocab_size_per_layer_input"), layers * width, ids=ids)
    own = b.heads(b.scale_by_buffer(own, module), layers)
    h = b.linear(x, "model.per_layer_model_projection", layers * width, part="embedding")
    h = b.unary(ScaleByBufferInPlace(), h) if third else b.scale(h)
    h = b.add(norm(b, b.heads(h, layers), "model.per_layer_projection_norm"), own)
    return b.scale_by_buffer(h, "model") if third else b.scale(h)


def layer_input_block(c: Config) -> tuple[Block, ...]:
    """The same as a block of its own, where there are such embeddings."""
    b = BlockBuilder("")
    if not layer_input_width(c):
        return ()
    return (b.build(layer_inputs=layer_inputs(b, b.input("hidden", c.hidden_size), c)),)
