"""MobileNet-V5, the image encoder of Gemma 3n, as timm builds it: inverted residuals, attention to shared keys.

Stages, names and shapes: timm 1.0.31, `timm/models/mobilenetv5.py` and `_efficientnet_blocks.py`.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.towers.tower_design import Weight

ARCHITECTURE = "mobilenetv5_300m_enc"
_STEM, WIDTH, _EXPANSION = 64, 2048, 2
_ATTENTION = ((640, 12, 64, 3), (1280, 16, 96, 0))
"""Width, heads, columns of a head and the kernel that thins keys out, of the stages with attention."""


def _convolution(name: str, out: int, given: int, kernel: int = 1) -> tuple[Weight, Weight]:
    """A convolution without bias and its norm."""
    return (f"{name}.conv.weight", (out, given, kernel, kernel)), (f"{name}.bn.weight", (out,))


def edge_residual(given: int, out: int) -> list[Weight]:
    """A convolution to four times the width given, and a product to the width made."""
    inner = 4 * given
    return [
        ("conv_exp.weight", (inner, given, 3, 3)), ("bn1.weight", (inner,)),
        ("conv_pwl.weight", (out, inner, 1, 1)), ("bn2.weight", (out,)),
    ]  # fmt: skip


def inverted_residual(given: int, out: int, expansion: int, start: int = 0, mid: int = 0) -> list[Weight]:
    """Products to a multiple of the width and back, convolutions by channel (`start`, `mid`: kernels) before each."""
    inner = expansion * given
    weights = [*_convolution("dw_start", given, 1, start)] if start else []
    weights += _convolution("pw_exp", inner, given)
    weights += _convolution("dw_mid", inner, 1, mid) if mid else ()
    return [*weights, *_convolution("pw_proj", out, inner)]


def shared_key_attention(width: int, heads: int, head_dim: int, kernel: int) -> list[Weight]:
    """One head of keys and values for all queries, made of fewer places where a kernel thins them out."""
    weights: list[Weight] = [("norm.weight", (width,)), ("attn.query.proj.weight", (heads * head_dim, width, 1, 1))]
    for name in ("key", "value"):
        if kernel:
            weights += [(f"attn.{name}.down_conv.weight", (width, 1, kernel, kernel))]
            weights += [(f"attn.{name}.norm.weight", (width,))]
        weights += [(f"attn.{name}.proj.weight", (head_dim, width, 1, 1))]
    return [*weights, ("attn.output.proj.weight", (width, heads * head_dim, 1, 1))]


def _scaled(weights: list[Weight], width: int) -> list[Weight]:
    return [*weights, ("layer_scale.gamma", (width,))]


def stages() -> list[list[list[Weight]]]:
    """The weights of every block of the four stages."""
    first = [edge_residual(given, 128) for given in (_STEM, 128, 128)]
    second = [_scaled(inverted_residual(128, 256, 6, 3, 5), 256)]
    second += [_scaled(inverted_residual(256, 256, 4, kernel), 256) for kernel in (5, 3, 5, 3)]
    third = [_scaled(inverted_residual(256, 640, 6, 5, 5), 640)]
    third += [_scaled(inverted_residual(640, 640, 4, 5), 640)] * 7 + [_scaled(inverted_residual(640, 640, 1), 640)]
    fourth = [_scaled(inverted_residual(640, 1280, 6, 5, 5), 1280)]
    for stage, pairs, (width, *sizes) in zip((third, fourth), (14, 19), _ATTENTION, strict=True):
        attention = _scaled(shared_key_attention(width, *sizes), width)
        stage += [attention, _scaled(inverted_residual(width, width, 2), width)] * pairs
    return [first, second, third, fourth]


def _block(name: str, weights: list[Weight], width: int, x: int | None) -> Block:
    b = BlockBuilder(name, part="vision", modality="image")
    inputs: list[Value] = [] if x is None else [b.input("image", x)]
    return b.build(
        image=b.op("convolutions", "", inputs, [width], [b.parameter("", leaf, shape) for leaf, shape in weights])[0]
    )


def tower(c: Config, name: str) -> tuple[Block, ...]:
    """The blocks of the tower that `vision_config` names."""
    given = c.text("architecture", ARCHITECTURE)
    if given != ARCHITECTURE or c.get("model_args"):
        raise c.error(f"vision_config: of timm's architectures {ARCHITECTURE} without model_args is described")
    stem = [("conv_stem.conv.weight", (_STEM, 3, 3, 3)), ("conv_stem.conv.bias", (_STEM,))]
    blocks = [_block(name, [*stem, ("conv_stem.bn.weight", (_STEM,))], _STEM, None)]
    x, widths = _STEM, []
    for s, stage in enumerate(stages()):
        for i, weights in enumerate(stage):
            out = weights[-1][1][0]
            blocks.append(_block(f"{name}.blocks.{s}.{i}", weights, out, x))
            x = out
        widths.append(x)
    fused = [(f"ffn.{leaf}", shape) for leaf, shape in inverted_residual(sum(widths[2:]), WIDTH, _EXPANSION)]
    return (*blocks, _block(f"{name}.msfa", [*fused, ("norm.weight", (WIDTH,))], WIDTH, x))
