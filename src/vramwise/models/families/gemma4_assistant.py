"""The assistants that draft tokens for Gemma 4: layers that read their target's keys and values, projections around.

Transformers 5.23 refuses the configs of these classes as none of their layers makes a cache; names and shapes are
those of the classes with that check set aside.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families import gemma4_text
from vramwise.models.layers.class_defaults import class_defaults
from vramwise.models.layers.gemma_attention import norm
from vramwise.models.operations.undescribed import Undescribed


def text_config(c: Config) -> Config:
    """The text config under its own type, its layers' sizes as if they had keys of their own."""
    given = (c.table("text_config") or Config({}, c.model_id)).values
    model_type = c.model_type.replace("assistant", "text")
    defaults = {"hidden_size_per_layer_input": 0, **class_defaults(model_type)}
    return Config({**defaults, **given, "model_type": model_type, "num_kv_shared_layers": 0}, c.model_id)


def start(c: Config, width: int, vocabulary: int) -> Block:
    """The token's embedding and the target's hidden state, both of the target's width, come from outside."""
    b = BlockBuilder("", part="projector")
    table = b.parameter("model.embed_tokens", "weight", (vocabulary, width), part="embedding", shard="vocab")
    outside = b.op(Undescribed(name="a target model's keys"), "", [], [2 * c.size("backbone_hidden_size")], [table])
    return b.build(hidden=b.linear(outside[0], "pre_projection", width))


def layer(text: Config, index: int) -> Block:
    """A layer of Gemma 4 without keys and values of its own."""
    s = gemma4_text.layer_sizes(text)[index]
    inner = s.inner * (2 if text.flag("use_double_wide_mlp") else 1)
    return gemma4_text.layer(text, index, replace(s, source="shared", inner=inner))


def blocks(c: Config) -> tuple[Block, ...]:
    """Projection, layers, head, projection back."""
    unified = c.model_type == "gemma4_unified_assistant"
    c = c.filled({"backbone_hidden_size": 3840 if unified else 1536, "num_centroids": 2048})
    text = text_config(c)
    b = BlockBuilder("", part="projector")
    x = norm(b, b.input("hidden", text.hidden_size), "model.norm")
    b.linear(x, "post_projection", c.size("backbone_hidden_size"))
    if c.flag("use_ordered_embeddings"):
        b.linear(x, "masked_embedding.centroids", c.size("num_centroids"), part="head")
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings", True) else None
    logits = b.linear(x, "lm_head", text.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    layers = (layer(text, i) for i in range(text.num_hidden_layers))
    return (start(c, text.hidden_size, text.vocab_size), *layers, b.build(logits=logits))
