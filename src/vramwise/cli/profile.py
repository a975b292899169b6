"""`vramwise profile TRACE…`: where the time of a profiler trace went, per rank and across ranks."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from vramwise.cli.profile_ways import HELP as RUN_HELP
from vramwise.cli.profile_ways import way_lines, ways_of
from vramwise.errors import UsageError
from vramwise.files import write_file

if TYPE_CHECKING:
    from vramwise.utilization.profiler.recording import Recording

HELP = "read traces of PyTorch, Nsight Systems, ROCm, JAX, Chakra: compute, exposed communication, idle, kernels"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="*.pt.trace.json, .json.gz or .zip, *.sqlite (nsys export), *_results.db (rocpd), *.xplane.pb, "
        "*.et (Chakra), or a folder with one file a rank",
    )
    parser.add_argument("--json", action="store_true", help="print every figure as JSON only, times in microseconds")
    parser.add_argument(
        "--definitions",
        action="store_true",
        help="print the same trace by the competing definitions of utilization (HTA, TensorBoard plugin, ours)",
    )
    parser.add_argument(
        "--compat", choices=("hta",), help="print the tables of Holistic Trace Analysis 0.5, by its rules and names"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="kernels to list (%(default)s)")
    parser.add_argument("--steps", action="store_true", help="also print one row a profiler step")
    parser.add_argument(
        "--critical-path",
        nargs="?",
        const="",
        metavar="STEP",
        help="also print what holds up a step, over all ranks, and what a faster part would save (the median step)",
    )
    parser.add_argument("--memory", action="store_true", help="also print the allocator's memory over time")
    parser.add_argument("--run", metavar="ARGS", help=RUN_HELP)
    parser.add_argument("--partial", action="store_true", help="read what a truncated trace holds")
    words = "write a timeline strip, bars and memory per rank"
    parser.add_argument("--plot", "--picture", metavar="FILE.svg", help=words)


def run(args: argparse.Namespace) -> int:
    """Print the figures; 0 also without GPU events. Raises SourceError for what is no trace."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts threads for linear algebra; none is done here
    from vramwise.cli.screens.progress import counted
    from vramwise.utilization.profiler.analysis import analyse, critical_path_of
    from vramwise.utilization.profiler.collect import read_trace
    from vramwise.utilization.profiler.files import trace_files

    if args.top < 1:
        raise UsageError(f"--top: expected a whole number ≥ 1, got {args.top}")
    if args.plot and not args.plot.endswith(".svg"):
        raise UsageError(f'--plot: expected a name that ends with .svg, got "{args.plot}"')
    files = trace_files(args.traces)
    recordings = [read_trace(file, partial=args.partial) for file in counted(files, "reading", "traces")]
    if args.compat:
        return _compatible(recordings, as_json=args.json)
    answer = analyse(recordings, top=args.top)
    if args.critical_path is not None:
        answer["critical_path"] = critical_path_of(recordings, args.critical_path)
    if args.run is not None:
        answer["ways"] = ways_of(answer, args.run)
    if args.plot:
        from vramwise.utilization.profiler.picture import picture

        write_file(args.plot, picture(recordings, answer))
    if args.json:
        print(json.dumps(answer, indent=1, allow_nan=False, ensure_ascii=False))
        return 0
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.profile import definition_lines, profile_lines
    from vramwise.cli.screens.profile_path import path_lines

    lines = (
        definition_lines(answer) if args.definitions else profile_lines(answer, steps=args.steps, memory=args.memory)
    )
    show([*lines, *path_lines(answer.get("critical_path")), *way_lines(answer.get("ways"))])
    return 0


def _compatible(recordings: list[Recording], *, as_json: bool) -> int:
    from vramwise.utilization.profiler.analysis import SCHEMA, rank_labels
    from vramwise.utilization.profiler.hta_tables import hta_tables

    ranks = {rank: hta_tables(recording) for rank, recording in zip(rank_labels(recordings), recordings, strict=True)}
    if as_json:
        print(json.dumps({"schema": SCHEMA, "compat": "hta", "ranks": ranks}, indent=1, allow_nan=False))
        return 0
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.profile_compat import hta_lines

    show(hta_lines(ranks))
    return 0
