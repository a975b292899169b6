"""Transformer Engine: RMS norms, rotations and MLPs as Megatron's layers run them.

TransformerEngine 2 pytorch/module/rmsnorm.py, layernorm.py; Megatron core 0.16 models/common/embeddings/rope_utils.py,
fusions/fused_bias_swiglu.py, fused_bias_geglu.py.
"""

from __future__ import annotations

from vramwise.kernels.fused import OF_EVERY_TYPE
from vramwise.models.overrides import Kernels

RECORD = Kernels(
    name="transformer-engine",
    overrides=OF_EVERY_TYPE,
    order=0,
    source="TransformerEngine 2 pytorch/module/rmsnorm.py; Megatron core 0.16 fusions",
)
