"""Transformer Engine: RMS norms and layer norms as its modules run them.

TransformerEngine 2.8 and 2.20 pytorch/ops/basic/rmsnorm.py, layer_norm.py: the input in autocast's dtype
(`maybe_autocast_dtype`), one kernel, which keeps that and a number or two a row. Its `Linear` matters in 8 bits
(`precision = fp8-mixed`). No module of it stands in for a gate or a rotation of transformers' classes (accelerate 1.15
utils/transformer_engine.py `convert_model` exchanges linear layers and layer norms); Megatron's layers have kernels
for those (`megatron`). Not described: a whole `TransformerLayer` in a model of one's own.
"""

from __future__ import annotations

from vramwise.kernels.fused import LAYER_NORMS, NORMS, in_autocasts_dtype
from vramwise.kernels.fused import fused_layer_norm as layer_norm_kernel
from vramwise.kernels.fused import fused_norm as norm_kernel
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.norms import LayerNorm, RmsNorm


def norm(run: Lowering, op: RmsNorm, x: Tensor) -> Tensor:
    return norm_kernel(run, op, in_autocasts_dtype(run, x) if op.parameters else x)


def layer_norm(run: Lowering, op: LayerNorm, x: Tensor) -> Tensor:
    return layer_norm_kernel(run, op, in_autocasts_dtype(run, x), of_torch_too=True)


RECORD = Kernels(
    name="transformer-engine",
    overrides=(Override(RmsNorm, norm, NORMS), Override(LayerNorm, layer_norm, LAYER_NORMS)),
    order=0,
    source="TransformerEngine 2.8 and 2.20 pytorch/ops/basic/rmsnorm.py, layer_norm.py",
)
