"""AutoencoderKLQwenImage and AutoencoderKLWan (Wan 2.1's): decoders that take one frame of the latents after another
and keep the last frames of every convolution between (diffusers 0.42.1 autoencoder_kl_qwenimage.py and _wan.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.models.blocks import Block, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.diffusion.checked import number_of_layers, whole_numbers
from vramwise.models.diffusion.live_set import KEPT
from vramwise.models.operations.causal import (
    CausalConvolution,
    ChannelsNormed,
    DoubledInFp32,
    FrameOf,
    FramesAsImages,
    FramesBehind,
    FramesSoFar,
    ImagesAsFrames,
    PairsOfFrames,
    PlacesSdpa,
)
from vramwise.models.operations.simple import Add, Clamp, Hold
from vramwise.records import record, replace

CLASS_DEFAULTS: dict[str, object] = {
    "base_dim": 96, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2,
    "temperal_downsample": [False, True, True],
}  # fmt: skip
TILE, STRIDE = 256, 192
"""Pixels of a tile's side, and from one tile to the next, in the classes' code."""
_RECORDED = 4
"""Calls that are recorded: the first, the second, one more, the last; those between are like the third."""


def scale_of(config: Config) -> int:
    """Pixels along a side for each place of the latents."""
    return int(2 ** len(_times(config.filled(CLASS_DEFAULTS))))


def frames_of(latent_frames: int) -> int:
    """Frames of the clip that so many frames of the latents stand for."""
    return 4 * (latent_frames - 1) + 1


def tile_of(config: Config) -> tuple[int, int]:
    """Places of the latents along a tile's side, and from one tile to the next."""
    scale = scale_of(config)
    return TILE // scale, STRIDE // scale


def _times(c: Config) -> list[bool]:
    return [bool(one) for one in c.items("temperal_downsample") or []]


def _widths(c: Config) -> list[int]:
    multiples = whole_numbers(c, "dim_mult")
    if c.flag("is_residual") or c.items("attn_scales") or not 1 < len(multiples) == len(_times(c)) + 1 < 8:
        raise c.error("is_residual, attn_scales, or dim_mult that does not go with temperal_downsample: not described")
    base = c.size("base_dim")
    return [base * one for one in [multiples[-1], *reversed(multiples)]]


@record
class _Call:
    """One call of the decoder: its number; 0 has nothing kept, 1 begins to double frames."""

    number: int

    @property
    def prefix(self) -> str:
        return f"call {self.number}/"


