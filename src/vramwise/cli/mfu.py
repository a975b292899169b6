"""`vramwise mfu`: MFU and HFU of a run, by the model's blocks and by every convention, beside published runs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from vramwise.cli.mfu_question import DEFAULT_SEQUENCE, question_of
from vramwise.errors import clipped

HELP = "how much of the GPUs' peak a run uses (MFU, HFU), by every convention, beside published runs"


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
    question = question_of(args)
    if args.task == "train":
        answer, lines = training_answer(question, args), training_lines
    else:
        answer, lines = inference_answer(question, args), inference_lines
    if args.json:
        print(json.dumps(answer, indent=1, allow_nan=False, ensure_ascii=False))
    else:
        show(lines(answer))
    return 0


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
