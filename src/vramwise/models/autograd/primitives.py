"""Every primitive operation that a tape records, one row each: what is known of it stands here and nowhere else.

Names are torch's (2.13, native_functions.yaml) where torch has the operation; kernels of other libraries and what a
loss or a layout does in one go have names of their own. `primitive(name)` raises for a name that has no row.
"""

from __future__ import annotations

from typing import Literal

from vramwise.errors import UndescribedOperationError
from vramwise.records import record

Device = Literal["cuda", "cpu"]

GradientRule = Literal[
    "none",  # its results need no gradient
    "same",  # the incoming gradient goes on as it is
    "view",  # the incoming gradient goes on seen differently
    "slices",  # views of the incoming gradient, whatever its dtype
    "summed",  # the incoming gradient summed over what was expanded, a view where nothing was
    "pieces",  # the gradients of all its results are joined in one tensor
    "new",  # a new tensor as large as the input
    "other factor",  # the incoming gradient times the other factor, in the wider dtype
    "three factors",  # a product of three, two of which stand beside it
    "larger",  # halved where both are equal, zero where the other is
    "in place",  # written over what was kept
    "beside a gate",  # new, beside the gradient of what an MLP's gate and up make
    "beside a copy",  # new, beside an fp32 copy of what was kept
    "chunk",  # new, one chunk at a time
    "chunk in place",  # written over the chunks, but for one that is there beside it
]
"""Where the gradients of an operation's inputs come from (torch 2.13 tools/autograd/derivatives.yaml)."""

MatrixProduct = Literal[
    "rows",  # rows times one matrix
    "grouped",  # rows of each expert times that expert's matrix
    "batched",  # as many products as the batch has matrices
]


@record
class Primitive:
    """What is known of one primitive operation.

    `saves`: roles of what it can keep for backward, as derivatives.yaml names them; which of them it does keep depends
    on what needs a gradient, and is the tape's to say. `product`: which matrix product it is, None for none.
    `is_attention`: attention in one kernel. `is_activation`: between two products of an MLP, act(gate) · up.
    `is_fusible`: torch.compile joins it with others of its kind. `fp32_under_autocast`: devices on which autocast runs
    it in fp32 (torch 2.13 aten/src/ATen/autocast_mode.h, AT_FORALL_FP32).
    """

    name: str
    gradient: GradientRule
    saves: tuple[str, ...] = ()
    product: MatrixProduct | None = None
    is_attention: bool = False
    is_activation: bool = False
    is_fusible: bool = False
    fp32_under_autocast: tuple[Device, ...] = ()

    @property
    def multiplies_by_weights(self) -> bool:
        """Whether it is a product with one matrix, or with one matrix an expert."""
        return self.product in ("rows", "grouped")


_FACTORS = ("self", "mat2")
_ATTENTION = ("query", "key", "value", "output")
_CUDA: tuple[Device, ...] = ("cuda",)

