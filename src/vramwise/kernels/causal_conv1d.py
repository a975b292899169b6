"""causal-conv1d: the short convolution and its SiLU as one kernel, which keeps its input.

causal-conv1d 1.5.2 and 1.6.1 causal_conv1d_interface.py CausalConv1dFn (`save_for_backward(x, weight, …)`),
cpp_functions.py: the output lies as the input does; gradients of weight and bias are added up in fp32. Mamba's classes
take it where mamba-ssm is installed too, whose kernels are not described; it is counted for those that take it alone
(type_facts.csv).
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import ITEM_BYTES, Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.mixers import CausalConv1d, causal_conv1d

ACTIVATIONS = frozenset({None, "silu", "swish"})


def convolution(run: Lowering, op: CausalConv1d, x: Tensor) -> Tensor:
    if op.function not in ACTIVATIONS:
        return causal_conv1d(run, op, x)
    tape, weights = run.tape, run.parameters_of(op)
    x = x if 1 in (x.strides[1], x.strides[2]) else tape.contiguous(x)
    out = tape.like(x, requires_grad=any(t.requires_grad for t in (x, *weights)), op="causal_conv1d")
    sums = sum(t.numel * ITEM_BYTES["fp32"] for t in weights if t.dtype != "fp32")
    tape.record("causal_conv1d", [x, *weights], [out], [(x, "input")], backward_workspace_bytes=sums)
    return out


RECORD = Kernels(
    name="causal-conv1d",
    overrides=(Override(CausalConv1d, convolution, "short convolutions", fact="convolution"),),
    order=8,
    source="causal-conv1d 1.5.2 and 1.6.1 causal_conv1d_interface.py, cpp_functions.py",
    told_by="transformers",
)
