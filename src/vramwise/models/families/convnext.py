"""ConvNeXt 1 and 2: stages of convolutions by channel; every parameter is of part `vision`.

With `architectures` naming the classifier it follows; else the bare model. What training keeps is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.known_weights import known_weights, product
from vramwise.models.towers.tower_design import Weight, layer_norm, pair, with_bias

CLASS_DEFAULTS: dict[str, object] = {
    "num_channels": 3, "patch_size": 4, "hidden_sizes": [96, 192, 384, 768], "depths": [3, 3, 9, 3],
    "layer_scale_init_value": 1e-6,
}  # fmt: skip
"""Defaults of `ConvNextConfig` and `ConvNextV2Config` (transformers 5.23)."""
_AROUND = 7
"""Pixels on a side of what a convolution by channel sees."""


def task(c: Config) -> str:
    """It predicts no tokens, and its loss is not described."""
    return "none"


def classifies(c: Config) -> bool:
    """Whether the config names the classifier."""
    return any(str(name).endswith("ForImageClassification") for name in c.items("architectures") or [])


def layer(c: Config, width: int) -> list[Weight]:
    """A convolution by channel, a norm, two products; version 1 scales their result, 2 norms between them."""
    found = [*with_bias("dwconv", width, 1, _AROUND, _AROUND), *layer_norm("layernorm", width),
             *product("pwconv1", 4 * width, width), *product("pwconv2", width, 4 * width)]  # fmt: skip
    if c.model_type == "convnextv2":
        return [*found, ("grn.weight", (1, 1, 1, 4 * width)), ("grn.bias", (1, 1, 1, 4 * width))]
    return [("layer_scale_parameter", (width,)), *found] if c.number("layer_scale_init_value") > 0 else found


def stage(c: Config, name: str, index: int, widths: list[int], depth: int) -> list[Block]:
    """Squares of pixels become one from the second stage on, then its layers."""
    found: list[Block] = []
    if index:
        given, width = widths[index - 1 : index + 1]
        halved = [*layer_norm("downsampling_layer.0", given), *with_bias("downsampling_layer.1", width, given, 2, 2)]
        found.append(known_weights(name, halved, "an image halved"))
    weights = layer(c, widths[index])
    return [*found, *(known_weights(f"{name}.layers.{i}", weights, "a stage of convolutions") for i in range(depth))]


def blocks(config: Config) -> tuple[Block, ...]:
    """Patches, stages, norm, classifier."""
    c = config.filled(CLASS_DEFAULTS)
    widths, depths = c.sizes("hidden_sizes"), c.depths("depths")
    if not widths or len(widths) != len(depths):
        raise c.error(f"hidden_sizes ({len(widths)} numbers) and depths ({len(depths)}) name the same stages")
    root = f"{c.model_type}." if classifies(c) else ""
    patches = [
        *with_bias("patch_embeddings", widths[0], c.size("num_channels"), *pair(c, "patch_size")),
        *layer_norm("layernorm", widths[0]),
    ]
    stages = [stage(c, f"{root}encoder.stages.{i}", i, widths, depths[i]) for i in range(len(widths))]
    last = [(f"{root}{leaf}", shape) for leaf, shape in layer_norm("layernorm", widths[-1])]
    if root:
        last += product("classifier", c.num_labels, widths[-1])
    return (
        known_weights(f"{root}embeddings", patches, "an embedding of patches"),
        *(block for blocks_of_stage in stages for block in blocks_of_stage),
        known_weights("", last, "a norm of the whole image"),
    )
