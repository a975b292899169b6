"""Llama and the families that are Llama with switches: Mistral, Qwen 2, Qwen 3."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind, Piece, sliding_window


def attention(c: Config, window: int | None) -> Piece:
    """Attention with the biases and norms of the model type; Mistral's has neither."""
    bias, norms = c.flag("attention_bias"), ("q_norm", "k_norm")
    if c.model_type == "mistral":
        return partial(grouped_attention, c=c, window=window)
    if c.model_type == "qwen2":
        return partial(grouped_attention, c=c, window=window, bias=True)
    own = norms if c.model_type == "qwen3" else None
    return partial(grouped_attention, c=c, window=window, bias=bias, norms=own, output_bias=bias)


def sliding_windows(c: Config) -> list[int | None]:
    """The window of each layer, None where attention is full."""
    window, layers = sliding_window(c), range(c.num_hidden_layers)
    if c.model_type.startswith("qwen") and not c.flag("use_sliding_window"):
        window = None
    types = c.layer_types()
    if types is not None:
        return [window if kind == "sliding_attention" else None for kind in types]
    if c.model_type == "mistral":
        return [window for _ in layers]
    first = c.size("max_window_layers", default=28, least=0) if c.model_type.startswith("qwen") else len(layers)
    return [window if i >= first else None for i in layers]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    kinds = [LayerKind(attention=attention(c, window)) for window in sliding_windows(c)]
    return model(c, Design(mlp_bias=c.model_type == "llama" and c.flag("mlp_bias")), kinds)
