"""What lies between a tower and the language model: tokens joined, normed and brought to its width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramwise.models.blocks import BlockBuilder, Value
from vramwise.models.config import Config


@dataclass(frozen=True, slots=True)
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


def joined(b: BlockBuilder, x: Value, tokens: int, way: str = "rows") -> Value:
    """Neighbouring tokens side by side in one; `way` says how they come to lie so."""
    return b.unary(f"join_{way}", x, width=x.width * tokens, tokens=tokens)


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


def _num_features(e: Ends) -> int:
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
        results = [b.unary("without_first", y) for y in results]
    if len(results) == 1:
        return results[0]
    joint = b.op("join_features", "", results, [x.width * len(results)])[0]
    return b.unary("without_first", joint) if cut and e.cut_joined else joint


def llava(b: BlockBuilder, x: Value, e: Ends) -> Value:
    bias = e.model.flag("multimodal_projector_bias", True)
    return two_products(b, features(b, x, e), ("linear_1", "linear_2"), (e.width, e.width), bias)


def vipllava(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm of several layers' results side by side, then as LLaVA."""
    x = norm(b, features(b, x, e), "projector_layernorm")
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width))


def deepseek_vl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    return two_products(b, x, ("linear1", "linear2"), (e.width, e.width))


def minimax_m3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Two products for each patch, and two for each square of patches."""
    inner = e.model.size("projector_hidden_size", default=6144)
    x = two_products(b, x, ("linear_1", "linear_2"), (inner, e.width))
    return two_products(
        b, joined(b, x, e.tower.size("spatial_merge_size") ** 2), ("merge_linear_1", "merge_linear_2"), (inner, e.width)
    )


def gemma3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Patches averaged to the tokens of an image, a norm, one matrix."""
    tokens = e.model.size("mm_tokens_per_image", default=256)
    rows = e.tower.size("image_size") // e.tower.size("patch_size")
    x = b.unary("average_pool", x, rows=rows, kernel=rows // int(tokens**0.5))
    x = b.rms_norm(x, "mm_soft_emb_norm", style="gemma", part="projector")
    weight = b.parameter("", "mm_input_projection_weight", (x.width, e.width))
    return b.unary("project", x, "", [weight], e.width)


def lfm2_vl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    x = joined(b, x, e.model.size("downsample_factor", default=2) ** 2)
    x = norm(b, x, "layer_norm") if e.model.flag("projector_use_layernorm", True) else x
    widths = (e.model.size("projector_hidden_size", default=2560), e.width)
    return two_products(b, x, ("linear_1", "linear_2"), widths, e.model.flag("projector_bias", True))


def mistral3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm, squares of patches merged by a product, then as LLaVA."""
    x = b.rms_norm(x, "norm", part="projector")
    merged = joined(b, x, e.model.size("spatial_merge_size", default=2) ** 2, "unfolded")
    x = joined(b, b.linear(merged, "patch_merger.merging_layer", x.width), _num_features(e), "features_of_one")
    bias = e.model.flag("multimodal_projector_bias")
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width), bias)


def internvl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    share = e.model.number("downsample_ratio", 0.5)
    if not 0 < share <= 1:
        raise e.model.error(f"downsample_ratio: expected a number above 0 and at most 1, got {share}")
    if e.model.text("vision_feature_select_strategy", "default") == "default":
        x = b.unary("without_first", x)
    x = norm(b, joined(b, x, int(1 / share) ** 2, "squares"), "layer_norm")
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width))


def idefics3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    return b.linear(joined(b, x, e.model.size("scale_factor", default=2) ** 2, "squares"), "proj", e.width)


def linear(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """One product (PaliGemma, Qwen2-Audio)."""
    return b.linear(x, "linear", e.model.size("projection_dim", default=e.width), bias=True)


def qwen2_vl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm, squares of patches side by side, two products; Qwen2.5-VL's norm is a root-mean-square one."""
    rms = e.tower.model_type != "qwen2_vl_vision"
    x = b.rms_norm(x, "ln_q", part="projector") if rms else norm(b, x, "ln_q")
    x = joined(b, x, e.tower.size("spatial_merge_size") ** 2)
    x = two_products(b, x, ("mlp.0", "mlp.2"), (x.width, e.tower.size("out_hidden_size" if rms else "hidden_size")))
    return b.unary("order_restored", x, tokens=e.tower.size("spatial_merge_size") ** 2) if rms else x


def qwen3_vl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Qwen2-VL's, and one more for each layer whose result goes to a layer of the language model."""
    tokens, names = e.tower.size("spatial_merge_size") ** 2, ("linear_fc1", "linear_fc2")
    widths = (x.width * tokens, e.tower.size("out_hidden_size"))
    for index, layer in enumerate(e.tower.items("deepstack_visual_indexes") or ()):
        module = f"deepstack_merger_list.{index}"
        h = norm(b, joined(b, b.input(tapped(int(layer)), x.width), tokens), f"{module}.norm")
        h = two_products(b, h, (f"{module}.{names[0]}", f"{module}.{names[1]}"), widths)
        b.hand_on(deep(index), h)
    return qwen3_merger(b, x, e.tower)


def tapped(layer: int) -> str:
    """The stream of a tower's layer that the language model reads too."""
    return f"image after layer {layer}"


def deep(index: int) -> str:
    """The stream of what a layer of the language model adds to its tokens of images."""
    return f"image for layer {index}"


def qwen3_merger(b: BlockBuilder, x: Value, tower: Config) -> Value:
    """A norm, squares of patches side by side, two products."""
    tokens = tower.size("spatial_merge_size") ** 2
    x = joined(b, norm(b, x, "merger.norm"), tokens)
    return two_products(b, x, ("merger.linear_fc1", "merger.linear_fc2"), (x.width, tower.size("out_hidden_size")))


def glm4v(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A product, a norm, and a gated MLP."""
    width, inner = e.tower.size("out_hidden_size"), e.tower.intermediate_size
    x = b.unary("all_rows", x, width=width)
    x = b.activation(norm(b, b.linear(x, "proj", width), "post_projection_norm"), "gelu")
    return gated(b, x, inner, width)
