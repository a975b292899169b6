"""`vramwise mfu`: MFU and HFU of a run, by the model's blocks and by every convention, beside published runs."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramwise.cli.scenario_flags import flag
from vramwise.errors import SourceError, UsageError, clipped

if TYPE_CHECKING:
    from vramwise.hardware import Gpu
    from vramwise.models import Model
    from vramwise.utilization.conventions import Sizes
    from vramwise.utilization.throughput import Throughput

HELP = "how much of the GPUs' peak a run uses (MFU, HFU), by every convention, beside published runs"
DEFAULT_SEQUENCE = 2048
LARGEST_OUTPUT = 2**26
_RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "examples_per_second", "step_time", "tflops")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="catalog id, hub id, URL, path of a config.json")
    rate = parser.add_argument_group("what was measured (one of these)")
    rate.add_argument("--tokens-per-second", type=_positive, metavar="X", help="of all GPUs together")
    rate.add_argument("--tokens-per-second-per-gpu", type=_positive, metavar="X", help="of one GPU")
    rate.add_argument("--examples-per-second", type=_positive, metavar="X", help="of all GPUs, --sequence-length each")
    rate.add_argument("--step-time", type=_positive, metavar="SECONDS", help="with --global-batch-size")
    rate.add_argument("--tflops", type=_positive, metavar="X", help="TFLOP/s of one GPU, as a trainer or profiler says")
    rate.add_argument("--deepspeed-output", metavar="FILE", help="a log with the summary of DeepSpeed's flops profiler")
    run_ = parser.add_argument_group("the run")
    run_.add_argument("--gpu", metavar="NAME", help="catalog id or name: its dense peak for --dtype is the denominator")
    run_.add_argument("-n", "--num-gpus", type=_count, default=1, metavar="N", help="(%(default)s)")
    run_.add_argument("--sequence-length", type=_count, metavar="N", help=f"tokens a sequence ({DEFAULT_SEQUENCE})")
    run_.add_argument("--global-batch-size", type=_count, metavar="N", help="sequences a step, of all GPUs")
    run_.add_argument(
        "--dtype", default="bf16", help="of the matrix products: bf16, fp16, tf32, fp32, fp8 (%(default)s)"
    )
    run_.add_argument("--peak-tflops", type=_positive, metavar="X", help="another peak, such as a measured one")
    run_.add_argument("--recompute", choices=("none", "selective", "full"), default="none", help="(%(default)s)")
    run_.add_argument("--attention", choices=("full", "causal"), default="full",
                      help="count every pair of tokens, or only those that a mask leaves (%(default)s)")  # fmt: skip
    run_.add_argument("--lora-rank", type=_count, metavar="R", help="adapters on all linear layers, the base frozen")
    run_.add_argument("--reference", type=_positive, metavar="X", help="tokens/s/GPU of another run to compare with")
    serve = parser.add_argument_group("inference")
    serve.add_argument("--task", choices=("train", "prefill", "decode"), default="train", help="(%(default)s)")
    serve.add_argument("--batch-size", type=_count, default=1, metavar="N", help="sequences decoded together")
    serve.add_argument("--context-length", type=_count, default=1, metavar="N", help="tokens in each sequence's cache")
    serve.add_argument("--weight-dtype", metavar="DTYPE", help="of the weights that decoding reads (--dtype)")
    other = parser.add_argument_group("other")
    other.add_argument("--deepspeed-config", action="store_true", help="print DeepSpeed's flops-profiler configuration")
    other.add_argument("--measure-peak", action="store_true", help="largest matmul rate of this machine's GPU (torch)")
    other.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="what --measure-peak measures (%(default)s)"
    )
    other.add_argument("--json", action="store_true", help="print JSON only")


@dataclass(frozen=True, slots=True)
class Question:
    """What the flags say, read and looked up."""

    model: Model | None
    model_id: str
    gpu: Gpu | None
    gpu_note: str | None
    peak_tflops: float | None
    peak_source: str
    sequence: int


def run(args: argparse.Namespace) -> int:
    """Print the figures. Raises UsageError where what is needed is missing."""
    from vramwise.cli.mfu_answers import inference_answer, training_answer
    from vramwise.cli.screens.mfu import inference_lines, training_lines
    from vramwise.cli.screens.paint import show

    if args.deepspeed_config:
        from vramwise.utilization.deepspeed_profiler import CONFIGURATION

        print(json.dumps(CONFIGURATION, indent=2))
        return 0
    if args.measure_peak:
        return _measure_peak(args)
    question = _question(args)
    if args.task == "train":
        answer, lines = training_answer(question, args), training_lines
    else:
        answer, lines = inference_answer(question, args), inference_lines
    if args.json:
        print(json.dumps(answer, indent=1, allow_nan=False, ensure_ascii=False))
    else:
        show(lines(answer))
    return 0


def _question(args: argparse.Namespace) -> Question:
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
    """Tokens per second of one GPU where the flags give them; None where they give FLOPs."""
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


def sizes_of(model: Model, sequence: int) -> Sizes:
    """What the conventions need, counted from the blocks: active parameters, look-ups apart, L · H · Q of attention."""
    from vramwise.models.flops import step_flops
    from vramwise.utilization.conventions import Sizes

    tied = {parameter.tied_to for parameter in model.all_parameters}
    lookups = [one for one in model.parameters if one.part == "embedding" and one.name not in tied]
    vocabulary = model.logit_width or model.config.size("vocab_size", default=1)
    layers = model.num_layers
    flops = step_flops(model, 1, sequence).attention_forward
    tables = [one for one in model.parameters if one.part == "embedding"]
    return Sizes(
        num_parameters=model.num_active_parameters,
        embedding_parameters=sum(one.numel for one in lookups),
        num_hidden_layers=layers,
        hidden_size=model.hidden_size,
        attention_width=round(flops / (4 * layers * sequence**2)) if flops else _plain_width(model),
        vocab_size=vocabulary,
        position_parameters=sum(one.numel for one in tables if "position" in one.name or ".wpe." in f".{one.name}"),
    )


def _plain_width(model: Model) -> int:
    """H · Q where attention runs as plain products, which the blocks' FLOPs do not tell apart; 0 without attention."""
    heads = model.config.size("num_attention_heads", "attention_heads", "n_head", "n_heads", default=0, least=0)
    if not heads:
        return 0
    return model.config.size("head_dim", default=model.hidden_size // heads) * heads


def read_output(name: str) -> str:
    """A log's text. Raises SourceError."""
    try:
        with open(Path(name), "rb") as file:
            return file.read(LARGEST_OUTPUT).decode("utf-8", "replace")
    except OSError as error:
        raise SourceError(f"{clipped(name, 200)}: {error.strerror or error}") from None


def _measure_peak(args: argparse.Namespace) -> int:
    from vramwise.utilization.peak import measured_peak

    answer: dict[str, Any] = measured_peak(args.dtype, args.device)
    if args.json:
        print(json.dumps(answer, indent=1))
        return 0
    shape = " × ".join(f"{size:,}" for size in answer["shape"])
    best = f"{answer['tflops']:,.4g} TFLOPS {answer['dtype']}"
    print(f"{answer['gpu']}: {best} at most, of {answer['shapes']} shapes ({shape})")
    print(f"use it as a denominator: --peak-tflops {answer['tflops']:.4g}")
    return 0


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e18:
        raise argparse.ArgumentTypeError(f'expected a number > 0, got "{clipped(text)}"')
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise argparse.ArgumentTypeError(f'expected a whole number ≥ 1, got "{clipped(text)}"')
    return int(text)
