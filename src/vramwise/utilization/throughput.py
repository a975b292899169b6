"""Tokens a second and GPU from whatever a trainer prints, and their share of a peak or of another run."""

from __future__ import annotations

from vramwise.records import record
from vramwise.units import counted

TERA = 1e12
GIGA = TERA / 1000


@record
class Throughput:
    """Tokens per second of one GPU, and how it was worked out."""

    tokens_per_s_per_gpu: float
    worked_out: str

    def tflops(self, flops_per_token: float) -> float:
        """TFLOP/s of one GPU."""
        return self.tokens_per_s_per_gpu * flops_per_token / TERA


def from_tokens(tokens_per_s: float, num_gpus: int) -> Throughput:
    """All GPUs' tokens per second."""
    return Throughput(tokens_per_s / num_gpus, f"{tokens_per_s:,g} tokens/s / {counted(num_gpus, 'GPU')}")


def from_examples(examples_per_s: float, sequence: int, num_gpus: int) -> Throughput:
    """Examples per second of a whole run, each padded or packed to `sequence` tokens."""
    found = examples_per_s * sequence / num_gpus
    return Throughput(found, f"{examples_per_s:g} examples/s × {sequence:,} tokens / {counted(num_gpus, 'GPU')}")


def from_step(step_s: float, batch: int, sequence: int, num_gpus: int) -> Throughput:
    """Seconds of one optimizer step over `batch` sequences in all."""
    found = batch * sequence / step_s / num_gpus
    return Throughput(found, f"{batch:,} × {sequence:,} tokens / {step_s:g} s / {counted(num_gpus, 'GPU')}")


def utilization_pct(tflops: float, peak_tflops: float) -> float:
    """Share of the peak in percent: 100 TFLOP/s of an A100's 312 are 32.05 %."""
    return 100 * tflops / peak_tflops
