"""The weights of DAC: convolutions with residual units that shorten sound and lengthen it again, and codebooks."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.towers.known_weights import inside
from vramwise.models.towers.tower_design import Weight, with_bias

DEFAULTS: dict[str, object] = {
    "encoder_hidden_size": 64, "downsampling_ratios": [2, 4, 8, 8], "decoder_hidden_size": 1536, "n_codebooks": 9,
    "codebook_size": 1024, "codebook_dim": 8,
}  # fmt: skip
"""Defaults of `DacConfig` (transformers 5.23)."""
MOST_STRIDES = 16
MOST_CODEBOOKS = 1024
_SEVEN = 7
"""Samples that its convolutions see, which the class writes out."""


def snake(name: str, width: int) -> Weight:
    """The slope of a periodic activation, one a channel."""
    return f"{name}.alpha", (1, width, 1)


def units(width: int) -> list[Weight]:
    """Three residual units, farther and farther between samples."""
    unit = [snake("snake1", width), *with_bias("conv1", width, width, _SEVEN), snake("snake2", width),
            *with_bias("conv2", width, width, 1)]  # fmt: skip
    return [weight for i in range(1, 4) for weight in inside(f"res_unit{i}", unit)]


def _ratios(c: Config, name: str) -> list[int]:
    found = c.sizes(name)
    if not 0 < len(found) <= MOST_STRIDES:
        raise c.error(f"{name}: expected 1 to {MOST_STRIDES} numbers, got {len(found)}")
    return found


def latent_width(c: Config) -> int:
    """Channels between both halves."""
    return c.size("hidden_size", default=c.size("encoder_hidden_size") * 2 ** len(_ratios(c, "downsampling_ratios")))


def encoder(c: Config) -> list[Weight]:
    """Each stride doubles the channels."""
    width = c.size("encoder_hidden_size")
    found = list(with_bias("conv1", width, 1, _SEVEN))
    for i, stride in enumerate(_ratios(c, "downsampling_ratios")):
        block = [*units(width), snake("snake1", width), *with_bias("conv1", 2 * width, width, 2 * stride)]
        found += inside(f"block.{i}", block)
        width *= 2
    return [*found, snake("snake1", width), *with_bias("conv2", latent_width(c), width, 3)]


def decoder(c: Config) -> list[Weight]:
    """Each stride halves them."""
    ratios = c.sizes("upsampling_ratios") or _ratios(c, "downsampling_ratios")[::-1]
    width = c.size("decoder_hidden_size")
    if width < 2 ** len(ratios) or len(ratios) > MOST_STRIDES:
        raise c.error(f"decoder_hidden_size ({width}) is halved {len(ratios)} times")
    found = list(with_bias("conv1", width, latent_width(c), _SEVEN))
    for i, stride in enumerate(ratios):
        half = c.size("decoder_hidden_size") // 2 ** (i + 1)
        wider = [("conv_t1.weight", (width, half, 2 * stride)), ("conv_t1.bias", (half,))]
        found += inside(f"block.{i}", [snake("snake1", width), *wider, *units(half)])
        width = half
    return [*found, snake("snake1", width), *with_bias("conv2", 1, width, _SEVEN)]


def quantizer(c: Config) -> list[Weight]:
    """Codebooks in few columns, with products to them and back."""
    count, narrow, width = c.size("n_codebooks"), c.size("codebook_dim"), latent_width(c)
    if count > MOST_CODEBOOKS:
        raise c.error(f"n_codebooks: at most {MOST_CODEBOOKS:,}, got {count:,}")
    one = [*with_bias("in_proj", narrow, width, 1), *with_bias("out_proj", width, narrow, 1),
           ("codebook.weight", (c.size("codebook_size"), narrow))]  # fmt: skip
    return [weight for i in range(count) for weight in inside(f"quantizers.{i}", one)]
