"""Llama 3.2 Vision: a tower in two parts, and a Llama with layers that read the image's tokens by cross-attention.

Text alone passes by the layers with cross-attention.
"""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.text_defaults import TEXT_DEFAULTS
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.tiles import ROWS_OF_TILES, JoinLayers, RowsThatSee, TanhGate
from vramwise.models.towers.mllama_vision import DEFAULTS, vision_blocks
from vramwise.models.towers.projector_pieces import tapped

EXTRA_TOKENS = 8
"""Rows of the embedding, for images, that the head has no columns for."""


def cross_attention(b: BlockBuilder, x: Value, image: Value, c: Config) -> Value:
    """Queries of the text; keys and values of the image, which stay while the text grows."""
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    b.part = "attention"
    q = b.heads_first(b.heads(b.linear(x, "cross_attn.q_proj", heads * d), heads))
    q = b.rms_norm(q, "cross_attn.q_norm")
    k, v = (b.heads_first(b.heads(b.linear(image, f"cross_attn.{n}_proj", groups * d), groups)) for n in "kv")
    k = b.rms_norm(k, "cross_attn.k_norm")
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=groups,
            causal=False,
            style=ROWS_OF_TILES,
            dropout=c.number("dropout"),
        ),
        q,
        k,
        v,
        module="cross_attn",
        cache=LayerCache("cross", groups, d, d),
    )
    return b.linear(mixed, "cross_attn.o_proj", x.width, shard="row")


def cross_layer(c: Config, index: int) -> Block:
    """A pre-norm layer whose two halves are multiplied by the tanh of one trained number each."""
    b = BlockBuilder(f"model.layers.{index}", layer=index, modality="image")
    x, image = b.input("hidden", c.hidden_size), b.input("image", c.hidden_size)
    h = cross_attention(b, b.rms_norm(x, "input_layernorm"), image, c)
    x = b.add(x, b.unary(TanhGate(), h, "", [b.parameter("", "cross_attn_attn_gate", (1,))]))
    h = gated_mlp(b, b.rms_norm(x, "post_attention_layernorm"), c.intermediate_size, c.text("hidden_act", "silu"))
    h = b.unary(RowsThatSee(), h)
    gate = [b.parameter("", "cross_attn_mlp_gate", (1,), part="mlp")]
    return b.build(hidden=b.add(x, b.unary(TanhGate(), h, "", gate)), image=image)


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, projector, language model."""
    vision = (c.table("vision_config") or Config({}, c.model_id)).filled(DEFAULTS)
    text = (c.table("text_config") or Config({}, c.model_id)).filled(TEXT_DEFAULTS["mllama_text_model"])
    b = BlockBuilder("model", part="projector", modality="image")
    width = vision.hidden_size
    taps = [b.input(tapped(int(i)), width) for i in vision.items("intermediate_layers_indices") or ()]
    (x,) = b.op(JoinLayers(), "", [b.input("image", width), *taps], [vision.size("vision_output_dim")])
    bridge = b.build(image=b.linear(x, "multi_modal_projector", text.hidden_size, bias=True))
    crossing, kind = text.items("cross_attention_layers") or [], LayerKind(attention=partial(grouped_attention, c=text))
    layers = (
        cross_layer(text, i) if i in crossing else decoder.layer(text, Design(), i, kind)
        for i in range(text.num_hidden_layers)
    )
    embedding = token_embedding(Config({**text.values, "vocab_size": text.vocab_size + EXTRA_TOKENS}, c.model_id))
    language = (embedding, *layers, lm_head(text, "model.norm", tied=False, widened=True))
    place = inside("model.language_model")
    return (*vision_blocks(vision, "model.vision_model"), bridge, *(renamed(block, place) for block in language))
