"""What of its data sheet a card reaches: rates of matrix products, attention, memory, and the least time of a kernel.

Shares come from published training runs (speed.csv; benchmarks/speed.py prints what every source is off by), by
generation of card; those of a generation without runs are as wide as all that are known.
"""

from __future__ import annotations

from functools import cache

from vramwise.hardware import Gpu
from vramwise.records import record
from vramwise.tables import Row, table
from vramwise.utilization.throughput import GIGA, TERA

OTHERS = "other"
_PEAK = {"bf16": ("bf16", "fp16"), "fp16": ("fp16", "bf16"), "fp32": ("tf32", "fp32")}
"""Rates by what computes; fp32 products run in TF32 where the card has it (transformers' Trainer and PyTorch's own
recipes ask for it; torch alone does not, and takes longer)."""


@record
class Rates:
    """Of one card: FLOP/s of 16-bit (or fp32) and of fp8 products and of attention, bytes/s of memory, and the least
    seconds of a kernel. `low`, `high`: relative ends of a step's seconds on cards of this generation."""

    product_flops: float
    fp8_flops: float
    attention_flops: float
    memory_bytes: float
    kernel_s: float
    low: float
    high: float
    source: str


@cache
def rates_of(gpu: Gpu, compute_dtype: str) -> Rates:
    """The rates of a card. Raises ValueError where its data sheet has none (`Gpu.has_rates`)."""
    names = (*_PEAK.get(compute_dtype, ()), "bf16", "fp16", "fp32")
    peak = next((rate for name in names if (rate := gpu.dense_tflops(name))), None)
    if peak is None or gpu.bandwidth_gb_s is None:
        raise ValueError(f"no rates of {gpu.id} are known")
    row = _row_of(gpu)
    fp8 = gpu.dense_tflops("fp8") or peak  # a card without fp8 products multiplies in 16 bits
    return Rates(
        product_flops=peak * TERA * row.number("product_share"),
        fp8_flops=fp8 * TERA * (row.number_or_none("fp8_share") or row.number("product_share")),
        attention_flops=peak * TERA * row.number("attention_share"),
        memory_bytes=gpu.bandwidth_gb_s * GIGA * row.number("memory_share"),
        kernel_s=row.number("kernel_us") * 1e-6,
        low=row.number("low"),
        high=row.number("high"),
        source=row["source"],
    )


def _row_of(gpu: Gpu) -> Row:
    rows = {row["compute_capability"]: row for row in table(__file__, "speed")}
    return rows.get(gpu.compute_capability) or rows[OTHERS]
