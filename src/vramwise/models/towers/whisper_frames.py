"""Whisper's way from sound to hidden states."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config


def _convolution(b: BlockBuilder, x: Value, module: str, width: int, stride: int) -> Value:
    weights = [b.parameter(module, "weight", (width, x.width, 3)), b.parameter(module, "bias", (width,))]
    y = b.unary("convolution", x, module, weights, width, stride=stride)
    return b.activation(y, "gelu", "")


def frames(c: Config) -> Block:
    """Two convolutions over the spectrogram, of which the second halves its length, and fixed positions."""
    b = BlockBuilder("model.encoder", part="embedding")
    length = c.size("max_source_positions")
    (x,) = b.op("sound", "", [], [c.size("num_mel_bins")], frames=2 * length)
    x = _convolution(b, _convolution(b, x, "conv1", c.hidden_size, 1), "conv2", c.hidden_size, 2)
    x = b.unary("channels_last", x)
    table = b.parameter("embed_positions", "weight", (length, x.width), frozen=True)
    x = b.unary("add_frozen", x, "embed_positions", [table])
    return b.build(hidden=b.dropout(x, c.number("dropout")))
