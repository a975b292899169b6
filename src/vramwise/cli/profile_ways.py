"""`vramwise profile TRACE --run "…"`: the three ways of stating one run's utilization, side by side."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.errors import UsageError, clipped

WHY = (
    "they answer different questions: FLOPs over peak says what of the card's arithmetic became model; throughput over "
    "a reference says how near another run is, whatever either wastes; busy time says that kernels were there, not how "
    "fast they were, nor whether they computed or waited for another rank"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"--run: {clipped(message, 300)}")


def ways_of(times: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Each way with its percentage; None where the trace or the run does not say.
    Raises UsageError for a run that `mfu` does not take.

    `times`: how many `ranks`, and `busy`, `compute` and `span` of them together, in any one unit.
    """
    from vramwise.cli import mfu
    from vramwise.cli.mfu_answers import training_answer
    from vramwise.cli.mfu_question import question_of

    parser = _Parser(prog="--run", add_help=False)
    mfu.add_arguments(parser)
    try:
        words = shlex.split(run)
    except ValueError as error:
        raise UsageError(f"--run: {error}") from None
    args = parser.parse_args(words)
    if args.task != "train" or args.measure_peak or args.deepspeed_config:
        raise UsageError("--run: a training run is stated, as `vramwise mfu MODEL --tokens-per-second X` has it")
    said = training_answer(question_of(args), args)
    span = times["span"]
    shares = {key: 100 * times[key] / span if span else None for key in ("busy", "compute")}
    return {
        "flops": {"mfu_pct": said.get("mfu_pct", said.get("utilization_pct")), "hfu_pct": said.get("hfu_pct"),
                  "tflops_per_gpu": said.get("tflops_per_gpu"), "peak_tflops": said["peak_tflops"]},
        "throughput": said.get("reference"),
        "trace": {"busy_pct": shares["busy"], "compute_pct": shares["compute"], "ranks": times["ranks"]},
    }  # fmt: skip


def times_of_traces(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The times of traces that were just analysed, for `ways_of`."""
    ranks = [one["classified"] for one in answer["ranks"].values() if one["all_events"]["gpu_events"]]
    return {"ranks": len(ranks), **{key: sum(one[f"{key}_us"] for one in ranks) for key in ("busy", "compute", "span")}}


def way_lines(ways: Mapping[str, Any] | None) -> list[Line]:
    """The table and why its rows differ; nothing where no run was given."""
    if ways is None:
        return []
    flops, reference, trace = ways["flops"], ways["throughput"], ways["trace"]
    of_peak = "give a model, a rate and --gpu"
    if flops["mfu_pct"] is not None:
        of_peak = f"{flops['tflops_per_gpu']:,.1f} of {flops['peak_tflops']:,.4g} TFLOPS"
    of_other = "give --reference" if reference is None else f"of {reference['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU"
    ranks = f"rank{'' if trace['ranks'] == 1 else 's together'}"
    rows = [
        ("utilization by", "of what", ""),
        ("achieved FLOPs (MFU)", of_peak, _pct(flops["mfu_pct"])),
        ("throughput", of_other, _pct(reference and reference["pct"])),
        ("profiler time, busy", f"of the trace's span, {trace['ranks']} {ranks}", _pct(trace["busy_pct"])),
        ("profiler time, compute", "of the same", _pct(trace["compute_pct"])),
    ]
    lines: list[Line] = ["", [("three ways to state it", "bold")]]
    lines += [f"  {line}" for line in columns(rows, numbers_from=2)]
    return [*lines, *wrapped_text("  ", WHY, screen_width())]


def _pct(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f} %"
