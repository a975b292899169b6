"""Projectors of Qwen2-VL and Qwen3-VL: squares of patches side by side."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.towers import OrderRestored
from vramwise.models.towers.projector_pieces import Ends, deep, joined, norm, tapped, two_products


def hyperclovax(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Qwen2.5-VL's, which is the tower's, and a product to the language model's width."""
    return b.linear(qwen2_vl(b, x, e, "vision_model.merger."), "projector", e.width, bias=True)


def qwen2_vl(b: BlockBuilder, x: Value, e: Ends, within: str = "") -> Value:
    """A norm, squares of patches side by side, two products; Qwen2.5-VL's norm is a root-mean-square one."""
    rms = e.tower.model_type != "qwen2_vl_vision"
    x = b.rms_norm(x, f"{within}ln_q", part="projector") if rms else norm(b, x, f"{within}ln_q")
    x = joined(b, x, e.tower.size("spatial_merge_size") ** 2)
    names = (f"{within}mlp.0", f"{within}mlp.2")
    x = two_products(b, x, names, (x.width, e.tower.size("out_hidden_size" if rms else "hidden_size")))
    return b.unary(OrderRestored(tokens=e.tower.size("spatial_merge_size") ** 2), x) if rms else x


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


def qwen3_merger(b: BlockBuilder, x: Value, tower: Config) -> Value:
    """A norm, squares of patches side by side, two products."""
    tokens = tower.size("spatial_merge_size") ** 2
    x = joined(b, norm(b, x, "merger.norm"), tokens)
    return two_products(b, x, ("merger.linear_fc1", "merger.linear_fc2"), (x.width, tower.size("out_hidden_size")))
