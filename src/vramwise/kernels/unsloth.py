"""unsloth: RMS norms, rotations and MLPs of every type, by its own kernels or compiled.

unsloth 2026.10 kernels/rms_layernorm.py, swiglu.py, geglu.py, rope_embedding.py for the types that it has models of;
modules of the others are compiled (unsloth_zoo 2026.10 compiler.py), which keeps the same; so are layer norms
(models/cohere.py fast_layernorm_compiled).
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
    name="unsloth",
    overrides=(
        Override(RmsNorm, fused_norm, NORMS),
        Override(LayerNorm, fused_layer_norm, LAYER_NORMS),
        Override(GatedActivation, fused_gate, GATES, rewrite=with_joined_gates),
        Override(ExpertGate, fused_gate, GATES),
        Override(Rotary, turned_as_laid_out, ROTATIONS),
    ),
    order=1,
    source="unsloth 2026.10 models/llama.py, kernels; unsloth_zoo 2026.10 compiler.py",
)
