"""Liger: RMS norms, rotations and MLPs of the types of models that its `monkey_patch.py` knows, and of no other.

liger-kernel 0.8.5 ops/rms_norm.py, swiglu.py, geglu.py, rope.py, llama4_rope.py; which types by which of its switches'
defaults: type_facts.csv. Not told apart: norms that are left alone where a model that exists already is patched
(OLMo 2's of heads), and experts as one kernel (`LigerExperts`), which count as grouped products around a fused gate.
"""

from __future__ import annotations

from vramwise.kernels.fused import (
    GATES,
    NORMS,
    ROTATIONS,
    fused_gate,
    fused_norm,
    turned_by_complex_numbers,
    turned_by_halves,
    turned_in_place,
    with_joined_gates,
)
from vramwise.models.execution import Kernels, Override
from vramwise.models.operations.activations import ExpertGate, GatedActivation
from vramwise.models.operations.attention import Rotary
from vramwise.models.operations.latent import RotaryComplex, RotaryHalves
from vramwise.models.operations.norms import RmsNorm

RECORD = Kernels(
    name="liger",
    overrides=(
        Override(RmsNorm, fused_norm, NORMS, fact="rms_norm"),
        Override(GatedActivation, fused_gate, GATES, fact="gated", rewrite=with_joined_gates),
        Override(ExpertGate, fused_gate, GATES, fact="experts"),
        Override(Rotary, turned_in_place, ROTATIONS, fact="rope"),
        Override(RotaryHalves, turned_by_halves, ROTATIONS, fact="rope"),
        Override(RotaryComplex, turned_by_complex_numbers, ROTATIONS, fact="rope"),
    ),
    order=3,
    source="liger-kernel 0.8.5 transformers/monkey_patch.py",
)
