"""apex: RMS norms of every type as `FusedRMSNorm`, where whoever trains puts them in.

apex of July 2026 normalization/fused_layer_norm.py: `_cast_if_autocast_enabled` makes input and weight autocast's
dtype, the kernel keeps both and 1/rms in fp32 (`save_for_backward(input_, weight_, invvar)`; with `memory_efficient`
its output in place of its input, which is as large). Not counted: the weight's copy.
"""

from __future__ import annotations

from vramwise.kernels.fused import NORMS, fused_norm, in_autocasts_dtype
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.norms import RmsNorm


def norm(run: Lowering, op: RmsNorm, x: Tensor) -> Tensor:
    return fused_norm(run, op, in_autocasts_dtype(run, x) if op.parameters else x)


RECORD = Kernels(
    name="apex",
    overrides=(Override(RmsNorm, norm, NORMS),),
    order=4,
    source="apex of July 2026 (6424da3b) normalization/fused_layer_norm.py",
)
