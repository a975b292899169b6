"""What backward of each primitive operation allocates: gradients of its inputs and scratch beside them.

torch 2.13: `tools/autograd/derivatives.yaml` and `torch/csrc/autograd/FunctionsManual.cpp`. A rule answers, for
every input that needs a gradient, whether that gradient is the incoming tensor itself, a view of it, or new bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd.primitives import GradientRule
from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import Dim, axis, probe, product, terms_of, total
from vramwise.models.autograd.tensor import ITEM_BYTES, Node, Tensor
from vramwise.records import record

Passing = Literal["same", "view", "new", "piece", "in_place"]

_CHUNKS = 8


@record
class InputGradient:
    """The gradient of one input: how it comes about, its bytes if new, and scratch alive beside it in `pieces` tensors.

    `raw`: bytes of the gradient as the operation makes it, where the engine then sums or casts it to what the
    input is (torch 2.13 engine.cpp `validate_outputs`); 0 where it is right at once.
    """

    tensor: Tensor
    passing: Passing
    nbytes: Dim = 0
    scratch: Dim = 0
    raw: Dim = 0
    pieces: int = 1


def input_gradients(node: Node, gradient: Tensor) -> list[InputGradient]:
    """Gradients that backward of `node` makes, given that of its output `gradient`.

    Raises `UndescribedOperationError` for an operation that no table has.
    """
    wanted = [tensor for tensor in node.inputs if tensor.requires_grad and tensor.is_floating]
    rule = _RULES.get(node.primitive.gradient)
    if rule is None and wanted:
        raise UndescribedOperationError(f"what backward of the operation {node.op} allocates is not described")
    return [rule(tensor, node, gradient) for tensor in wanted] if rule is not None else []


def divided_up(size: Dim, parts: int) -> Dim:
    """A size cut into equal parts, every coefficient rounded up."""
    return total(-(-value // parts) * product(axis(name) for name in names) for names, value in terms_of(size).items())


# -- rules -------------------------------------------------------------------------------------------------


def _as_it_is(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    if probe(tensor.numel) != probe(gradient.numel):  # broadcast
        return _new(tensor, node, gradient)
    return InputGradient(tensor, "same") if tensor.dtype == gradient.dtype else _new(tensor, node, gradient)


def _seen_differently(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    return InputGradient(tensor, "view") if tensor.dtype == gradient.dtype else _new(tensor, node, gradient)


def _a_slice(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    return InputGradient(tensor, "view")


def _summed(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    if probe(tensor.numel) == probe(gradient.numel):
        return InputGradient(tensor, "view")
    return _new(tensor, node, gradient)


def _joined_with_others(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    return InputGradient(tensor, "piece", tensor.nbytes)


def _new(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    return InputGradient(tensor, "new", tensor.nbytes)


def _times_the_other(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    """grad · other in the wider dtype, then summed and cast to what the input is."""
    dtype = promote(gradient.dtype, *(other.dtype for other in node.inputs if other is not tensor))
    raw = product(gradient.shape) * ITEM_BYTES[dtype]
    same = dtype == tensor.dtype and probe(tensor.numel) == probe(gradient.numel)
    return InputGradient(tensor, "new", tensor.nbytes, raw=0 if same else raw)


def _of_three_factors(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    """grad · (2 · x^1) of a power; (zeros with -1 at the labels + exp(x)) · grad of a loss over ranks."""
    return InputGradient(tensor, "new", tensor.nbytes, tensor.nbytes * 2, pieces=2)


def _of_the_larger(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    """where(self == other, grad / 2, grad).masked_fill_(self < other, 0): half the gradient beside two of booleans."""
    scratch = tensor.nbytes + 2 * tensor.numel * ITEM_BYTES["bool"]
    return InputGradient(tensor, "new", tensor.nbytes, scratch)


def _over_what_was_kept(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    return InputGradient(tensor, "in_place", tensor.nbytes)


def _beside_a_gate(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    """Gate and up become their gradients where they are, beside that of their product, which becomes that again."""
    widest = next((storage.nbytes for storage, role in node.saved if role == "gate or up"), 0)
    return InputGradient(tensor, "new", tensor.nbytes, scratch=widest)


def _beside_a_copy(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    return InputGradient(tensor, "new", tensor.nbytes, scratch=tensor.numel * ITEM_BYTES["fp32"])


def _of_a_chunk(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    """One chunk at a time: the gradient of its log-probabilities beside that of its logits, cast to theirs after."""
    dtype = node.outputs[1].dtype
    chunk = divided_up(tensor.numel * ITEM_BYTES[dtype], _CHUNKS)
    return InputGradient(
        tensor, "new", divided_up(tensor.nbytes, _CHUNKS), scratch=chunk, raw=0 if dtype == tensor.dtype else chunk
    )


def _over_chunks(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    """Gradients take the place of the chunks, but for one that is there with its gradient."""
    return InputGradient(tensor, "in_place", tensor.nbytes, scratch=divided_up(tensor.nbytes, _CHUNKS))


_RULES: Mapping[GradientRule, Callable[[Tensor, Node, Tensor], InputGradient]] = {
    "same": _as_it_is,
    "view": _seen_differently,
    "slices": _a_slice,
    "summed": _summed,
    "pieces": _joined_with_others,
    "new": _new,
    "other factor": _times_the_other,
    "three factors": _of_three_factors,
    "larger": _of_the_larger,
    "in place": _over_what_was_kept,
    "beside a gate": _beside_a_gate,
    "beside a copy": _beside_a_copy,
    "chunk": _of_a_chunk,
    "chunk in place": _over_chunks,
}
