"""Liger's kernels as axolotl's plug-in swaps them in: some types more, and its own way with Qwen 3.5.

axolotl 0.19 integrations/liger/plugin.py: types of Liger's own table get Liger's patch, but for Qwen 3.5, whose experts
stay as they are; Mistral 3, Jamba and Gemma 4's unified model get some classes exchanged. Granite MoE gets the patch of
Granite, whose classes it does not use, so that nothing changes. Not described: `liger_rms_norm_gated`.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.kernels.liger import RECORD as LIGER
from vramwise.models.operations.activations import ExpertGate

RECORD = replace(
    LIGER,
    name="axolotl-liger",
    overrides=tuple(
        replace(override, fact="swapped_experts") if override.kind is ExpertGate else override
        for override in LIGER.overrides
    ),
    like="liger",
    source="axolotl 0.19 integrations/liger/plugin.py",
)
