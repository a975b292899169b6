"""SmolLM 3: Llama whose every fourth layer has no rotary positions."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, LayerKind, sliding_window


def layer_kinds(c: Config) -> list[LayerKind]:
    """Windows, and the layers without rotary positions."""
    window, layers = sliding_window(c), range(c.num_hidden_layers)
    period = c.size("no_rope_layer_interval", default=4)
    turned = c.items("no_rope_layers") or [int((i + 1) % period != 0) for i in layers]
    slides = c.flag("use_sliding_window") and window is not None
    types = c.items("layer_types") or ["full_attention" if flag else "sliding_attention" for flag in turned]
    if len(turned) < len(layers) or len(types) < len(layers):
        raise c.error(f"no_rope_layers and layer_types must name {len(layers)} layers each")
    return [LayerKind(window if slides and types[i] == "sliding_attention" else None, bool(turned[i])) for i in layers]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias = c.flag("attention_bias")
    s = Design(qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"), tied=True)
    return model(c, s, layer_kinds(c))
