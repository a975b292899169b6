"""The inference roofline: tokens a second that bandwidth (decoding) and matrix rate (prefill) allow at most."""

from __future__ import annotations

from vramwise.records import record
from vramwise.utilization.conventions import Sizes, inference_flops_per_token
from vramwise.utilization.published import inference_runs
from vramwise.utilization.throughput import GIGA, TERA


@record
class Bound:
    """A ceiling in tokens per second of all GPUs together, what limits it, and how it comes about."""

    tokens_per_s: float
    limit: str
    formula: str

    def fraction(self, tokens_per_s: float) -> float:
        """Share of the ceiling that a measured rate reaches."""
        return tokens_per_s / self.tokens_per_s


def decode_bound(
    weight_bytes: int, cache_bytes: int, bandwidth_gb_s: float, num_gpus: int = 1, batch: int = 1,
    flops_per_token: float = 0.0, peak_tflops: float | None = None,
) -> Bound:  # fmt: skip
    """Decoding: every step reads all weights once, and each sequence's cache, for one token a sequence.

    `weight_bytes` leaves the input embedding out (one row of it is read); `cache_bytes` is one sequence's at its
    present length. The smaller of the bandwidth's and the matrix rate's ceiling. Not counted: activations,
    communication, launches, which is why 40 to 70 % is usual (`published_band`).
    """
    steps = num_gpus * bandwidth_gb_s * GIGA / (weight_bytes + batch * cache_bytes)
    bandwidth = Bound(batch * steps, "memory bandwidth", "batch × GPUs × bandwidth / (weights + batch × cache)")
    if peak_tflops and flops_per_token:
        compute = num_gpus * peak_tflops * TERA / flops_per_token
        if compute < bandwidth.tokens_per_s:
            return Bound(compute, "matrix rate", "GPUs × peak / FLOPs per token")
    return bandwidth


def prefill_bound(sizes: Sizes, prompt_tokens: int, peak_tflops: float, num_gpus: int = 1) -> Bound:
    """Prefill: peak over 2 (N − embedding) + 4 L H Q T FLOPs a token, T = half the prompt under a causal mask."""
    flops = inference_flops_per_token(sizes, prompt_tokens // 2)
    return Bound(num_gpus * peak_tflops * TERA / flops, "matrix rate", "GPUs × peak / (2 (N − embedding) + 4 L H Q T)")


def published_band(kind: str, num_gpus: int) -> tuple[float, float, int] | None:
    """Least and greatest fraction of the bound that published runs reach, on one GPU or several, and their number."""
    fractions = []
    for run in inference_runs():
        if run.kind != kind or (run.num_gpus > 1) != (num_gpus > 1):
            continue
        if run.weight_bytes and run.bandwidth_gb_s:
            fractions.append(
                decode_bound(run.weight_bytes, 0, run.bandwidth_gb_s, run.num_gpus).fraction(run.tokens_per_s)
            )
        elif run.flops_per_token and run.peak_tflops:
            bound = Bound(run.num_gpus * run.peak_tflops * TERA / run.flops_per_token, "matrix rate", "")
            fractions.append(bound.fraction(run.tokens_per_s))
    return (min(fractions), max(fractions), len(fractions)) if fractions else None
