"""Published runs to hold a throughput against: training (published.csv) and inference (published_inference.csv).

Every row is a figure that somebody else measured and published, with its source; nothing here is an estimate. GPUs are
ids of the catalog; `measured_on` says where the card was another variant or the figure a floor.
"""

from __future__ import annotations

from functools import cache
from math import log

from vramwise.records import record
from vramwise.tables import records, table

SIZE_RATIO, SEQUENCE_RATIO = 1.35, 2.1
"""A run of a model or a sequence that is larger or smaller by more than this is no comparison."""


@record
class TrainingRun:
    """One published training run; percentages as published, None where the source has none."""

    id: str
    model: str
    num_parameters: int
    embedding_parameters: int
    num_hidden_layers: int
    hidden_size: int
    attention_width: int
    vocab_size: int | None
    sequence_length: int
    gpu: str
    num_gpus: int | None
    dtype: str
    peak_tflops: float
    recompute: str
    convention: str
    tokens_per_s_per_gpu: float | None
    tflops_per_gpu: float | None
    mfu_pct: float | None
    hfu_pct: float | None
    measured_on: str
    source: str


@record
class InferenceRun:
    """One published inference run: decoding of one sequence, or prefill."""

    id: str
    kind: str
    model: str
    weight_bytes: int | None
    gpu: str
    num_gpus: int
    bandwidth_gb_s: float | None
    peak_tflops: float | None
    flops_per_token: int | None
    tokens_per_s: float
    source: str


@cache
def training_runs() -> tuple[TrainingRun, ...]:
    """All published training runs, in the file's order."""
    return records(TrainingRun, table(__file__))


@cache
def inference_runs() -> tuple[InferenceRun, ...]:
    """All published inference runs, in the file's order."""
    return records(InferenceRun, table(__file__, "published_inference"))


def comparable_runs(
    num_parameters: int, sequence: int, gpu: str, dtype: str, most: int = 5
) -> list[TrainingRun]:  # fmt: skip
    """Published runs on this GPU, in this dtype, of nearly this model size and sequence length, the nearest first.

    16-bit dtypes compare with one another. Of equally near runs the fastest comes first.
    """
    half = {"bf16", "fp16"}
    found = []
    for run in training_runs():
        same_dtype = run.dtype == dtype or {run.dtype, dtype} <= half
        size = abs(log(run.num_parameters / num_parameters))
        length = abs(log(run.sequence_length / sequence))
        near = size <= log(SIZE_RATIO) and length <= log(SEQUENCE_RATIO)
        if run.gpu == gpu and same_dtype and near and run.tokens_per_s_per_gpu:
            found.append((round(size + length, 1), -run.tokens_per_s_per_gpu, run.id, run))
    return [run for *_, run in sorted(found)[:most]]
