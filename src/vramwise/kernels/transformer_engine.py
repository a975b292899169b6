"""Transformer Engine: RMS norms, rotations and MLPs as Megatron's layers run them.

TransformerEngine 2 pytorch/module/rmsnorm.py, layernorm.py; Megatron core 0.16 models/common/embeddings/rope_utils.py,
fusions/fused_bias_swiglu.py, fused_bias_geglu.py.
"""

from __future__ import annotations

from vramwise.kernels.fused import (
    GATES,
    LAYER_NORMS,
    NORMS,
    ROTATIONS,
    fused_gate,
    fused_layer_norm,
    fused_norm,
    turned_as_laid_out,
    with_joined_gates,
)
from vramwise.models.operations.attention import Rotary
from vramwise.models.operations.gated_activation import ExpertGate, GatedActivation
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.overrides import Kernels, Override

RECORD = Kernels(
    name="transformer-engine",
    overrides=(
        Override(RmsNorm, fused_norm, NORMS),
        Override(LayerNorm, fused_layer_norm, LAYER_NORMS),
        Override(GatedActivation, fused_gate, GATES, rewrite=with_joined_gates),
        Override(ExpertGate, fused_gate, GATES),
        Override(Rotary, turned_as_laid_out, ROTATIONS),
    ),
    order=0,
    source="TransformerEngine 2 pytorch/module/rmsnorm.py; Megatron core 0.16 fusions",
)
