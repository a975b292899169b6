"""xielu: the activation of Apertus as one kernel, which transformers takes where the package is installed.

nickjbrowning/XIELU of May 2025 (6856ca9) xielu/cuda/src/xielu_impl.cu: `save_for_backward({x, alpha_p, alpha_n})`, its
output as wide as its input; transformers 5.23 activations.py XIELUActivation, whose Python keeps a dozen tensors. Not
counted: partial sums of the two scalars' gradients.
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.simple import Xielu


def activation(run: Lowering, op: Xielu, x: Tensor) -> Tensor:
    inputs = [x, *run.parameters_of(op)]
    out = run.tape.like(x, requires_grad=any(one.requires_grad for one in inputs), op="fused_activation")
    run.tape.record("fused_activation", inputs, [out], [(x, "input")])
    return out


RECORD = Kernels(
    name="xielu",
    overrides=(Override(Xielu, activation, "xIELU"),),
    order=5,
    source="nickjbrowning/XIELU of May 2025 (6856ca9) xielu/cuda/src/xielu_impl.cu",
)
