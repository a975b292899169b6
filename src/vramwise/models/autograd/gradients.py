"""What backward of each primitive operation allocates: gradients of its inputs and scratch beside them.

torch 2.13: `tools/autograd/derivatives.yaml` and `torch/csrc/autograd/FunctionsManual.cpp`. A rule answers, for
every input that needs a gradient, whether that gradient is the incoming tensor itself, a view of it, or new bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import Dim, axis, probe, product, terms_of, total
from vramwise.models.autograd.tensor import ITEM_BYTES, Node, Tensor

Passing = Literal["same", "view", "new", "in_place"]

# The incoming gradient goes on as it is.
_SAME = frozenset({"add", "add_", "clone", "add_scalar", "add_mask", "sub_scalar", "parallel_log_softmax"})
# The incoming gradient goes on seen differently.
_VIEW = frozenset({"view", "permute", "unsqueeze", "squeeze", "cat", "sum"})
# The gradient is written over what was kept.
_IN_PLACE = frozenset(
    {
        "fused_cross_entropy",
        "fused_linear_cross_entropy",
        "fused_gated_activation",
        "rotary_in_place",
        "outputs_to_fp32",
    }
)
# The gradient is a new tensor as large as the input.
_NEW = frozenset(
    {
        "addmm", "baddbmm", "bmm", "mm", "_grouped_mm", "convolution", "embedding", "embedding_bag",
        "linalg_solve_triangular", "im2col", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention", "mamba_scan", "_scaled_dot_product_flash_attention_for_cpu", "abs",
        "clamp", "clamp_", "cos", "elu", "erf", "exp", "expm1", "gelu", "leaky_relu", "log", "log_sigmoid_forward",
        "mish", "neg", "reciprocal", "relu", "rsqrt", "sigmoid", "silu", "sin", "softplus", "sqrt", "square", "tanh",
        "mul_", "mul_scalar", "div_", "sub", "maximum", "minimum", "masked_fill", "masked_fill_", "where", "mean",
        "std", "var", "cumsum", "logsumexp", "max", "topk", "linalg_vector_norm", "norm", "_softmax", "_log_softmax",
        "native_dropout", "native_layer_norm", "_fused_rms_norm", "fused_rms_norm", "fused_activation",
        "fused_pointwise", "GeLUFunction", "PhimoeMultiplier", "SqrtBoundDerivative", "_to_copy", "copy_",
        "constant_pad_nd", "reflection_pad2d", "flip", "gather", "index", "index_add_", "index_copy_", "index_put",
        "index_put_", "index_select", "masked_scatter", "repeat", "repeat_heads", "scatter", "scatter_",
        "scatter_reduce", "select", "slice", "split", "view_as_complex", "view_as_real", "all_gather", "all_to_all",
        "unpermute", "_upsample_bilinear2d_aa", "avg_pool2d", "grid_sampler_2d", "upsample_bilinear2d",
        "upsample_linear1d", "upsample_nearest2d", "cross_entropy_kernel", "gradient_of_a_tile", "nll_loss_forward",
        "tiled_log_probabilities",
    }
)  # fmt: skip
_OF_THEIR_OWN = frozenset(
    {"chunked_cross_entropy", "compiled_chunks_cross_entropy", "parallel_nll_loss", "expand", "mul", "div", "pow"}
)
RULED = _SAME | _VIEW | _IN_PLACE | _NEW | _OF_THEIR_OWN
"""Every operation whose backward is described."""
_CHUNKS = 8


@dataclass(frozen=True, slots=True)
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
    op = node.op
    if op in _SAME or op in _VIEW:
        return [_passed_on(tensor, gradient, "same" if op in _SAME else "view", op) for tensor in wanted]
    if op == "expand":
        return [_summed(tensor, gradient) for tensor in wanted]
    if op in _IN_PLACE:
        return [InputGradient(tensor, "in_place", tensor.nbytes) for tensor in wanted]
    if op == "chunked_cross_entropy":
        return [_of_a_chunk(tensor, node.outputs[1].dtype) for tensor in wanted]
    if op == "compiled_chunks_cross_entropy":
        # Gradients take the place of the chunks, but for one that is there with its gradient.
        return [InputGradient(t, "in_place", t.nbytes, scratch=divided_up(t.nbytes, _CHUNKS)) for t in wanted]
    if op == "parallel_nll_loss":
        # grad = (zeros with -1 at the labels + exp(x)) · grad: two of the three factors stand beside the result.
        return [InputGradient(tensor, "new", tensor.nbytes, tensor.nbytes * 2, pieces=2) for tensor in wanted]
    if op in ("mul", "div"):
        return [_product(tensor, node, gradient) for tensor in wanted]
    if op == "pow":
        # grad · (2 · x^1): both factors are temporaries of one expression.
        return [InputGradient(tensor, "new", tensor.nbytes, tensor.nbytes * 2, pieces=2) for tensor in wanted]
    if op not in _NEW and wanted:
        raise UndescribedOperationError(f"what backward of the operation {op} allocates is not described")
    return [InputGradient(tensor, "new", tensor.nbytes) for tensor in wanted]


def divided_up(size: Dim, parts: int) -> Dim:
    """A size cut into equal parts, every coefficient rounded up."""
    return total(-(-value // parts) * product(axis(name) for name in names) for names, value in terms_of(size).items())


def _of_a_chunk(logits: Tensor, dtype: str) -> InputGradient:
    """One chunk at a time: the gradient of its log-probabilities beside that of its logits, cast to theirs after."""
    chunk = divided_up(logits.numel * ITEM_BYTES[dtype], _CHUNKS)
    return InputGradient(
        logits, "new", divided_up(logits.nbytes, _CHUNKS), scratch=chunk, raw=0 if dtype == logits.dtype else chunk
    )


def _passed_on(tensor: Tensor, gradient: Tensor, passing: Passing, op: str) -> InputGradient:
    broadcast = passing == "same" and probe(tensor.numel) != probe(gradient.numel)
    if broadcast or (tensor.dtype != gradient.dtype and op != "cat"):
        return InputGradient(tensor, "new", tensor.nbytes)
    return InputGradient(tensor, passing)


def _summed(tensor: Tensor, gradient: Tensor) -> InputGradient:
    if probe(tensor.numel) == probe(gradient.numel):
        return InputGradient(tensor, "view")
    return InputGradient(tensor, "new", tensor.nbytes)


def _product(tensor: Tensor, node: Node, gradient: Tensor) -> InputGradient:
    """grad · other in the wider dtype, then summed and cast to what the input is."""
    dtype = promote(gradient.dtype, *(other.dtype for other in node.inputs if other is not tensor))
    raw = product(gradient.shape) * ITEM_BYTES[dtype]
    same = dtype == tensor.dtype and probe(tensor.numel) == probe(gradient.numel)
    return InputGradient(tensor, "new", tensor.nbytes, raw=0 if same else raw)
