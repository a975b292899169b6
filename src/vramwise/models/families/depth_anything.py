"""Depth Anything 1 and 2: DINO 2, of which four layers become one map of depths; every parameter is of part `vision`.

The parameters are those of `DepthAnythingForDepthEstimation` in transformers 5.23; what training keeps of the
convolutions is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under
from vramwise.models.towers.known_weights import known_weights
from vramwise.models.towers.tower_design import Weight, with_bias

CLASS_DEFAULTS: dict[str, object] = {
    "reassemble_hidden_size": 384, "reassemble_factors": [4, 2, 1, 0.5], "neck_hidden_sizes": [48, 96, 192, 384],
    "fusion_hidden_size": 64, "head_hidden_size": 32,
}  # fmt: skip
"""Defaults of `DepthAnythingConfig`."""
_BACKBONE = {"model_type": "dinov2", "image_size": 518, "hidden_size": 384, "num_attention_heads": 6}
"""What the class takes where the config names no backbone."""
MOST_TIMES = 4096
"""Sides of a convolution that makes an image larger; the checkpoints have 4."""
BACKBONES = ("dinov2", "dinov2_with_registers")


def task(c: Config) -> str:
    """It predicts no tokens."""
    return "none"


def backbone(c: Config) -> tuple[Block, ...]:
    """The encoder, without a head of its own."""
    given = (c.table("backbone_config") or Config(_BACKBONE, c.model_id)).values
    inner = Config({**given, "architectures": None, "model_type": given.get("model_type") or "dinov2"}, c.model_id)
    if inner.model_type not in BACKBONES:
        raise c.error(f"backbone_config: only {' and '.join(BACKBONES)} are described here, not {inner.model_type:.40}")
    return language_model(inner, under("backbone"))


def resized(name: str, width: int, factor: float) -> list[Weight]:
    """A convolution that makes a layer's result larger or smaller by a factor, none by 1."""
    if factor == 1:
        return []
    side = int(factor) if factor > 1 else 3
    return list(with_bias(name, width, width, side, side))


def factors_of(c: Config, stages: int) -> list[float]:
    """By what each stage's image grows or shrinks: the side of a transposed convolution, or the inverse of a stride."""
    found = [Config({"reassemble_factors": f}, c.model_id).number("reassemble_factors")
             for f in c.items("reassemble_factors") or []]  # fmt: skip
    if len(found) < stages:
        raise c.error(f"reassemble_factors names {len(found)} of the {stages} stages of neck_hidden_sizes")
    for factor in found:
        if not 0 < factor <= MOST_TIMES or (factor > 1 and not factor.is_integer()):
            bounds = f"a whole number up to {MOST_TIMES:,}, or less than 1 and more than 0"
            raise c.error(f"reassemble_factors: expected {bounds}, got {factor:g}")
    return found


def neck(c: Config, width: int) -> list[Weight]:
    """Each layer's result as an image of a size of its own, then all of them fused from the smallest on."""
    sizes = c.sizes("neck_hidden_sizes")
    found: list[Weight] = []
    for i, (made, factor) in enumerate(zip(sizes, factors_of(c, len(sizes)), strict=False)):
        name = f"reassemble_stage.layers.{i}"
        found += [*with_bias(f"{name}.projection", made, c.size("reassemble_hidden_size"), 1, 1)]
        found += resized(f"{name}.resize", made, factor)
    found += [(f"convs.{i}.weight", (width, made, 3, 3)) for i, made in enumerate(sizes)]
    for i in range(len(sizes)):
        name = f"fusion_stage.layers.{i}"
        found += with_bias(f"{name}.projection", width, width, 1, 1)
        for one in ("residual_layer1.convolution1", "residual_layer1.convolution2", "residual_layer2.convolution1",
                    "residual_layer2.convolution2"):  # fmt: skip
            found += with_bias(f"{name}.{one}", width, width, 3, 3)
    return found


def blocks(config: Config) -> tuple[Block, ...]:
    """Backbone, neck, and three convolutions to a depth for each pixel."""
    c = config.filled(CLASS_DEFAULTS)
    width, inner = c.size("fusion_hidden_size", least=2), c.size("head_hidden_size")
    half = width // 2
    head = [*with_bias("conv1", half, width, 3, 3), *with_bias("conv2", inner, half, 3, 3),
            *with_bias("conv3", 1, inner, 1, 1)]  # fmt: skip
    return (
        *backbone(config), known_weights("neck", neck(c, width), "a neck of convolutions"),
        known_weights("head", head, "a map of depths"),
    )  # fmt: skip
