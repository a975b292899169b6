"""fp8 products as Transformer Engine runs them: what a product keeps of its input is a copy in 8 bits.

A layer quantizes a product's input along rows for forward and along columns for the gradient of its weight, and keeps
one of the two alone (transformer_engine 2.14 pytorch/module/linear.py, layernorm_linear.py, grouped_linear.py:
`update_usage`; the rowwise one where a sequence-parallel input is gathered again). Products that read one tensor, such
as queries, keys and values, share its copy; what attention and activations keep stays in 16 bits.

Outside Megatron nobody tells a layer which micro-batch is the first, so that 8-bit copies of 16-bit weights are made by
every product and kept for its backward; Megatron's are states (fp8_weights.py). Not counted: scales of inputs.

torchao's Float8Linear keeps its 16-bit input and weight and casts both again in backward (torchao 0.18
float8/float8_linear.py, `matmul_with_hp_or_float8_args.forward`), so nothing changes under it; earlier ones and what
torch.compile makes of it keep 8-bit copies (`kept_in_8_bits`). Each product casts its own; compiled, equal casts are
one.

Transformer Engine's stand-ins for weight gradients.

Products add their weight's gradient into Megatron's main_grad (gradient accumulation fusion), and autograd gets a dummy
of its shape in the products' dtype. One is made for each shape and kept for good (transformer_engine since 2.3
pytorch/module/base.py get_dummy_wgrad); queries, keys and values are one product, and so are gate and up. The output
layer is Megatron's own (core 0.16 tensor_parallel/layers.py), whose dummy lives for its backward alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.models.autograd.size import Dim, probe
from vramwise.models.autograd.tensor import Node, Storage, Tensor, contiguous_strides
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.models.step import Forward
from vramwise.training.activations.rewriting import rewritten
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import rounded, width
from vramwise.training.recipe.fp8_weights import (
    all_copies_bytes,
    is_8_bit,
    kept_in_8_bits,
    multiplies_in_8_bits,
    runs_torchao,
    runs_transformer_engine,
)
from vramwise.training.recipe.gradient_life import adds_into_main_gradients
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain


def with_fp8_products(forward: Forward, train: ResolvedTrain) -> Forward:
    """The forward pass with 8-bit copies of what the layers' products keep, where they run in 8 bits."""
    if runs_transformer_engine(train):
        caches_them = framework_of(train).casts.caches_8_bit_weights or is_8_bit(train.param_dtype)
        inputs, weights, shared = True, not caches_them, True
    elif runs_torchao(train):
        forward = rewritten(forward, lambda run: run.nodes if run.layer is None else _without_casts(run.nodes))
        inputs, weights = kept_in_8_bits(train)
        shared = train.compile
    else:
        return forward
    if not inputs and not weights:
        return forward
    made_anew = train if weights else None
    return rewritten(
        forward, lambda run: run.nodes if run.layer is None else _quantizing(run.nodes, made_anew, inputs, shared)
    )


def _without_casts(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Products that read weights as they are, of which autocast makes no 16-bit copies (torchao casts them itself)."""
    casts = {node.outputs[0].storage: node for node in nodes if node.op == "_to_copy" and _is_copy(node.outputs[0])}
    own = {storage: node.inputs[0] for storage, node in casts.items() if node.inputs[0].is_parameter}
    found: list[Node] = []
    for node in nodes:
        if node.primitive.multiplies_by_weights and any(t.storage in own for t in node.inputs):
            inputs = tuple(replace(own[t.storage], shape=t.shape) if t.storage in own else t for t in node.inputs)
            node = replace(node, inputs=inputs, saved=tuple(item for item in node.saved if item[0] not in own))
        found.append(node)
    read = {t.storage for node in found if not _is_seen_differently(node) for t in node.inputs}
    unread = {storage for storage in own if storage not in read}
    return tuple(node for node in found if not any(output.storage in unread for output in node.outputs))


def _is_copy(tensor: Tensor) -> bool:
    return tensor.storage.kind == "weight_copy"


def _is_seen_differently(node: Node) -> bool:
    return node.primitive.gradient == "view" and all(o.storage is node.inputs[0].storage for o in node.outputs)


def _quantizing(
    nodes: tuple[Node, ...], weights_of: ResolvedTrain | None, inputs: bool, shared: bool
) -> tuple[Node, ...]:
    """`weights_of`: the settings under which products keep 8-bit copies of their weights as well.

    `inputs`: whether they keep such of their inputs; `shared`: whether products of one input share its copy.
    """
    copies: dict[Storage, Tensor] = {}
    result: list[Node] = []
    for node in nodes:
        weight = _multiplied_weight(node) if weights_of is not None else None
        if weight is not None and weights_of is not None:
            copies_of_it = _copies_of_weight(weight, weights_of)
            result.append(Node("quantize_fp8", node.module, (weight,), (copies_of_it,)))
            node = replace(node, saved=(*node.saved, (copies_of_it.storage, "8-bit weight")))
        kept = _kept_input(node) if inputs else None
        if kept is None:
            result.append(node)
            continue
        copy = copies.get(kept.storage) if shared else None
        if copy is None:
            copies[kept.storage] = copy = _in_8_bits(kept)
            result.append(Node("quantize_fp8", node.module, (kept,), (copy,)))
        saved = tuple((copy.storage if storage is kept.storage else storage, role) for storage, role in node.saved)
        result.append(replace(node, saved=saved))
    return tuple(result)


def _kept_input(node: Node) -> Tensor | None:
    """The activation that a product with a trained weight keeps."""
    if not node.primitive.multiplies_by_weights or not any(t.is_parameter and t.requires_grad for t in node.inputs):
        return None
    saved = {storage for storage, _ in node.saved}
    inputs = (t for t in node.inputs if not t.is_parameter and t.ndim > 1 and t.storage in saved)
    return next((t for t in inputs if t.storage.kind == "activation"), None)


def _multiplied_weight(node: Node) -> Tensor | None:
    """The weight of a product whose backward needs it."""
    if not node.primitive.multiplies_by_weights or not any(t.requires_grad for t in node.outputs):
        return None
    return next((t for t in node.inputs if t.is_parameter and t.ndim > 1), None)


def _copies_of_weight(weight: Tensor, train: ResolvedTrain) -> Tensor:
    size = all_copies_bytes(probe(weight.numel), train)
    return Tensor((size,), (1,), "fp8", Storage(size, "activation", "quantize_fp8", weight.storage.module))


def _in_8_bits(x: Tensor) -> Tensor:
    size: Dim = x.numel
    storage = Storage(size, "activation", "quantize_fp8", x.storage.module)
    return Tensor(x.shape, contiguous_strides(x.shape), "fp8", storage)


_AS_ONE = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"w1", "w3"})
Shape = tuple[int, int]


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
