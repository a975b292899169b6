"""What projectors between a tower and the language model are made of."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.image_tokens import JoinedTokens, JoinFeatures, JoinRows, WithoutFirst
from vramwise.records import record


@record
class Ends:
    """The configs of a projector's ends: the whole model's, the tower's, and the language model's width.

    `taken`: after how many layers of the tower the results that are taken come, empty for the whole tower's. `select`
    is the default of `vision_feature_select_strategy`; `cut_joined`: first tokens are cut off after results are joined.
    """

    model: Config
    tower: Config
    width: int
    taken: tuple[int, ...] = ()
    select: str = "default"
    cut_joined: bool = False


Projector = Callable[[BlockBuilder, Value, Ends], Value]


def joined(b: BlockBuilder, x: Value, tokens: int, way: type[JoinedTokens] = JoinRows) -> Value:
    """Neighbouring tokens side by side in one; `way` says how they come to lie so."""
    return b.unary(way(tokens=tokens), x, width=x.width * tokens)


def norm(b: BlockBuilder, x: Value, module: str) -> Value:
    return b.layer_norm(x, module, part="projector")


def two_products(
    b: BlockBuilder, x: Value, names: tuple[str, str], widths: tuple[int, int], bias: bool = True
) -> Value:
    h = b.activation(b.linear(x, names[0], widths[0], bias=bias), "gelu")
    return b.linear(h, names[1], widths[1], bias=bias, shard="row")


def gated(b: BlockBuilder, x: Value, inner: int, width: int, within: str = "") -> Value:
    """down(silu(gate(x)) · up(x))."""
    gate, up = (b.linear(x, f"{within}{name}_proj", inner) for name in ("gate", "up"))
    h = b.multiply(b.activation(gate, "silu"), up)
    return b.linear(h, f"{within}down_proj", width, shard="row")


def num_features(e: Ends) -> int:
    """Layers of the tower whose results are taken side by side."""
    features = e.model.get("vision_feature_layer", -1)
    return len(features) if isinstance(features, list | tuple) else 1


def features(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Results of the layers that are taken side by side, without their first token where the config says so."""
    last = max(e.taken, default=0)
    found = {count: x if count == last else b.input(tapped(count - 1), x.width) for count in e.taken}
    results = [found[count] for count in e.taken] or [x]
    cut = e.model.text("vision_feature_select_strategy", e.select) == "default"
    if cut and (len(results) == 1 or not e.cut_joined):
        results = [b.unary(WithoutFirst(), y) for y in results]
    if len(results) == 1:
        return results[0]
    joint = b.op(JoinFeatures(), "", results, [x.width * len(results)])[0]
    return b.unary(WithoutFirst(), joint) if cut and e.cut_joined else joint


def tapped(layer: int) -> str:
    """The stream of a tower's layer that the language model reads too."""
    return f"image after layer {layer}"


def deep(index: int) -> str:
    """The stream of what a layer of the language model adds to its tokens of images."""
    return f"image for layer {index}"
