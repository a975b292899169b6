"""Zamba's Mamba mixer as transformers 5.23 runs it in plain PyTorch: every head has projections and a scan of its own.

mamba-ssm's fused scan (`selective_scan_fn`), which takes its place where that package is installed, keeps far less.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.mixers import scanned


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternatingHalves(Operation):
    num_heads: int


@lowering(AlternatingHalves)
def alternating_halves(run: Lowering, op: AlternatingHalves, x: Tensor) -> tuple[Tensor, Tensor]:
    """Channels of the mixer and of its gate, which alternate: (b, h·d, s), a copy, and (h, b, d, s), a view."""
    tape, heads = run.tape, op.num_heads
    pairs = tape.transpose(x, 1, 2)
    pairs = tape.view(pairs, x.shape[0], x.shape[2] // 2, 2, x.shape[1])
    mixed, gate = tape.chunk(pairs, 2, 2)
    gate = tape.reshape(gate, x.shape[0], heads, -1, x.shape[1])
    return tape.contiguous(tape.squeeze(mixed, 2)), tape.transpose(gate, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanByHead(Operation):
    package = "mamba-ssm"

    num_heads: int


@lowering(ScanByHead)
def scan_by_head(run: Lowering, op: ScanByHead, x: Tensor, gate: Tensor) -> Tensor:
    """(b, h·d, s) -> (b, s, h·d) in the layer's dtype."""
    tape, heads = run.tape, op.num_heads
    project, widen, bias, a_log, skip = run.parameters_of(op)
    state = a_log.shape[-1]
    x = tape.transpose(tape.reshape(x, x.shape[0], heads, -1, x.shape[-1]), 0, 1)
    projected = tape.matmul(tape.unsqueeze(tape.unleafed(project), 1), x)
    pieces = [widen.shape[-1], state, state]
    time_step, inward, outward = tape.split(tape.transpose(projected, -1, -2), pieces)
    time_step = tape.matmul(tape.unsqueeze(tape.unleafed(widen), 1), tape.transpose(time_step, -1, -2))
    bias = tape.to(bias, "fp32")
    a = tape.unary("neg", tape.unary("exp", tape.to(a_log, "fp32")))
    outputs = []
    for _ in range(heads):
        own = tape.to(tape.select(bias, 0), time_step.dtype)
        head = (tape.select(part, 0) for part in (skip, inward, outward, gate))
        step, rates = tape.select(time_step, 0), tape.select(a, 0)
        outputs.append(scanned(run, tape.select(x, 0), step, rates, own, *head))
    return tape.to(tape.transpose(tape.cat(outputs, 1), 1, 2), run.hidden_dtype)
