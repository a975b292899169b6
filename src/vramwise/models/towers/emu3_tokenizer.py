"""Emu 3's tokenizer for images and video: convolutions down to a codebook's vectors and up again."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.tower_design import Weight, layer_norm, with_bias

# Defaults of Emu3VQVAEConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "codebook_size": 32_768, "embed_dim": 4, "latent_channels": 4, "in_channels": 3, "out_channels": 3,
    "temporal_downsample_factor": 4, "base_channels": 256, "channel_multiplier": [1, 2, 2, 4], "num_res_blocks": 2,
    "attn_resolutions": [3], "hidden_size": 1024,
}  # fmt: skip


def conv(name: str, inner: int, outer: int, *kernel: int) -> list[Weight]:
    """A convolution's weight and bias."""
    return list(with_bias(name, outer, inner, *kernel))


def norm(name: str, width: int, quantized: int) -> list[Weight]:
    """A group norm; the decoder's takes scale and shift from the quantized vectors as well."""
    if not quantized:
        return list(layer_norm(name, width))
    parts = (conv(f"{name}.conv_{n}", quantized, width, 1, 1) for n in "yb")
    return [*layer_norm(f"{name}.norm_layer", width), *(weight for part in parts for weight in part)]


def residual(name: str, inner: int, outer: int, quantized: int) -> list[Weight]:
    """Two norms and convolutions of images, and a third where the width changes."""
    first = [*norm(f"{name}.norm1", inner, quantized), *conv(f"{name}.conv1", inner, outer, 3, 3)]
    second = [*norm(f"{name}.norm2", outer, quantized), *conv(f"{name}.conv2", outer, outer, 3, 3)]
    return first + second + (conv(f"{name}.nin_shortcut", inner, outer, 1, 1) if inner != outer else [])


def attention(name: str, width: int) -> list[Weight]:
    return [weight for n in ("k", "v", "q", "out") for weight in with_bias(f"{name}.{n}_proj", width, width)]


def middle(name: str, c: Config, width: int, quantized: int) -> list[Weight]:
    ends = [
        *residual(f"{name}.block_1", width, width, quantized),
        *residual(f"{name}.block_2", width, width, quantized),
    ]
    return [*ends, *attention(f"{name}.attn_1", c.hidden_size), *norm(f"{name}.attn_norm", width, quantized)]


def in_time(c: Config, name: str, channels: int, kernel: int) -> list[Weight]:
    """Convolutions over frames: those that change their number by two, and residual ones with batch norms."""
    halvings = c.size("temporal_downsample_factor").bit_length() - 1
    weights = [
        w for i in range(halvings) for w in conv(f"{name}.time_conv.{i}.conv.conv", channels, channels, kernel, 3, 3)
    ]
    for i in range(c.size("num_res_blocks")):
        for n in (1, 2):
            block = f"{name}.time_res_stack.{i}"
            weights += [*layer_norm(f"{block}.norm{n}", channels)]
            weights += conv(f"{block}.conv{n}.conv", channels, channels, 3, 3, 3)
    return weights


def stage(c: Config, name: str, inner: int, outer: int, attends: bool, count: int, quantized: int) -> list[Weight]:
    """The residual blocks of one resolution, with attention after each where the config says so."""
    weights: list[Weight] = []
    for i in range(count):
        weights += residual(f"{name}.block.{i}", inner if i == 0 else outer, outer, quantized)
        if attends:
            weights += attention(f"{name}.attn.{i}", c.hidden_size)
            weights += norm(f"{name}.attn_norms.{i}", outer, quantized)
    return weights


def widths(c: Config) -> list[int]:
    """Channels at each resolution."""
    base, times = c.size("base_channels"), c.items("channel_multiplier") or []
    found = [base * Config({"channel_multiplier": n}, c.model_id).size("channel_multiplier") for n in times]
    if not found:
        raise c.error("channel_multiplier: expected a list of whole numbers, got none")
    return found


def encoder(c: Config) -> list[Weight]:
    sizes, attends = widths(c), c.items("attn_resolutions") or []
    out = c.size("latent_channels") * (2 if c.flag("double_latent") else 1)
    weights = conv("encoder.conv_in", c.size("in_channels"), c.size("base_channels"), 3, 3)
    for i, width in enumerate(sizes):
        name, inner = f"encoder.down_block.down.{i}", sizes[i - 1] if i else c.size("base_channels")
        weights += stage(c, name, inner, width, i in attends, c.size("num_res_blocks"), 0)
        weights += conv(f"{name}.downsample.conv", width, width, 3, 3) if i + 1 < len(sizes) else []
    weights += [*middle("encoder.middle_block", c, sizes[-1], 0), *layer_norm("encoder.norm_out", sizes[-1])]
    return [*weights, *conv("encoder.conv_out", sizes[-1], out, 3, 3), *in_time(c, "encoder", out, 4)]


def decoder(c: Config) -> list[Weight]:
    sizes, attends, quantized = widths(c), c.items("attn_resolutions") or [], c.size("embed_dim")
    latent = c.size("latent_channels")
    weights = [*in_time(c, "decoder", latent, 3), *conv("decoder.conv_in", latent, sizes[-1], 3, 3)]
    weights += middle("decoder.middle_block", c, sizes[-1], quantized)
    for i, width in enumerate(sizes):
        name, inner = f"decoder.up_block.up.{i}", sizes[i + 1] if i + 1 < len(sizes) else width
        weights += stage(c, name, inner, width, i in attends, c.size("num_res_blocks") + 1, quantized)
        weights += conv(f"{name}.upsample.conv", width, width, 3, 3) if i else []
    weights += norm("decoder.norm_out", sizes[0], quantized)
    return [*weights, *conv("decoder.conv_out", sizes[0], c.size("out_channels"), 3, 3)]


def tokenizer_blocks(config: Config, name: str) -> tuple[Block, ...]:
    """Encoder, codebook and decoder; a forward pass that is given image tokens runs none of them."""
    c = config.filled(_DEFAULTS)
    latent, width = c.size("latent_channels"), c.size("embed_dim")
    codebook: list[Weight] = [("quantize.embedding.weight", (c.size("codebook_size"), width))]
    codebook += [
        *conv("quant_conv.conv", latent, width, 3, 1, 1),
        *conv("post_quant_conv.conv", width, latent, 3, 1, 1),
    ]
    b = BlockBuilder(name, part="vision", modality="image")
    weights = [b.parameter("", leaf, shape) for leaf, shape in (*encoder(c), *codebook, *decoder(c))]
    return (b.build(image=b.op(Undescribed(name="a tokenizer of images"), "", [], [width], weights)[0]),)
