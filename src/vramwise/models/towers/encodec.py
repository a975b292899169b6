"""The weights of EnCodec, which turns sound into codes and back: convolutions with residual blocks, an LSTM between."""

from __future__ import annotations

import math
from collections.abc import Iterator

from vramwise.errors import SourceError
from vramwise.models.config import LARGEST_SIZE, Config
from vramwise.models.towers.tower_design import Weight, layer_norm

# Defaults of EncodecConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "audio_channels": 1, "hidden_size": 128, "num_filters": 32, "num_residual_layers": 1,
    "upsampling_ratios": [8, 5, 4, 2], "kernel_size": 7, "last_kernel_size": 7, "residual_kernel_size": 3,
    "compress": 2, "num_lstm_layers": 2, "codebook_size": 1024, "sampling_rate": 24_000,
    "target_bandwidths": [1.5, 3.0, 6.0, 12.0, 24.0],
}  # fmt: skip
MOST_LAYERS = 64
MOST_CODEBOOKS = 1024


class Codec:
    """Writes the layers of one half in order; a layer without weights, such as an activation, still has a number.

    `plain`: Mimi's, without norms and without an LSTM.
    """

    def __init__(self, c: Config, name: str, plain: bool) -> None:
        self.c, self.name, self.index, self.plain = c, name, 0, plain
        self.weight_norm = not plain and c.text("norm_type", "weight_norm") == "weight_norm"

    def convolution(
        self, name: str, given: int, made: int, kernel: int, *, transposed: bool = False
    ) -> Iterator[Weight]:
        """A convolution whose weight is a length and a direction, or that is followed by a norm."""
        shape = (given, made, kernel) if transposed else (made, given, kernel)
        yield f"{name}.conv.bias", (made,)
        if self.weight_norm:
            yield f"{name}.conv.parametrizations.weight.original0", (shape[0], 1, 1)
            yield f"{name}.conv.parametrizations.weight.original1", shape
        else:
            yield f"{name}.conv.weight", shape
            yield from () if self.plain else layer_norm(f"{name}.norm", made)

    def place(self, skipped: int = 0) -> str:
        """The next layer's name, after `skipped` without weights."""
        self.index += skipped + 1
        return f"{self.name}.layers.{self.index - 1}"

    def residual(self, width: int) -> Iterator[Weight]:
        for _ in range(self.c.size("num_residual_layers", least=0)):
            block, inner = self.place(), width // self.c.size("compress")
            yield from self.convolution(f"{block}.block.1", width, inner, self.c.size("residual_kernel_size"))
            yield from self.convolution(f"{block}.block.3", inner, width, 1)
            if self.c.flag("use_conv_shortcut", True):
                yield from self.convolution(f"{block}.shortcut", width, width, 1)

    def lstm(self, width: int) -> Iterator[Weight]:
        if self.plain:
            return
        name = self.place()
        for i in range(self.c.size("num_lstm_layers")):
            yield from ((f"{name}.lstm.weight_{side}_l{i}", (4 * width, width)) for side in ("ih", "hh"))
            yield from ((f"{name}.lstm.bias_{side}_l{i}", (4 * width,)) for side in ("ih", "hh"))


def _encoder(half: Codec, ratios: list[int]) -> Iterator[Weight]:
    c = half.c
    width = c.size("num_filters")
    yield from half.convolution(half.place(), c.size("audio_channels"), width, c.size("kernel_size"))
    for ratio in reversed(ratios):
        yield from half.residual(width)
        yield from half.convolution(half.place(1), width, 2 * width, 2 * ratio)
        width *= 2
    yield from half.lstm(width)
    yield from half.convolution(half.place(1), width, c.hidden_size, c.size("last_kernel_size"))


def _decoder(half: Codec, ratios: list[int]) -> Iterator[Weight]:
    c = half.c
    width = c.size("num_filters") * 2 ** len(ratios)
    yield from half.convolution(half.place(), c.hidden_size, width, c.size("kernel_size"))
    yield from half.lstm(width)
    for ratio in ratios:
        yield from half.convolution(half.place(1), width, width // 2, 2 * ratio, transposed=True)
        width //= 2
        yield from half.residual(width)
    yield from half.convolution(half.place(1), width, c.size("audio_channels"), c.size("last_kernel_size"))


def halves(c: Config, encoder: str, decoder: str, *, plain: bool) -> tuple[Weight, ...]:
    """The convolutions of both halves, of a config with its class's defaults."""
    ratios = c.sizes("upsampling_ratios")
    residual = c.size("num_residual_layers", least=0)
    if not 0 < len(ratios) <= 16 or max(c.size("num_lstm_layers", default=1), residual) > MOST_LAYERS:
        raise c.error(f"expected 1 to 16 upsampling_ratios and at most {MOST_LAYERS} layers of a kind")
    return (*_encoder(Codec(c, encoder, plain), ratios), *_decoder(Codec(c, decoder, plain), ratios))


def codec_weights(c: Config) -> tuple[Weight, ...]:
    """Every parameter of both halves."""
    return halves(c.filled(_DEFAULTS), "encoder", "decoder", plain=False)


def codebooks(count: int, size: int, width: int, name: str, *leaves: str) -> tuple[Weight, ...]:
    """The tables of a quantizer, which its class registers as buffers. Raises SourceError where they are too many."""
    if count > MOST_CODEBOOKS:
        given = f"{count:,}" if count < LARGEST_SIZE else "more than 2^40"
        raise SourceError(f"model config: at most {MOST_CODEBOOKS:,} codebooks of a codec, got {given}")
    return tuple((f"{name.format(i)}.codebook.{leaf}", (size, width)) for i in range(count) for leaf in leaves)


def num_codebooks(c: Config, rate: str, hop: int) -> int:
    """As many as the widest band has bits for at the codec's frames a second."""
    bands = [Config({"target_bandwidths": b}, c.model_id).number("target_bandwidths")
             for b in c.items("target_bandwidths") or []]  # fmt: skip
    frames, bits = -(-c.size(rate) // hop), math.ceil(math.log2(c.size("codebook_size", least=2)))
    return int(1000 * bands[-1] // (frames * bits)) if bands else 0


def codec_buffers(c: Config) -> tuple[Weight, ...]:
    """EnCodec's codebooks, and the means that training keeps of them."""
    c = c.filled(_DEFAULTS)
    width = c.size("codebook_dim", default=c.hidden_size)
    count = num_codebooks(c, "sampling_rate", math.prod(c.sizes("upsampling_ratios")))
    name = "quantizer.layers.{}"
    return codebooks(count, c.size("codebook_size"), width, name, "embed", "embed_avg")