class _Maker(ComponentBuilder):
    """A block of one call; every convolution that keeps frames has a stream of its own."""

    def __init__(self, name: str, call: _Call, kept: list[str]) -> None:
        super().__init__(name)
        self.call, self.kept = call, kept

    def causal(
        self, x: Value, module: str, width: int, kernel: tuple[int, int, int] = (3, 3, 3), *, keeps: bool = True,
        first_call: int = 0,
    ) -> Value:  # fmt: skip
        """`CausalConv3d`; `first_call`: the call from which on it runs, which begins with zeros."""
        weights = [
            self.parameter(module, "weight", (width, x.width, *kernel)),
            self.parameter(module, "bias", (width,)),
        ]
        padding = (kernel[0] // 2, kernel[1] // 2, kernel[2] // 2)
        if not keeps:
            return self.op(CausalConvolution(padding=padding), module, [x], [width], weights)[0]
        stream = f"{KEPT}{self.path(module)}"
        before = [self.input(stream, x.width)] if self.call.number > first_call else []
        kind = CausalConvolution(padding=padding, keeps=True, begins=bool(first_call) and not before)
        out, kept = self.op(kind, module, [x, *before], [width, x.width], weights)
        self.hand_on(stream, kept)
        self.kept.append(stream)
        return out

    def normed(self, x: Value, module: str, *, images: bool = False) -> Value:
        """The class's own norm over channels."""
        gamma = self.parameter(module, "gamma", (x.width, 1, 1) if images else (x.width, 1, 1, 1), part="norm")
        return self.unary(ChannelsNormed(), x, module, [gamma])


def blocks(config: Config) -> tuple[Block, ...]:
    """One call for a single frame, as an image takes. Stream: z (batch, z_dim, frames, rows, columns)."""
    return clip_blocks(config, 1)


def idle_blocks(config: Config) -> tuple[Block, ...]:
    """The encoder, and what only later calls of the decoder run."""
    c = config.filled(CLASS_DEFAULTS)
    return (*_encoder(c), *_call(c, _Call(2), [], 0, 3))


def blocks_of_call(config: Config, given: Mapping[str, tuple[int, ...]]) -> tuple[Block, ...]:
    """Everything that `decode` of these latents runs."""
    return clip_blocks(config, given["z"][2])


def clip_blocks(config: Config, frames: int) -> tuple[Block, ...]:
    """`decode` of so many frames of the latents: a call for each, their results one behind the other."""
    c, kept = config.filled(CLASS_DEFAULTS), list[str]()
    b = _Maker("", _Call(0), kept)
    found = [
        b.build(x=b.causal(b.input("z", c.size("z_dim")), "post_quant_conv", c.size("z_dim"), (1, 1, 1), keeps=False))
    ]
    for number in range(min(frames, _RECORDED)):
        found += _call(c, _Call(number), kept, frames, _RECORDED)
    b = _Maker("", _Call(0), [])
    whole = b.input("out", 3)
    out = b.unary(Clamp(), whole)
    b.still_named(whole, b.input("x", 1), *(b.input(name, 1) for name in dict.fromkeys(kept)))
    return (*found, b.build(image=out))


def _call(c: Config, call: _Call, kept: list[str], frames: int, recorded: int) -> Iterator[Block]:
    """One frame of the latents through the decoder, its result behind those before.

    The frame of `_decode` keeps what it joined so far while the decoder runs, and the last result by its name.
    """
    widths, ups = _widths(c), list(reversed(_times(c)))
    if call.number == recorded - 1 and frames > recorded:
        b = ComponentBuilder("")
        yield b.build(out=b.unary(FramesSoFar(frames=frames_of(frames - 1)), b.input("out", 3)))
    for block in _decoder(c, call, kept, widths, ups):
        yield replace(block, name=f"{call.prefix}{block.name}" if block.name else call.prefix.rstrip("/"))
    if call.number == 0:
        return
    b = ComponentBuilder("")
    if call.number > 1:
        b.still_named(b.input("named out_", 3))
    result = b.input("out_", 3)
    b.hand_on("named out_", result)
    yield b.build(out=b.op(FramesBehind(), "", [b.input("out", 3), result], [3])[0])


def _decoder(c: Config, call: _Call, kept: list[str], widths: list[int], ups: list[bool]) -> Iterator[Block]:
    b = _Maker("", call, kept)
    frame = b.unary(FrameOf(), b.input("x", c.size("z_dim")))
    yield b.build(sample=b.causal(frame, "decoder.conv_in", widths[0]))
    b = _Maker("decoder.mid_block", call, kept)
    x = _attention(b, _residual(b, b.input("sample", widths[0]), "resnets.0", widths[0]), "attentions.0")
    yield b.build(sample=_residual(b, x, "resnets.1", widths[0]))
    for i, width in enumerate(widths[1:]):
        b = _Maker(f"decoder.up_blocks.{i}", call, kept)
        x = b.input("sample", widths[i] if i == 0 else widths[i] // 2)
        for k in range(number_of_layers(c, "num_res_blocks", 64) + 1):
            x = _residual(b, x, f"resnets.{k}", width)
        yield b.build(sample=_larger(b, x, "upsamplers.0", in_time=ups[i]) if i < len(ups) else x)
    b = _Maker("", call, kept)
    x = b.activation(b.normed(b.input("sample", widths[-1]), "decoder.norm_out"), "silu", "decoder.nonlinearity")
    out = b.causal(x, "decoder.conv_out", 3)
    yield b.build(**{"out" if call.number == 0 else "out_": out})


def _residual(b: _Maker, x: Value, module: str, width: int) -> Value:
    """Norm, silu and causal convolution twice beside a shortcut."""
    beside = x if x.width == width else b.causal(x, f"{module}.conv_shortcut", width, (1, 1, 1), keeps=False)
    h = b.activation(b.normed(x, f"{module}.norm1"), "silu", f"{module}.nonlinearity")
    h = b.causal(h, f"{module}.conv1", width)
    h = b.activation(b.normed(h, f"{module}.norm2"), "silu", f"{module}.nonlinearity.2")
    h = b.causal(h, f"{module}.conv2", width)
    return b.op(Add(), module, [h, beside], [width])[0]


def _attention(b: _Maker, x: Value, module: str) -> Value:
    """Attention of one head in every frame."""
    images = b.unary(FramesAsImages(), x, module)
    maps = b.convolution(b.normed(images, f"{module}.norm", images=True), f"{module}.to_qkv", 3 * x.width, 1)
    mixed = b.unary(PlacesSdpa(), maps, module, width=x.width)
    out = b.convolution(mixed, f"{module}.proj", x.width, 1)
    framed = b.op(ImagesAsFrames(), module, [out, x], [x.width])[0]
    return b.op(Add(), module, [framed, x], [x.width])[0]


def _larger(b: _Maker, x: Value, module: str, *, in_time: bool) -> Value:
    """Twice the rows and columns, half the channels; from the second call on twice the frames where it is so."""
    if in_time and b.call.number:
        wide = b.causal(x, f"{module}.time_conv", 2 * x.width, (3, 1, 1), first_call=1)
        x = b.unary(PairsOfFrames(), wide, module, width=x.width)
    images = b.unary(FramesAsImages(), x, module)
    large = b.unary(DoubledInFp32(), images, f"{module}.resample.0")
    out = b.convolution(large, f"{module}.resample.1", x.width // 2, 3, padding=1)
    return b.op(ImagesAsFrames(), module, [out, x], [out.width])[0]


def _encoder(c: Config) -> Iterator[Block]:
    """Weights of the encoder, which a pipeline from text holds and does not run."""
    multiples = whole_numbers(c, "dim_mult")
    base, z = c.size("base_dim"), c.size("z_dim")
    widths = [base * one for one in [1, *multiples]]
    b, index = _Maker("", _Call(0), []), 0
    x = b.causal(b.input("image", 3), "encoder.conv_in", widths[0])
    for i, width in enumerate(widths[1:]):
        for _ in range(number_of_layers(c, "num_res_blocks", 64)):
            x = _residual(b, x, f"encoder.down_blocks.{index}", width)
            index += 1
        if i + 1 < len(multiples):
            x = b.convolution(x, f"encoder.down_blocks.{index}.resample.1", width, 3)
            if _times(c)[i]:
                x = b.causal(x, f"encoder.down_blocks.{index}.time_conv", width, (3, 1, 1))
            index += 1
    x = _residual(b, x, "encoder.mid_block.resnets.0", x.width)
    x = _attention(b, x, "encoder.mid_block.attentions.0")
    x = _residual(b, x, "encoder.mid_block.resnets.1", x.width)
    x = b.causal(b.normed(x, "encoder.norm_out"), "encoder.conv_out", 2 * z)
    yield b.build(latents=b.unary(Hold(), b.causal(x, "quant_conv", 2 * z, (1, 1, 1), keeps=False)))