_ROWS = (
    # -- matrix products, tables, convolutions
    Primitive("mm", "new", _FACTORS, "rows"),
    Primitive("addmm", "new", _FACTORS, "rows"),
    Primitive("_grouped_mm", "new", (*_FACTORS, "offs"), "grouped"),
    # "other", "chunks", "steps": of loops over parts of a sequence, recorded as one operation
    Primitive("bmm", "new", (*_FACTORS, "other", "chunks"), "batched"),
    Primitive("baddbmm", "new", _FACTORS, "batched"),
    Primitive("convolution", "new", ("input", "weight")),
    Primitive("embedding", "new", ("indices",)),
    Primitive("requires_grad_", "none", ("variable",)),  # a leaf is held by the node that adds up its gradient
    Primitive(
        "embedding_bag",
        "new",
        ("indices", "offsets", "offset2bag", "bag_size", "max_indices", "per_sample_weights"),
    ),
    Primitive("linalg_solve_triangular", "new", ("self", "result")),
    Primitive("im2col", "new"),
    # -- attention and scans in one kernel
    Primitive(
        "_scaled_dot_product_flash_attention",
        "new",
        (*_ATTENTION, "logsumexp", "rng_state", "unused"),
        is_attention=True,
    ),
    Primitive(
        "_scaled_dot_product_flash_attention_for_cpu",
        "new",
        (*_ATTENTION, "logsumexp", "attn_mask"),
        is_attention=True,
    ),
    Primitive(
        "_scaled_dot_product_efficient_attention",
        "new",
        (*_ATTENTION, "log_sumexp", "philox_seed", "philox_offset", "attn_bias"),
        is_attention=True,
    ),
    Primitive("mamba_scan", "new", ("projected input", "output")),
    Primitive("chunked_delta_rule", "new", ("operand",)),
    # -- functions of one operand
    Primitive("silu", "new", ("self",), is_activation=True, is_fusible=True),
    Primitive("gelu", "new", ("self",), is_activation=True, is_fusible=True),
    Primitive("relu", "new", ("result",), is_activation=True, is_fusible=True),
    Primitive("mish", "new", ("self",)),
    Primitive("tanh", "new", ("result",), is_fusible=True),
    Primitive("sigmoid", "new", ("result",), is_fusible=True),
    Primitive("softplus", "new", ("self",), is_fusible=True, fp32_under_autocast=_CUDA),
    Primitive("log_sigmoid_forward", "new", ("self", "buffer")),
    Primitive("pow", "three factors", ("self",), is_activation=True, is_fusible=True, fp32_under_autocast=_CUDA),
    Primitive("sqrt", "new", ("result",)),
    Primitive("rsqrt", "new", ("result",), is_fusible=True, fp32_under_autocast=_CUDA),
    Primitive("reciprocal", "new", ("result",)),
    Primitive("erf", "new", ("self",)),
    Primitive("exp", "new", ("result",), is_fusible=True, fp32_under_autocast=_CUDA),
    Primitive("expm1", "new", ("result",), fp32_under_autocast=_CUDA),
    Primitive("log", "new", ("self",), fp32_under_autocast=_CUDA),
    Primitive("neg", "new", is_fusible=True),
    Primitive("abs", "new", ("self",)),
    Primitive("sign", "none"),
    Primitive("clamp", "new", ("self", "min", "max")),
    Primitive("clamp_", "new", ("self",)),
    # -- arithmetic
    Primitive("add", "same", is_fusible=True),
    Primitive("add_", "same", ("source",)),
    Primitive("add_scalar", "same", is_fusible=True),
    Primitive("add_mask", "same"),
    Primitive("sub", "new", is_fusible=True),
    Primitive("sub_scalar", "same", is_fusible=True),
    Primitive("mul", "other factor", ("self", "other"), is_activation=True, is_fusible=True),
    Primitive("mul_", "new", ("other",)),
    Primitive("mul_scalar", "new", is_fusible=True),
    Primitive("div", "other factor", ("self", "other", "steps"), is_fusible=True),
    Primitive("div_", "new", ("self", "other")),
    Primitive("floor_divide", "none"),
    Primitive("maximum", "larger", ("self", "other")),
    Primitive("minimum", "larger", ("self", "other")),
    Primitive("masked_fill", "new", ("mask",)),
    Primitive("masked_fill_", "new", ("mask",)),
    Primitive("where", "new", ("condition",)),
    Primitive("bitwise_not", "none"),
    Primitive("bernoulli_", "none"),
    Primitive("native_dropout", "new", ("mask",)),
    # -- reductions, softmax, norms
    Primitive("sum", "view", is_fusible=True, fp32_under_autocast=_CUDA),
    Primitive("mean", "new", is_fusible=True),
    Primitive("std", "new", ("self", "result")),
    Primitive("var", "new", ("self",)),
    Primitive("cumsum", "new", fp32_under_autocast=_CUDA),
    Primitive("logsumexp", "new", ("self", "result"), fp32_under_autocast=_CUDA),
    Primitive("max", "new", ("indices",)),
    Primitive("topk", "new", ("indices",)),
    Primitive("sort", "none"),
    Primitive("linalg_vector_norm", "new", ("self", "result")),
    Primitive("norm", "new"),
    Primitive("_softmax", "new", ("result",), fp32_under_autocast=_CUDA),
    Primitive("fused_softmax", "new", ("result",)),  # Megatron's: scale, causal mask and softmax
    Primitive("_log_softmax", "new", ("result",), fp32_under_autocast=_CUDA),
    Primitive(
        "native_layer_norm",
        "new",
        ("input", "mean", "rstd", "weight", "bias"),
        is_fusible=True,
        fp32_under_autocast=_CUDA,
    ),
    Primitive("native_group_norm", "new", ("input", "mean", "rstd", "weight"), fp32_under_autocast=_CUDA),
    Primitive("_fused_rms_norm", "new", ("input", "rstd"), fp32_under_autocast=_CUDA),
    # -- views and copies
    Primitive("view", "view", is_fusible=True),
    Primitive("permute", "view", is_fusible=True),
    Primitive("unsqueeze", "view", is_fusible=True),
    Primitive("squeeze", "view", is_fusible=True),
    Primitive("expand", "summed", is_fusible=True),
    Primitive("slice", "new", is_fusible=True),
    Primitive("select", "new"),
    Primitive("split", "pieces"),
    Primitive("view_as_complex", "new"),
    Primitive("view_as_real", "new"),
    Primitive("clone", "same", is_fusible=True),
    Primitive("_to_copy", "new", is_fusible=True),
    Primitive("copy_", "new"),
    Primitive("empty_like", "none"),
    Primitive("eye", "none"),
    Primitive("cat", "slices", is_fusible=True),
    Primitive("repeat", "new"),
    Primitive("flip", "new"),
    Primitive("constant_pad_nd", "new"),
    Primitive("reflection_pad2d", "new", ("self",)),
    # -- rows picked and put back
    Primitive("index", "new", ("indices",)),
    Primitive("index_select", "new", ("index",)),
    Primitive("index_add_", "new", ("source", "index")),
    Primitive("index_copy_", "new", ("source", "index")),
    Primitive("index_put", "new", ("indices",)),
    Primitive("index_put_", "new", ("indices",)),
    Primitive("gather", "new", ("self", "index")),
    Primitive("scatter", "new", ("index",)),
    Primitive("scatter_", "new", ("index",)),
    Primitive("scatter_add", "new", ("index",)),
    Primitive("scatter_reduce", "new", ("self", "index", "src", "result")),
    Primitive("masked_scatter", "new", ("mask",)),
    # -- images
    Primitive("avg_pool2d", "new", ("self",)),
    Primitive("grid_sampler_2d", "new", ("input", "grid")),
    Primitive("upsample_bilinear2d", "new"),
    Primitive("upsample_linear1d", "new"),
    Primitive("upsample_nearest2d", "new"),
    Primitive("_upsample_bilinear2d_aa", "new"),
    # -- autograd functions of modeling files
    Primitive("GeLUFunction", "new", ("input",)),
    Primitive("PhimoeMultiplier", "new", ("multiplier", "selected_experts", "masked_gates")),
    Primitive("SqrtBoundDerivative", "new", ("x",)),
    # -- losses
    Primitive("nll_loss_forward", "new", ("self", "target", "total_weight"), fp32_under_autocast=("cuda", "cpu")),
    Primitive("cross_entropy_kernel", "new", ("logits", "logsumexp")),
    Primitive("fused_cross_entropy", "in place", ("logits", "logsumexp", "log-probabilities")),
    Primitive("compiled_softmax_cross_entropy", "beside a copy", ("result",)),
    Primitive("fused_linear_cross_entropy", "in place", ("gradient",)),
    Primitive("gradient_of_a_tile", "new"),
    Primitive("sums_of_gradients", "none"),
    Primitive("tile_of_logits", "none"),
    Primitive("tiled_log_probabilities", "new", ("hidden",)),
    Primitive("chunk_of_logits", "none"),
    Primitive("chunked_cross_entropy", "chunk", ("log-probabilities",)),
    Primitive("compiled_chunks_cross_entropy", "chunk in place", ("logits", "logsumexp")),
    Primitive("parallel_log_softmax", "same", ("result",)),
    Primitive("parallel_nll_loss", "three factors", ("self", "target")),
    Primitive("log_probabilities_by_row", "beside a copy", ("logits", "logsumexp")),
    Primitive("log_softmax_by_row", "new", ("result",)),
    Primitive("reference_logits", "none"),
    Primitive("outputs_to_fp32", "in place"),
    # -- kernels that stand for several operations
    Primitive("fused_rms_norm", "new", ("input", "rstd")),
    Primitive("l2_norm", "new", ("result", "rstd")),
    Primitive("fused_gated_rms_norm", "new", ("input", "gate", "rstd")),
    Primitive("causal_conv1d", "new", ("input",)),
    Primitive("fused_gated_activation", "in place", ("gate or up",), is_activation=True),
    Primitive("fused_gate", "new", ("gate or up",), is_activation=True),
    Primitive("fused_activation", "new", ("input",)),
    Primitive("fused_pointwise", "new", ("input",)),
    Primitive("rotary_in_place", "in place", ("tables",)),
    Primitive("fused_rotation", "new", ("tables",)),
    Primitive("router_product", "new", ("input",)),
    Primitive("adapted_product", "new", ("input", "adapters"), "rows"),
    Primitive("adapted_mlp", "beside a gate", ("input", "gate or up", "adapters"), "rows"),
    # -- quantized weights, exchange between ranks
    Primitive("dequantize", "none"),
    Primitive("quantize_fp8", "none"),
    Primitive("all_gather", "new"),
    Primitive("all_to_all", "new"),
    Primitive("sort_chunks", "new"),
    Primitive("unpermute", "new"),
    # -- a Python frame that still refers to its inputs
    Primitive("locals", "none"),
    Primitive("locals beside the loss", "none"),
    Primitive("returned", "none"),
)

PRIMITIVES = {row.name: row for row in _ROWS}


def primitive(name: str) -> Primitive:
    """The row of an operation. Raises `UndescribedOperationError` for a name that has none."""
    row = PRIMITIVES.get(name)
    if row is None:
        raise UndescribedOperationError(f"the operation {name} is not described")
    return row
