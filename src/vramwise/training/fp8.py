"""fp8 products as Transformer Engine runs them: what a product keeps of its input is a copy in 8 bits.

A layer quantizes a product's input along rows for forward and along columns for the gradient of its weight, and keeps
the latter alone (transformer_engine 2.20 pytorch/module/linear.py, layernorm_linear.py, grouped_linear.py:
`update_usage(rowwise_usage=False)`). Products that read one tensor, such as queries, keys and values, share its copy;
what attention and activations keep stays in 16 bits. Not counted: scales, and 8-bit copies of 16-bit weights.

torchao's Float8Linear keeps its 16-bit input (torchao 0.18 float8/float8_linear.py), so nothing changes under it.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Node, Storage, Tensor, contiguous_strides
from vramwise.models.step import BlockRun, Forward
from vramwise.scenario import TrainSettings
from vramwise.training.kernels import rewritten

_PRODUCTS = frozenset({"mm", "addmm", "_grouped_mm"})


def with_fp8_products(forward: Forward, train: TrainSettings) -> Forward:
    """The forward pass with 8-bit copies of what the layers' products keep, where Transformer Engine runs them."""
    runs_engine = train.framework == "megatron" or "transformer-engine" in train.kernels
    if train.precision != "fp8-mixed" or not runs_engine:
        return forward
    done: dict[int, BlockRun] = {}
    for run in forward.runs:
        if id(run) not in done:
            done[id(run)] = run if run.layer is None else rewritten(run, _quantizing(run.nodes))
    return Forward(tuple(done[id(run)] for run in forward.runs))


def _quantizing(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    copies: dict[Storage, Tensor] = {}
    result: list[Node] = []
    for node in nodes:
        kept = _kept_input(node)
        if kept is None:
            result.append(node)
            continue
        copy = copies.get(kept.storage)
        if copy is None:
            copies[kept.storage] = copy = _in_8_bits(kept)
            result.append(Node("quantize_fp8", node.module, (kept,), (copy,)))
        saved = tuple((copy.storage if storage is kept.storage else storage, role) for storage, role in node.saved)
        result.append(replace(node, saved=saved))
    return tuple(result)


def _kept_input(node: Node) -> Tensor | None:
    """The activation that a product with a trained weight keeps."""
    if node.op not in _PRODUCTS or not any(t.is_parameter and t.requires_grad for t in node.inputs):
        return None
    saved = {storage for storage, _ in node.saved}
    inputs = (t for t in node.inputs if not t.is_parameter and t.ndim > 1 and t.storage in saved)
    return next((t for t in inputs if t.storage.kind == "activation"), None)


def _in_8_bits(x: Tensor) -> Tensor:
    size: Dim = x.numel
    storage = Storage(size, "activation", "quantize_fp8", x.storage.module)
    return Tensor(x.shape, contiguous_strides(x.shape), "fp8", storage)
