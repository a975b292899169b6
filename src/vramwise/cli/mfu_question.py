"""What the flags of `vramwise mfu` ask: model, GPU, peak, throughput and the sizes that conventions need."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vramwise.cli import flag
from vramwise.errors import UsageError
from vramwise.files import read_at_most
from vramwise.records import record

if TYPE_CHECKING:
    from vramwise.hardware import Gpu
    from vramwise.models import Model
    from vramwise.utilization.throughput import Throughput

DEFAULT_SEQUENCE = 2048
LARGEST_OUTPUT = 2**26
_RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "examples_per_second", "step_time", "tflops")


@record
class Question:
    """What the flags say, read and looked up."""

    model: Model | None
    model_id: str
    gpu: Gpu | None
    gpu_note: str | None
    peak_tflops: float | None
    peak_source: str
    sequence: int


def question_of(args: argparse.Namespace) -> Question:
    """Everything looked up. Raises UsageError for flags that contradict or leave out what is needed."""
    from vramwise.formats import dtype
    from vramwise.hardware import find_gpu

    given = [name for name in (*_RATES, "deepspeed_output") if getattr(args, name) is not None]
    if len(given) > 1:
        raise UsageError(f"{flag(given[0])} and {flag(given[1])} both say how fast it ran: give one of them")
    if args.task == "train" and not given:
        names = ", ".join(flag(name) for name in _RATES)
        raise UsageError(f"how fast did it run? give one of {names}, --deepspeed-output")
    model_id, model = "", None
    if args.model is not None:
        from vramwise.estimation import described_model

        source, model = described_model(args.model)
        model_id = source.id
    match = find_gpu(args.gpu) if args.gpu else None
    peak, peak_source = args.peak_tflops, "as given"
    rate = dtype(args.dtype).name.removesuffix("_e4m3").removesuffix("_e5m2")
    if peak is None and match is not None:
        peak = match.gpu.dense_tflops(rate)
        if peak is None:
            raise UsageError(f"{match.gpu.id} has no known {rate} rate: state --peak-tflops")
        peak_source = f"dense {rate} of {match.gpu.name}: {match.gpu.source}"
    return Question(
        model=model,
        model_id=model_id,
        gpu=None if match is None else match.gpu,
        gpu_note=None if match is None else match.note,
        peak_tflops=peak,
        peak_source=peak_source,
        sequence=args.sequence_length or DEFAULT_SEQUENCE,
    )


def throughput_of(args: argparse.Namespace, sequence: int) -> Throughput | None:
    """Tokens per second of one GPU where the flags give them; None where they give FLOPs.

    Raises UsageError for a step's time without a batch.
    """
    from vramwise.utilization.throughput import Throughput, from_examples, from_step, from_tokens

    if args.tokens_per_second is not None:
        return from_tokens(args.tokens_per_second, args.num_gpus)
    if args.tokens_per_second_per_gpu is not None:
        return Throughput(args.tokens_per_second_per_gpu, "as given")
    if args.examples_per_second is not None:
        return from_examples(args.examples_per_second, sequence, args.num_gpus)
    if args.step_time is not None:
        if args.global_batch_size is None:
            raise UsageError("--step-time needs --global-batch-size: sequences a step, of all GPUs")
        return from_step(args.step_time, args.global_batch_size, sequence, args.num_gpus)
    return None


def read_output(name: str) -> str:
    """A log's text. Raises SourceError."""
    return read_at_most(name, LARGEST_OUTPUT).decode("utf-8", "replace")
