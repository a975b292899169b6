"""Quartz's kernels: RMS norms that keep their input in 16 bits and a number a row."""

from vramwise.kernels import Kernels, Override
from vramwise.kernels.fused import NORMS, fused_norm
from vramwise.models.operations.norms import RmsNorm

RECORD = Kernels(
    name="quartz-kernels",
    overrides=(Override(RmsNorm, fused_norm, NORMS),),
    order=10,
    source="quartz-kernels 0.1 norms.py: save_for_backward(x, weight, rstd)",
)
