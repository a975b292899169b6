"""MXFP4 experts of the PyTorch backend on Blackwell: both sizes up to multiples of 128, the scales with them.

gpt-oss-120b on GB10 (1.1.0rc3, CUTLASS) printed 63.52 GiB after loading where its tensors are 60.81; with hidden and
inner 2,880 as 2,944 they are 63.36. August 2025 (1.0) took sizes as they are: _torch/modules/fused_moe/quantization.py
MXFP4WeightFusedMoEMethod. One log, so that the low end is without.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Node
from vramwise.serving.common.layouts import engine_layout, engine_stages
from vramwise.serving.common.resolved import ResolvedServe
from vramwise.units import round_up

PADS_VERSION, BLACKWELL, MULTIPLE = (1, 1), 10, 128
MXFP4_BITS = 4.25  # with one 8-bit scale for 32 values
_SOURCE = "TensorRT-LLM 1.1.0rc3 _torch/modules/fused_moe/quantization.py; one log of gpt-oss-120b on GB10"


def expert_padding(model: Model, r: ResolvedServe, capability: float | None, stage: int) -> tuple[Node, ...]:
    """Bytes on one rank of a stage, nothing where sizes are multiples already."""
    rule = r.storage.quantization
    if rule is None or rule.layout != "mxfp4" or (capability or 0) < BLACKWELL or r.version < PADS_VERSION:
        return ()
    cut = engine_layout(r.settings).cut
    first, end = engine_stages(r.settings).spans(model.num_layers)[stage]
    added = 0
    for block in list(model.layers())[first:end]:
        for op in block.operations(ExpertMlps):
            hidden, inner = op.inputs[0].width, op.inner_width // cut.expert_tensor_parallel_size
            experts = -(-op.num_experts // cut.expert_parallel_size)
            padded = round_up(hidden, MULTIPLE) * round_up(inner, MULTIPLE)
            added += round(3 * experts * (padded - hidden * inner) * MXFP4_BITS / 8)
    if not added:
        return ()
    return (
        Node("expert padding", added, "assumed", 0, added, formula="rows and columns up to multiples of 128",
             source=_SOURCE),
    )  # fmt: skip
