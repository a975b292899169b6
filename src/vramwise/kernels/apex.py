"""apex: RMS norms of every type as `FusedRMSNorm`, where whoever trains puts them in.

apex normalization/fused_layer_norm.py FusedRMSNormAffineFunction saves its input, the weight and 1/rms.
"""

from __future__ import annotations

from vramwise.kernels.fused import NORMS, fused_norm
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.overrides import Kernels, Override

RECORD = Kernels(
    name="apex",
    overrides=(Override(RmsNorm, fused_norm, NORMS),),
    order=4,
    source="apex normalization/fused_layer_norm.py",
)
