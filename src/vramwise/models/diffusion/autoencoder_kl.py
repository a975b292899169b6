"""AutoencoderKL of diffusers 0.42.1 (autoencoder_kl.py, vae.py, unet_2d_blocks.py): all weights, and the decoder."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.models.blocks import Block, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.diffusion.checked import number_of_layers, whole_numbers
from vramwise.models.diffusion.resnet import mid_attention, resnet
from vramwise.models.operations.latents import Doubled
from vramwise.models.operations.simple import Hold

CLASS_DEFAULTS: dict[str, object] = {
    "in_channels": 3, "out_channels": 3, "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 32,
    "sample_size": 32, "block_out_channels": [64],
}  # fmt: skip
_MOST_LEVELS = 8
TILE_OVERLAP = 0.25
"""Share of a tile that the next one covers too, in the class's code."""


def widths(c: Config) -> list[int]:
    """Channels of each resolution, the finest first."""
    found = whole_numbers(c, "block_out_channels")
    if not 0 < len(found) <= _MOST_LEVELS:
        raise c.error(f"block_out_channels: expected 1 to {_MOST_LEVELS} whole numbers")
    return found


def scale_of(config: Config) -> int:
    """Pixels along a side for each place of the latents."""
    return int(2 ** (len(widths(config.filled(CLASS_DEFAULTS))) - 1))


def tile_of(config: Config) -> tuple[int, int]:
    """Places of the latents along a tile's side, and from one tile to the next."""
    side = config.filled(CLASS_DEFAULTS).size("sample_size") // scale_of(config)
    return side, int(side * (1 - TILE_OVERLAP))


def blocks(config: Config) -> tuple[Block, ...]:
    """`decode`. Stream: z (batch, latent_channels, rows, columns)."""
    c = config.filled(CLASS_DEFAULTS)
    channels, groups = widths(c), c.size("norm_num_groups")
    layers = number_of_layers(c, "layers_per_block")
    b = ComponentBuilder("")
    x = b.input("z", c.size("latent_channels"))
    if c.flag("use_post_quant_conv", True):
        x = b.convolution(x, "post_quant_conv", x.width, 1)
    found = [b.build(sample=b.convolution(x, "decoder.conv_in", channels[-1], 3, padding=1))]
    found.append(_mid(c, "decoder", channels[-1], groups))
    for i, width in enumerate(reversed(channels)):
        found.append(_up(i, found[-1].outputs["sample"].width, width, layers + 1, groups, last=i + 1 == len(channels)))
    b = ComponentBuilder("")
    x = b.group_norm(b.input("sample", channels[0]), "decoder.conv_norm_out", groups)
    x = b.activation(x, "silu", "decoder.conv_act")
    return (*found, b.build(image=b.convolution(x, "decoder.conv_out", c.size("out_channels"), 3, padding=1)))


def _mid(c: Config, module: str, width: int, groups: int) -> Block:
    """`UNetMidBlock2D`: attention of one head between two residual blocks."""
    b = ComponentBuilder(f"{module}.mid_block")
    x = resnet(b, b.input("sample", width), "resnets.0", width, groups)
    if c.flag("mid_block_add_attention", True):
        x = mid_attention(b, x, "attentions.0", groups)
    return b.build(sample=resnet(b, x, "resnets.1", width, groups))


def _up(index: int, inner: int, width: int, layers: int, groups: int, *, last: bool) -> Block:
    b = ComponentBuilder(f"decoder.up_blocks.{index}")
    x = b.input("sample", inner)
    for i in range(layers):
        x = resnet(b, x, f"resnets.{i}", width, groups)
    return b.build(sample=x if last else enlarged(b, x, "upsamplers.0"))


def enlarged(b: ComponentBuilder, x: Value, module: str) -> Value:
    """`Upsample2D`: twice the rows and columns, then a convolution."""
    return b.convolution(b.unary(Doubled(), x, module), f"{module}.conv", x.width, 3, padding=1)


def idle_blocks(config: Config) -> tuple[Block, ...]:
    """The encoder, which a pipeline from text holds and does not run. Stream: image."""
    c = config.filled(CLASS_DEFAULTS)
    channels, groups = widths(c), c.size("norm_num_groups")
    layers = number_of_layers(c, "layers_per_block")
    return tuple(_encoder(c, channels, groups, layers))


def _encoder(c: Config, channels: list[int], groups: int, layers: int) -> Iterator[Block]:
    b = ComponentBuilder("")
    x = b.convolution(b.input("image", c.size("in_channels")), "encoder.conv_in", channels[0], 3, padding=1)
    yield b.build(sample=x)
    for i, width in enumerate(channels):
        b = ComponentBuilder(f"encoder.down_blocks.{i}")
        x = b.input("sample", x.width)
        for k in range(layers):
            x = resnet(b, x, f"resnets.{k}", width, groups)
        if i + 1 < len(channels):
            x = b.convolution(x, "downsamplers.0.conv", width, 3, stride=2, padding=1)
        yield b.build(sample=x)
    yield _mid(c, "encoder", channels[-1], groups)
    b = ComponentBuilder("")
    doubled = 2 * c.size("latent_channels")
    x = b.group_norm(b.input("sample", channels[-1]), "encoder.conv_norm_out", groups)
    x = b.convolution(b.activation(x, "silu", "encoder.conv_act"), "encoder.conv_out", doubled, 3, padding=1)
    x = b.convolution(x, "quant_conv", doubled, 1) if c.flag("use_quant_conv", True) else b.unary(Hold(), x)
    yield b.build(latents=x)
