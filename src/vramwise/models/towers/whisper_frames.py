"""Whisper's way from sound to hidden states."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.encoders import AddFrozen, Convolution, Sound
from vramwise.models.operations.mixers import ChannelsLast


def _convolution(b: BlockBuilder, x: Value, module: str, width: int, stride: int) -> Value:
    weights = [b.parameter(module, "weight", (width, x.width, 3)), b.parameter(module, "bias", (width,))]
    y = b.unary(Convolution(stride=stride, embeds=module == "conv1"), x, module, weights, width)
    return b.activation(y, "gelu", "")


def frames(c: Config) -> Block:
    """Two convolutions over the spectrogram, of which the second halves its length, and fixed positions."""
    b = BlockBuilder("model.encoder", part="embedding")
    length = c.size("max_source_positions")
    (x,) = b.op(Sound(frames=2 * length), "", [], [c.size("num_mel_bins")])
    x = _convolution(b, _convolution(b, x, "conv1", c.hidden_size, 1), "conv2", c.hidden_size, 2)
    x = b.unary(ChannelsLast(), x)
    table = b.parameter("embed_positions", "weight", (length, x.width), frozen=True)
    x = b.unary(AddFrozen(), x, "embed_positions", [table])
    return b.build(hidden=b.dropout(x, c.number("dropout")))
