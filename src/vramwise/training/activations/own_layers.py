"""What a framework's own layers do in another way than transformers', as rewrites of a recorded block.

    heads         keys and values copied to every query head in front of the kernel   torchtune 0.6 modules/attention.py
    activations   one operation that keeps its input                       Megatron core 0.16 fusions/fused_bias_gelu.py

Kernels that stand in for an operation are overrides (`vramwise.kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import groupby

from vramwise.frameworks import framework_of
from vramwise.models.autograd.size import product
from vramwise.models.autograd.tensor import ITEM_BYTES, Node, Storage, Tensor, contiguous_strides
from vramwise.models.step import Forward
from vramwise.training.activations.megatron_experts import with_own_experts
from vramwise.training.activations.megatron_latent import with_own_latent_attention
from vramwise.training.activations.rewriting import rewritten
from vramwise.training.activations.scans import fuse_scans
from vramwise.training.resolved import ResolvedTrain

Rewrite = Callable[[tuple[Node, ...]], tuple[Node, ...]]


def with_own_layers(forward: Forward, train: ResolvedTrain) -> Forward:
    """The forward pass with the framework's own rewrites, in the order of its record."""
    rewrites = [_OF_FRAMEWORKS[name] for name in framework_of(train).rewrites]
    if not rewrites:
        return forward
    return rewritten(forward, lambda run: reduce(lambda nodes, rewrite: rewrite(nodes), rewrites, run.nodes))


def _copy_heads(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Keys and values of fewer heads than the queries become copies with as many, which attention then keeps."""
    result: list[Node] = []
    for node in nodes:
        if node.primitive.is_attention:
            query, *others = node.inputs
            copies = {id(t): _with_heads(t, query) for t in others[:2] if t.shape[1] != query.shape[1]}
            by_storage = {t.storage: copies[id(t)].storage for t in others[:2] if id(t) in copies}
            result += [Node("repeat_heads", node.module, (t,), (copies[id(t)],)) for t in others[:2] if id(t) in copies]
            node = replace(
                node,
                inputs=(query, *(copies.get(id(t), t) for t in others)),
                saved=tuple((by_storage.get(storage, storage), role) for storage, role in node.saved),
            )
        result.append(node)
    return tuple(result)


def _with_heads(x: Tensor, query: Tensor) -> Tensor:
    shape = (x.shape[0], query.shape[1], *x.shape[2:])
    storage = Storage(product(shape) * ITEM_BYTES[x.dtype], "activation", "repeat_heads", x.storage.module)
    return replace(x, shape=shape, strides=contiguous_strides(shape), storage=storage)


def _fuse_activations(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """An activation of several operations becomes one that keeps its input (core 0.16 fusions/fused_bias_gelu.py)."""
    result: list[Node] = []
    for module, steps in groupby(nodes, key=lambda node: node.module):
        group = list(steps)
        made = {id(output) for node in group for output in node.outputs}
        read = list({id(t): t for node in group for t in node.inputs if id(t) not in made}.values())
        if len(group) == 1 or len(read) > 1 or module.rpartition(".")[2] not in _ACTIVATION_MODULES:
            result += group
            continue
        out = group[-1].outputs[0]
        saves = ((read[0].storage, "input"),) if out.requires_grad else ()
        result.append(Node("fused_activation", module, (read[0],), (out,), saves))
    return tuple(result)


_ACTIVATION_MODULES = frozenset({"act", "act_fn", "activation_fn", "gelu_impl"})


_OF_FRAMEWORKS: dict[str, Rewrite] = {
    "heads": _copy_heads,
    "scans": fuse_scans,
    "latent attention": with_own_latent_attention,
    "experts": with_own_experts,
    "activations": _fuse_activations,
}
"""What a framework's record calls rewrites of its own."""
