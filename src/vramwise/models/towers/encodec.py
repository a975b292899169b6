"""The weights of EnCodec, which turns sound into codes and back: convolutions with residual blocks, an LSTM between."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.models.config import Config
from vramwise.models.towers.tower_design import Weight, layer_norm

# Defaults of EncodecConfig (transformers 5.23). Codebooks are buffers.
_DEFAULTS: dict[str, object] = {
    "audio_channels": 1, "hidden_size": 128, "num_filters": 32, "num_residual_layers": 1,
    "upsampling_ratios": [8, 5, 4, 2], "kernel_size": 7, "last_kernel_size": 7, "residual_kernel_size": 3,
    "compress": 2, "num_lstm_layers": 2,
}  # fmt: skip
MOST_LAYERS = 64


class Codec:
    """Writes the layers of one half in order; a layer without weights, such as an activation, still has a number."""

    def __init__(self, c: Config, name: str) -> None:
        self.c, self.name, self.index = c, name, 0
        self.weight_norm = c.text("norm_type", "weight_norm") == "weight_norm"

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
            yield from layer_norm(f"{name}.norm", made)

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
        name = self.place()
        for i in range(self.c.size("num_lstm_layers")):
            yield from ((f"{name}.lstm.weight_{side}_l{i}", (4 * width, width)) for side in ("ih", "hh"))
            yield from ((f"{name}.lstm.bias_{side}_l{i}", (4 * width,)) for side in ("ih", "hh"))


def _encoder(c: Config, ratios: list[int]) -> Iterator[Weight]:
    half, width = Codec(c, "encoder"), c.size("num_filters")
    yield from half.convolution(half.place(), c.size("audio_channels"), width, c.size("kernel_size"))
    for ratio in reversed(ratios):
        yield from half.residual(width)
        yield from half.convolution(half.place(1), width, 2 * width, 2 * ratio)
        width *= 2
    yield from half.lstm(width)
    yield from half.convolution(half.place(1), width, c.hidden_size, c.size("last_kernel_size"))


def _decoder(c: Config, ratios: list[int]) -> Iterator[Weight]:
    half, width = Codec(c, "decoder"), c.size("num_filters") * 2 ** len(ratios)
    yield from half.convolution(half.place(), c.hidden_size, width, c.size("kernel_size"))
    yield from half.lstm(width)
    for ratio in ratios:
        yield from half.convolution(half.place(1), width, width // 2, 2 * ratio, transposed=True)
        width //= 2
        yield from half.residual(width)
    yield from half.convolution(half.place(1), width, c.size("audio_channels"), c.size("last_kernel_size"))


def codec_weights(c: Config) -> tuple[Weight, ...]:
    """Every parameter of both halves."""
    c = c.filled(_DEFAULTS)
    ratios = [
        Config({"upsampling_ratios": r}, c.model_id).size("upsampling_ratios")
        for r in c.items("upsampling_ratios") or []
    ]
    if (
        not 0 < len(ratios) <= 16
        or max(c.size("num_lstm_layers"), c.size("num_residual_layers", least=0)) > MOST_LAYERS
    ):
        raise c.error(f"expected 1 to 16 upsampling_ratios and at most {MOST_LAYERS} layers of a kind")
    return (*_encoder(c, ratios), *_decoder(c, ratios))
