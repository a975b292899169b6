"""Attention over sequences that several GPUs share: what it takes beside queries, keys and values of its own tokens.

    ring       torch's gathers all keys and values and merges results in fp32: bytes below as its own code shows them on
               a group that exchanges nothing (tests/training/live_ring.py, torch 2.13 distributed/tensor/experimental/
               _context_parallel/_attention.py; rotate method all-gather, load balanced, the last rank)
               Transformer Engine's keeps the keys and values of every step and every step's result until they are
               joined, and four buffers in backward (2.8 attention/dot_product_attention/context_parallel.py
               AttnFuncWithCPAndKVP2P)
    ulysses    all-to-all: every rank has all tokens of its share of the heads. The kernel keeps what came back from
               the exchange, the output product what its result is exchanged for (DeepSpeed 0.19 runtime/
               sequence_parallel/ulysses_sp.py); of fewer groups than ranks each is there several times

Rings of other libraries are not counted.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.frameworks import framework_of
from vramwise.models.autograd.gradients import divided_up
from vramwise.models.autograd.size import Dim, probe
from vramwise.models.autograd.tensor import Node, Storage, Tensor, contiguous_strides
from vramwise.models.step import Forward
from vramwise.training.activations.rewriting import rewritten
from vramwise.training.resolved import ResolvedTrain


def with_context_parallel(forward: Forward, train: ResolvedTrain) -> Forward:
    """The forward pass with what attention exchanges."""
    if train.context_parallel_size == 1:
        return forward
    ring = framework_of(train).sharding.ring
    if train.context_parallel_kind == "ring" and ring == "uncounted":
        return forward

    def exchanged(node: Node) -> list[Node]:
        if not node.primitive.is_attention or len(node.inputs) < 3:
            return [node]
        if train.context_parallel_kind == "ulysses":
            return _exchanging_heads(node, train.context_parallel_size)
        rotated = _gathering if ring == "torch" else _passing_on
        return [rotated(node, train.context_parallel_size)]

    return rewritten(
        forward,
        lambda run: (
            run.nodes
            if run.modality != "text" or run.layer is None
            else tuple(new for node in run.nodes for new in exchanged(node))
        ),
    )


def _sizes(node: Node) -> tuple[Dim, Dim]:
    """Bytes of a rank's queries, and of its keys and values together."""
    query, key, value = node.inputs[:3]
    return query.nbytes, key.nbytes + value.nbytes


def _gathering(node: Node, ranks: int) -> Node:
    """torch's ring: results are merged in fp32 beside the last one, gradients of keys and values travel in fp32."""
    queries, others = _sizes(node)
    in_loop = 2 * queries + (ranks + 9) * others
    at_end = 3 * queries + divided_up((2 * ranks + 15) * others, 2)
    backward = max(in_loop, at_end, key=probe)
    forward = 8 * queries + ranks * others
    return replace(node, workspace_bytes=forward, backward_workspace_bytes=backward, backward_pieces=())


def _passing_on(node: Node, ranks: int) -> Node:
    """Transformer Engine's ring."""
    queries, others = _sizes(node)
    return replace(
        node,
        workspace_bytes=ranks * (queries + others),
        backward_workspace_bytes=queries + 4 * others,
        backward_pieces=(),
    )


def _exchanging_heads(node: Node, ranks: int) -> list[Node]:
    """All-to-all in front of the kernel and behind it."""
    inputs, before = list(node.inputs), list[Node]()
    for place, tensor in enumerate(node.inputs[:3]):
        inputs[place] = came = _another(tensor, ranks if place else 1)
        before.append(Node("all_to_all", node.module, (tensor,), (came,)))
    result, local = node.outputs[0], _another(node.outputs[0])
    query, key, value = (tensor.storage for tensor in inputs[:3])
    own = {"query": query, "key": key, "value": value, "output": local.storage}
    saved = tuple((own.get(role, storage), role) for storage, role in node.saved)
    kernel = replace(node, inputs=tuple(inputs), outputs=(local, *node.outputs[1:]), saved=saved)
    return [*before, kernel, Node("all_to_all", node.module, (local,), (result,))]


def _another(tensor: Tensor, ranks: int = 1) -> Tensor:
    """What comes of an exchange; of fewer groups than `ranks` each as often as it takes."""
    nbytes, groups = tensor.nbytes, tensor.shape[1] if tensor.ndim == 4 else ranks
    if isinstance(groups, int) and groups < ranks:
        nbytes = divided_up(nbytes * ranks, groups)
    storage = Storage(nbytes, "activation", "all_to_all", tensor.storage.module)
    return replace(tensor, strides=contiguous_strides(tensor.shape), storage=storage)
