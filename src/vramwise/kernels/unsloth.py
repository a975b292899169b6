"""unsloth: RMS norms, rotations and MLPs of every type, by its own kernels or compiled.

unsloth 2026.10 kernels/rms_layernorm.py, swiglu.py, geglu.py, rope_embedding.py for the types that it has models of;
modules of the others are compiled (unsloth_zoo 2026.10 compiler.py), which keeps the same; so are layer norms
(models/cohere.py fast_layernorm_compiled).
"""

from __future__ import annotations

from vramwise.kernels.fused import OF_EVERY_TYPE
from vramwise.models.execution import Kernels

RECORD = Kernels(
    name="unsloth",
    overrides=OF_EVERY_TYPE,
    order=1,
    source="unsloth 2026.10 models/llama.py, kernels; unsloth_zoo 2026.10 compiler.py",
)
