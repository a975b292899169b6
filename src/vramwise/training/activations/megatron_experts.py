"""Megatron's mixture of experts as a rewrite of the recorded block.

    router        its products keep the hidden states as they are, also where they compute in fp32
                  (core 0.13 to 0.16 transformer/moe/moe_utils.py RouterGatingLinearFunction)
    dispatch      permuted tokens are exchanged before the experts' first product
    weighting     a token's weight multiplies inside the activation, so that nothing keeps what the experts put out
                  (moe/experts.py TEGroupedMLP, `permuted_probs`; core before 0.13 multiplied the outputs)
    combine       outputs are exchanged and added up by one kernel in 16 bits (moe/token_dispatcher.py, `unpermute`)

Not counted: row maps of the permutation, and imbalance: every rank gets as many tokens as it sends.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.tensor import Node, Storage, Tensor, contiguous_strides

_NARROW = 2  # bytes of a 16-bit value


def with_own_experts(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """A block's operations with routing, dispatch and combination as Megatron has them."""
    nodes = _routing_in_16_bits(nodes)
    combination = _combination(nodes)
    if combination is None:
        return nodes
    first, last = combination
    module, outputs = nodes[first].module, nodes[first].inputs[0]
    exchanged = _like(outputs, module)
    total = nodes[last].outputs[0]
    combined = (
        Node("all_to_all", module, (outputs,), (exchanged,)),
        Node("unpermute", module, (exchanged,), (total,)),
    )
    rest = (node for node in nodes[last + 1 :] if not (node.op == "locals" and node.module == module))
    return (*_dispatched(nodes[:first], module), *combined, *rest)


def _routing_in_16_bits(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Products of wider copies of hidden states and weight keep the hidden states (an fp32 adapter is no copy)."""
    copied = {
        node.outputs[0].storage: node.inputs[0].storage
        for node in nodes
        if node.op == "_to_copy" and node.outputs[0].dtype == "fp32" and node.inputs[0].dtype in ("bf16", "fp16")
    }
    return tuple(
        replace(node, saved=tuple((copied.get(storage, storage), role) for storage, role in node.saved))
        if node.primitive.product == "rows" and node.inputs[0].storage in copied and not node.inputs[1].is_parameter
        else node
        for node in nodes
    )


def _combination(nodes: tuple[Node, ...]) -> tuple[int, int] | None:
    """From the product with the tokens' weights to the sum over a token's experts in its last dtype."""
    grouped = [i for i, node in enumerate(nodes) if node.op == "_grouped_mm"]
    if not grouped:
        return None
    module, after = nodes[grouped[-1]].module, grouped[-1] + 1
    own = [i for i in range(after, len(nodes)) if nodes[i].module == module]
    first = next((i for i in own if nodes[i].op == "mul"), None)
    last = next((i for i in own if nodes[i].op == "sum"), None)
    if first is None or last is None or last < first:
        return None
    if last + 1 in own and nodes[last + 1].op == "_to_copy":
        last += 1
    return first, last


def _dispatched(nodes: tuple[Node, ...], module: str) -> list[Node]:
    """The tokens' own indexing, followed by their exchange, whose result the experts read."""
    first = next(i for i, node in enumerate(nodes) if node.op == "_grouped_mm" and node.module == module)
    tokens = nodes[first].inputs[0]
    made = next((i for i, node in enumerate(nodes) if any(t is tokens for t in node.outputs)), None)
    if made is None:
        return list(nodes)
    sent = _like(tokens, module)
    maker = replace(nodes[made], outputs=tuple(sent if t is tokens else t for t in nodes[made].outputs))
    return [*nodes[:made], maker, Node("all_to_all", module, (sent,), (tokens,)), *nodes[made + 1 :]]


def _like(tensor: Tensor, module: str) -> Tensor:
    storage = Storage(tensor.numel * _NARROW, "activation", "all_to_all", module)
    return Tensor(tensor.shape, contiguous_strides(tensor.shape), "bf16", storage, tensor.requires_grad)
