"""Multi-head latent attention as Megatron runs it.

Values are a contiguous tensor of their own, so that the up-projection's output goes (core 0.16
transformer/multi_latent_attention.py `get_query_key_value_tensors`), and the kernel takes keys and values of different
widths: its output has the values' width and is what the output product keeps, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.size import exact_quotient, probe
from vramwise.models.autograd.tensor import Node, Storage, Tensor, contiguous_strides


def with_own_latent_attention(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """A block's operations with the kernel's own widths, where keys are wider than values."""
    place = next((i for i, node in enumerate(nodes) if node.primitive.is_attention and _is_latent(node)), None)
    if place is None:
        return nodes
    kernel = nodes[place]
    query, _, value = kernel.inputs[:3]
    own = _own_copy(value, kernel.module)
    result = Storage(value.nbytes, "activation", kernel.op, kernel.module)
    copies = {kernel.outputs[0].storage: result, value.storage: own.storage}
    for node in nodes[place + 1 :]:
        if node.op == "clone" and node.inputs[0].storage in copies:
            copies[node.outputs[0].storage] = result
    renewed = _renewal(copies, result, probe(query.shape[-1]), probe(value.shape[-1]))
    before = Node("clone", kernel.module, (value,), (own,))
    attention = replace(
        kernel,
        inputs=(*kernel.inputs[:2], own, *kernel.inputs[3:]),
        outputs=tuple(renewed(tensor) for tensor in kernel.outputs),
        saved=tuple((copies.get(storage, storage), role) for storage, role in kernel.saved),
    )
    return (*nodes[:place], before, attention, *(_after(node, copies, result, renewed) for node in nodes[place + 1 :]))


def _is_latent(kernel: Node) -> bool:
    query, _, value = kernel.inputs[:3]
    return probe(query.shape[-1]) > probe(value.shape[-1])


def _own_copy(value: Tensor, module: str) -> Tensor:
    storage = Storage(value.nbytes, "activation", "clone", module)
    return Tensor(value.shape, contiguous_strides(value.shape), value.dtype, storage, value.requires_grad)


def _renewal(copies: dict[Storage, Storage], result: Storage, wide: int, narrow: int) -> Callable[[Tensor], Tensor]:
    """The same tensors in the values' width; each once."""
    made: dict[int, Tensor] = {}

    def renewed(tensor: Tensor) -> Tensor:
        if copies.get(tensor.storage) is not result:
            return tensor
        if id(tensor) not in made:
            is_wide = probe(tensor.shape[-1]) % wide == 0
            last = exact_quotient(tensor.shape[-1] * narrow, wide) if is_wide else tensor.shape[-1]
            shape = (*tensor.shape[:-1], last)
            made[id(tensor)] = Tensor(
                shape, contiguous_strides(shape), tensor.dtype, result, tensor.requires_grad, tensor.is_parameter
            )
        return made[id(tensor)]

    return renewed


def _after(node: Node, copies: dict[Storage, Storage], result: Storage, renewed: Callable[[Tensor], Tensor]) -> Node:
    """What reads the kernel's output: views of it, and the output product."""
    read = [tensor for tensor in node.inputs if copies.get(tensor.storage) is result]
    if not read:
        return node
    return replace(
        node,
        op="view" if node.op == "clone" else node.op,
        inputs=tuple(renewed(tensor) for tensor in node.inputs),
        outputs=tuple(renewed(tensor) for tensor in node.outputs),
        saved=tuple((result if copies.get(storage) is result else storage, role) for storage, role in node.saved),
    )
