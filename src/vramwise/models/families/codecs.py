"""Codecs of sound: EnCodec, Mimi, DAC and X-Codec, which turn sound into codes and back; all of part `audio`.

The parameters and the codebooks are those of `EncodecModel`, `MimiModel`, `DacModel` and `XcodecModel` in transformers
5.23; what training keeps is not described.
"""

from __future__ import annotations

import math

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under
from vramwise.models.towers import dac
from vramwise.models.towers.encodec import codebooks, codec_buffers, codec_weights, num_codebooks
from vramwise.models.towers.known_weights import inside, known_weights, product
from vramwise.models.towers.mimi import mimi_buffers, mimi_weights
from vramwise.models.towers.tower_design import Weight, with_bias

_ACOUSTIC: dict[str, object] = {
    **dac.DEFAULTS, "downsampling_ratios": [8, 5, 4, 2], "upsampling_ratios": [8, 5, 4, 2],
    "decoder_hidden_size": 1024, "hidden_size": 256,
}  # fmt: skip
_XCODEC: dict[str, object] = {
    "sample_rate": 16_000, "target_bandwidths": [0.5, 1, 1.5, 2, 4], "kernel_size": 3, "channel_ratios": [1, 1],
    "strides": [1, 1], "block_dilations": [1, 1], "unit_kernel_size": 3, "codebook_size": 1024,
}  # fmt: skip
"""Defaults of `XcodecConfig`, and what it takes for its DAC."""
MOST_UNITS = 64


def task(c: Config) -> str:
    """They predict no tokens."""
    return "none"


def convolution(name: str, made: int, given: int, kernel: int) -> Weight:
    """One without a bias."""
    return f"{name}.weight", (made, given, kernel)


def unit(x: Config, width: int) -> list[Weight]:
    """The residual units of one width."""
    count, kernel = len(x.items("block_dilations") or []), x.size("unit_kernel_size")
    if count > MOST_UNITS:
        raise x.error(f"block_dilations: at most {MOST_UNITS}, got {count}")
    one = [convolution("conv1", width, width, kernel), convolution("conv2", width, width, 1)]
    return [weight for i in range(count) for weight in inside(f"res_units.{i}", one)]


def meaning(x: Config, width: int) -> list[Weight]:
    """Convolutions over HuBERT's frames, and back to them."""
    kernel, strides = x.size("kernel_size"), x.sizes("strides")
    ratios = [Config({"channel_ratios": r}, x.model_id).number("channel_ratios")
              for r in x.items("channel_ratios") or []]  # fmt: skip
    if not ratios or len(ratios) != len(strides) or len(strides) > MOST_UNITS:
        raise x.error(f"strides ({len(strides)}) and channel_ratios ({len(ratios)}) name the same blocks")
    widths = [int(width * ratio) for ratio in ratios]
    found = [convolution("encoder_semantic.conv", width, width, kernel)]
    for i, (given, made, stride) in enumerate(zip([width, *widths], widths, strides, strict=False)):
        block = [*unit(x, given), *with_bias("conv", made, given, 3 if stride == 1 else 2 * stride)]
        found += inside(f"encoder_semantic.conv_blocks.{i}", block)
    found.append(convolution("decoder_semantic.conv1", widths[0], width, kernel))
    for i, (given, made, stride) in enumerate(zip(widths, [*widths[1:], width], strides, strict=True)):
        # ahead of a stride beyond 1 it is transposed, and has no bias
        first = list(with_bias("conv", made, given, 3)) if stride == 1 else [("conv.weight", (given, made, 2 * stride))]
        found += inside(f"decoder_semantic.conv_blocks.{i}", [*first, *unit(x, made)])
    return [*found, convolution("decoder_semantic.conv2", width, width, kernel)]


def x_codec(config: Config) -> tuple[Block, ...]:
    """DAC's halves beside HuBERT, one row of codebooks for both."""
    x, acoustic = config.filled(_XCODEC), config.part("acoustic_model_config", _ACOUSTIC)
    given = (config.table("semantic_model_config") or Config({}, config.model_id)).values
    semantic = Config({"hidden_size": 768, "model_type": "hubert", **given, "architectures": None}, config.model_id)
    if semantic.model_type != "hubert" or acoustic.model_type not in ("", "dac"):
        raise config.error("only dac with hubert is described here")
    width, narrow = semantic.hidden_size, acoustic.hidden_size
    both, hop = width + narrow, math.prod(acoustic.sizes("downsampling_ratios"))
    last = [*product("fc", both, both), *product("fc1", width, both), *product("fc2", narrow, both)]
    books = codebooks(
        num_codebooks(x, "sample_rate", hop), x.size("codebook_size"), x.size("codebook_dim", default=both),
        "quantizer.quantizers.{}", "embed", "embed_avg",
    )  # fmt: skip
    sound = [*inside("acoustic_encoder", dac.encoder(acoustic)), *inside("acoustic_decoder", dac.decoder(acoustic))]
    frames = language_model(semantic, under("semantic_model"))
    return (_codec("", sound), *frames, _codec("", [*meaning(x, width), *last], books))


def _codec(name: str, weights: list[Weight] | tuple[Weight, ...], buffers: tuple[Weight, ...] = ()) -> Block:
    return known_weights(name, weights, "a codec of sound", part="audio", modality="audio", buffers=buffers)


def blocks(config: Config) -> tuple[Block, ...]:
    """Both halves, and what makes codes of what is between them."""
    if config.model_type == "xcodec":
        return x_codec(config)
    if config.model_type == "mimi":
        return (_codec("", mimi_weights(config), mimi_buffers(config)),)
    if config.model_type == "encodec":
        return (_codec("", codec_weights(config), codec_buffers(config)),)
    c = config.filled(dac.DEFAULTS)
    halves = [*inside("encoder", dac.encoder(c)), *inside("decoder", dac.decoder(c))]
    return (_codec("", halves), _codec("quantizer", dac.quantizer(c)))
