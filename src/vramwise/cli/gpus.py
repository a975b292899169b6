"""`vramwise gpus [QUERY]`: memory, bandwidth, rates and supported formats of accelerators."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from vramwise.cli.listing import figure, print_table
from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.hardware import Gpu, context_bytes, find_gpu, gpus
from vramwise.units import gib

HELP = "list GPUs and other accelerators: memory, bandwidth, rates, supported formats"

_RATES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
_MARKS = {"yes": "yes", "no": "no", "partial": "part", "unknown": "?"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("query", nargs="*", metavar="QUERY", help="words of a name, vendor or architecture")
    parser.add_argument("--here", action="store_true", help="the GPUs of this machine, as their driver reports them")
    parser.add_argument("--json", action="store_true", help="print JSON only")


def run(args: argparse.Namespace) -> int:
    """Print the accelerators that fit; raises UnknownNameError when none does.

    Raises UsageError for a name beside `--here`.
    """
    query = " ".join(args.query)
    if args.here:
        if query:
            raise UsageError(f'--here lists this machine\'s GPUs: leave out "{clipped(query)}"')
        return _here(args)
    found = gpus(query) or [find_gpu(query).gpu]
    if args.json:
        print(json.dumps([facts_of(gpu) for gpu in found], indent=2, ensure_ascii=False))
        return 0
    print_table(
        ("GPU", "sold GB", "driver GiB", "usable GiB", "GB/s", *_RATES, "has bf16", "has fp8", "flash-attn"),
        [_cells(gpu) for gpu in found],
        numbers=range(1, 12),
        title="Rates are dense TFLOPS (int8: TOPS), fp16 and bf16 with fp32 accumulation; ? is not known.\n",
    )
    if len(found) == 1:
        print(_remarks(found[0]))
    return 0


def _here(args: argparse.Namespace) -> int:
    """This machine's GPUs; exit code 1 and a hint where no driver answers."""
    from vramwise.cli.doctor_answers import NO_DRIVER, gpu_answer
    from vramwise.cli.screens.doctor import gpu_lines
    from vramwise.cli.screens.paint import show
    from vramwise.hardware.machine.nvml import this_machine

    machine = this_machine()
    if machine is None or not machine.gpus:
        raise VramwiseError(NO_DRIVER)
    found = [gpu_answer(gpu) for gpu in machine.gpus]
    if args.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        show(gpu_lines(found))
    return 0


def _cells(gpu: Gpu) -> list[str]:
    driver = None if gpu.memory_reported_bytes is None else gib(gpu.memory_reported_bytes)
    usable = None if gpu.usable_bytes is None else gib(gpu.usable_bytes)
    support = gpu.support
    return [
        gpu.id,
        figure(gpu.memory_nominal_gb),
        figure(driver, 2),
        figure(usable, 2),
        figure(gpu.bandwidth_gb_s),
        *(figure(gpu.dense_tflops(name)) for name in _RATES),
        *(_MARKS[word] for word in (support.bf16, support.fp8_gemm, support.flash_attention_2)),
    ]


def _remarks(gpu: Gpu) -> str:
    context = context_bytes(gpu)
    lines = [f"\n{gpu.name}, {gpu.vendor} {gpu.arch} {gpu.compute_capability}".rstrip()]
    if gpu.usable:
        low, high = gib(gpu.usable.low), gib(gpu.usable.high)
        lines.append(f"usable   {low:.2f} – {high:.2f} GiB: {gpu.usable.rule}")
    if len(gpu.memory_options_gb) > 1:
        sizes = ", ".join(str(size) for size in gpu.memory_options_gb)
        lines.append(f"memory   sold with {sizes} GB, shared with the system: the name may carry the size")
    size = f"about {gib(context.expected):.2f} GiB a process" if context.high else "none"
    lines.append(f"context  {size}: {context.rule}")
    lines += [f"{head:<8} {text}" for head, text in (("support", gpu.support.note), ("notes", gpu.notes)) if text]
    return "\n".join([*lines, f"source   {gpu.source} (confidence {gpu.confidence})"])


def facts_of(gpu: Gpu) -> dict[str, object]:
    """What JSON says of an accelerator."""
    facts = asdict(gpu)
    facts["tflops"] = dict(gpu.tflops)
    facts["usable_bytes"] = gpu.usable_bytes
    facts["context"] = asdict(context_bytes(gpu))
    return facts
