"""Transformer Engine's stand-ins for weight gradients.

Products add their weight's gradient into Megatron's main_grad (gradient accumulation fusion), and autograd gets a dummy
of its shape in the products' dtype. One is made for each shape and kept for good (transformer_engine since 2.3
pytorch/module/base.py get_dummy_wgrad); queries, keys and values are one product, and so are gate and up. The output
layer is Megatron's own (core 0.16 tensor_parallel/layers.py), whose dummy lives for its backward alone.
"""

from __future__ import annotations

from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import rounded, width
from vramwise.training.recipe.fp8_weights import multiplies_in_8_bits
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain

_AS_ONE = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"w1", "w3"})
Shape = tuple[int, int]


def adds_into_main_gradients(train: ResolvedTrain) -> bool:
    """Whether products of the layers add to gradients that are there, without one of their own."""
    return framework_of(train).gradients.main_buffer and train.method == "full" and train.fsdp == "none"


@lru_cache(maxsize=4096)
def dummy_gradient_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """Bytes of one dummy for each shape of a trained product's weight on this rank."""
    if not adds_into_main_gradients(train):
        return 0
    compute = execution(train, model)
    shapes: set[Shape] = set()
    for block in model.layers():
        products = [p for p in block.parameters if multiplies_in_8_bits(p) and compute.trains(p.name)]
        shapes |= _shapes([p for p in products if placement.holds(p)], placement)
    size = width(compute.param_dtype)
    return sum(rounded(rows * columns * size) for rows, columns in shapes)


def _shapes(products: list[Parameter], placement: Placement) -> set[Shape]:
    """Shapes of a layer's weights as Megatron has them."""
    joined: dict[tuple[str, str], Shape] = {}
    for p in products:
        module = p.name.removesuffix(".weight")
        parent, _, own = module.rpartition(".")
        group = next((min(names) for names in _AS_ONE if own in names), own)
        *_, rows, columns = placement.cut.shape(p)  # of fused experts, those of one
        before = joined.get((parent, group), (0, columns))[0]
        joined[parent, group] = before + rows, columns
    return set(joined.values())
