"""What differs between towers that read images or sound, and the weights that they have around their layers."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from vramwise.models.blocks import Modality, Operation, Part
from vramwise.models.config import Config
from vramwise.models.operations.attention import LLAMA, AttentionStyle
from vramwise.models.operations.undescribed import Undescribed
from vramwise.records import record

Weight = tuple[str, tuple[int, ...]]
"""Name below the tower, and shape."""


_EMBEDDING = Undescribed(name="an embedding of patches")
_CLOSING = Undescribed(name="what follows a tower's layers")


@record
class Tower:
    """What differs between towers.

    `before` and `after` are the weights around the layers: patch embedding, positions, norms, pooling. `qkv` names
    three products or one fused; `biases` says which of q, k, v and the output have one. `mlp` names two products or,
    gated, three. `scales` names what the results of attention and MLP are multiplied with, of `scale_width`;
    `of_layer` are weights that attention has besides, by layer. `embedding` and `closing` name the operations that use
    the weights around the layers, `pooling` weights after them whose result nothing reads. `packed`: the patches of
    all images lie in one row, each image attends to itself, in windows outside the layers `whole_layers`. `turned`
    names what turns queries and keys by the positions of patches, `turned_by_row` what does so before heads come
    first. The results of layers `tapped` are read by the language model too. `windows`: patches keep their `rows` and
    columns, and each layer attends within windows of that side, 0 for the whole image. `eager_only`: the class has no
    other attention. `frozen`: weights that it never trains. `inner`: columns of all heads, 0 where they are `width`.
    `key_value_width`: columns of all keys where heads share them, 0 where each has its own.
    """

    width: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    function: str
    before: tuple[Weight, ...]
    after: tuple[Weight, ...] = ()
    layers: str = "encoder.layers"
    norm: Literal["layer", "rms"] = "layer"
    norms: tuple[str, str] = ("layer_norm1", "layer_norm2")
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    output: str = "self_attn.out_proj"
    biases: tuple[bool, bool, bool, bool] = (True, True, True, True)
    qk_norms: tuple[str, str] | None = None
    mlp: tuple[str, ...] = ("mlp.fc1", "mlp.fc2")
    mlp_bias: bool = True
    scales: tuple[str, str] | None = None
    scale_width: int = 0
    of_layer: tuple[tuple[Weight, ...], ...] = ()
    windows: tuple[int, ...] = ()
    rows: int = 0
    part: Part = "vision"
    modality: Modality = "image"
    embedding: Operation = _EMBEDDING
    closing: Operation = _CLOSING
    pooling: tuple[Weight, ...] = ()
    attention_style: AttentionStyle = LLAMA
    eager_only: bool = False
    frozen: frozenset[str] = frozenset()
    turned: Operation | None = None
    turned_by_row: Operation | None = None
    packed_turn: str = "turned_in_fp32"
    packed: bool = False
    inner: int = 0
    key_value_width: int = 0
    whole_layers: frozenset[int] | None = None
    tapped: frozenset[int] = frozenset()


def pair(c: Config, name: str) -> tuple[int, int]:
    """Height and width, given as one number or as two."""
    sides = c.get(name)
    if not isinstance(sides, list | tuple):
        return c.size(name), c.size(name)
    if len(sides) != 2:
        raise c.error(f"{name}: expected one number or two, got {len(sides)}")
    height, width = (Config({name: side}, c.model_id).size(name) for side in sides)
    return height, width


def num_patches(c: Config) -> int:
    """Patches of an image of the tower's own size."""
    (height, width), (patch_height, patch_width) = pair(c, "image_size"), pair(c, "patch_size")
    return (height // patch_height) * (width // patch_width)


def with_bias(name: str, *shape: int) -> tuple[Weight, Weight]:
    """Weight and bias of a convolution or product whose first axis is its output's."""
    return (f"{name}.weight", shape), (f"{name}.bias", shape[:1])


def layer_norm(name: str, width: int) -> tuple[Weight, Weight]:
    """Weight and bias of a layer norm."""
    return (f"{name}.weight", (width,)), (f"{name}.bias", (width,))


def encoder_sizes(c: Config) -> dict[str, Any]:
    return {
        "width": c.hidden_size, "intermediate_size": c.intermediate_size, "num_layers": c.num_hidden_layers,
        "num_heads": c.num_attention_heads, "function": c.text("hidden_act"),
    }  # fmt: skip


def patch_weights(c: Config, name: str) -> tuple[Weight, Weight]:
    """The convolution that turns patches into vectors."""
    return with_bias(name, c.hidden_size, c.size("num_channels"), *pair(c, "patch_size"))


class OwnSize(TypedDict):
    """Pixels on a side of an image, and its channels."""

    image_size: int
    num_channels: int


def own_size(c: Config) -> OwnSize:
    """Sizes of an image, which the tower takes in one size only."""
    return {"image_size": pair(c, "image_size")[0], "num_channels": c.size("num_channels")}
