"""fms-acceleration's fused ops and kernels: RMS norms and rotations of the types that it has rules for.

fms_acceleration_foak 0.7.4 models/*.py, kernels/unsloth/rms_layernorm.py and rope_embedding.py. Its gated MLPs are
fused into adapters alone, which keep as much. Of Liger it takes the loss.
"""

from __future__ import annotations

from vramwise.kernels.fused import NORMS, ROTATIONS, fused_norm, turned_in_place
from vramwise.models.execution import Kernels, Override
from vramwise.models.operations.attention import Rotary
from vramwise.models.operations.norms import RmsNorm

RECORD = Kernels(
    name="fms",
    overrides=(
        Override(RmsNorm, fused_norm, NORMS, fact="rms_norm"),
        Override(Rotary, turned_in_place, ROTATIONS, fact="rope"),
    ),
    order=2,
    source="fms_acceleration_foak 0.7.4 models/*.py",
    leaves_out=frozenset({"liger"}),
)
