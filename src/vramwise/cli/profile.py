"""`vramwise profile TRACE…`: where the time of a profiler trace went, per rank and across ranks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from vramwise.cli.profile_job import (
    add_job_arguments,
    fill,
    is_for_once,
    job_folder,
    job_of,
    not_read,
    refuse_what_needs_traces,
    run_job,
    run_rank,
    trace_of,
)
from vramwise.errors import SourceError, UsageError, clipped
from vramwise.files import write_file

if TYPE_CHECKING:
    from vramwise.utilization.profiler.recording import Recording

RANKS_IN_FULL = 4
NO_JOB = "who makes others wait, slow links and the largest losses of the job: pip install 'vramwise[scale]'"
RUN_HELP = (
    "the run behind the trace, as `vramwise mfu` takes it (MODEL --gpu … --tokens-per-second-per-gpu … --reference …): "
    "also print its utilization by FLOPs, by throughput and by the trace side by side"
)
HELP = "read traces of PyTorch, Nsight Systems, ROCm, JAX, Chakra: compute, exposed communication, idle, kernels"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="*.pt.trace.json, .json.gz or .zip, *.sqlite (nsys export), *_results.db (rocpd), "
        "*_results.json and *_kernel_trace.csv (rocprofv3), *.xplane.pb, "
        "*.et (Chakra), a folder or a pattern with one file a rank (s3://…, gs://… too), or the folder that -o filled",
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
    add_job_arguments(parser)
    words = "write a timeline strip, bars and memory per rank"
    parser.add_argument("--plot", "--picture", metavar="FILE.svg", help=words)


def run(args: argparse.Namespace) -> int:
    """Print the figures; 0 also without GPU events. Raises SourceError for what is no trace.

    Raises UsageError for an option's value that is none.
    """
    from vramwise.utilization.profiler.columns import chosen_anew

    with chosen_anew():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts threads for linear algebra; none is done here
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own ones keep 14 MiB a process
    from vramwise.utilization.job.schema import is_job
    from vramwise.utilization.profiler.analysis import analyse, critical_path_of

    if args.top < 1:
        raise UsageError(f"--top: expected a whole number ≥ 1, got {args.top}")
    if args.plot and not args.plot.endswith(".svg"):
        raise UsageError(f'--plot: expected a name that ends with .svg, got "{args.plot}"')
    if args.out is None and not any(map(is_job, args.traces)) and is_for_once(args, RANKS_IN_FULL):
        from tempfile import TemporaryDirectory

        args.for_once = True
        with TemporaryDirectory(prefix="vramwise-job-") as args.out:
            return _run(args)
    if (folder := job_folder(args)) is not None:
        if args.out is not None:
            refuse_what_needs_traces(args)
            fill(folder, args)
            if args.shard is not None:
                return 0
        if args.rank is None:
            return run_job(folder, args)
        args.traces = [trace_of(folder, args.rank)]
        if "://" not in args.traces[0] and not os.path.exists(args.traces[0]):
            return run_rank(folder, args)
    recordings = _read(args.traces, partial=args.partial)
    if args.compat:
        return _compatible(recordings, as_json=args.json)
    answer = analyse(recordings, top=args.top)
    answer["job"] = job_of(recordings) if len(recordings) > 1 else None
    if args.rank is not None:
        answer["ranks"] = _only(answer["ranks"], args.rank)
    if args.critical_path is not None:
        answer["critical_path"] = critical_path_of(recordings, args.critical_path)
    if args.run is not None:
        from vramwise.cli.profile_ways import times_of_traces, ways_of

        answer["ways"] = ways_of(times_of_traces(answer), args.run)
    if args.plot:
        from vramwise.utilization.profiler.picture import picture

        write_file(args.plot, picture(recordings, answer))
    if args.json:
        print(json.dumps(answer, indent=1, allow_nan=False, ensure_ascii=False))
        return 0
    from vramwise.cli.profile_ways import way_lines
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.profile import definition_lines, profile_lines
    from vramwise.cli.screens.profile_job import job_lines
    from vramwise.cli.screens.profile_path import path_lines

    lines = (
        definition_lines(answer) if args.definitions else profile_lines(answer, steps=args.steps, memory=args.memory)
    )
    if answer["job"] is not None and args.rank is None:
        lines = job_lines(answer["job"]) if _one_screen(args, answer) else [*lines, "", *job_lines(answer["job"])]
    elif len(recordings) > 1 and args.rank is None:
        lines = [*lines, "", NO_JOB]
    show([*lines, *path_lines(answer.get("critical_path")), *way_lines(answer.get("ways"))])
    return 0


def _one_screen(args: argparse.Namespace, answer: dict[str, Any]) -> bool:
    """Whether so many ranks are one screen, and each alone is asked for by --rank."""
    return len(answer["ranks"]) > RANKS_IN_FULL and not (args.definitions or args.steps or args.memory)


def _read(traces: list[str], *, partial: bool) -> list[Recording]:
    """What can be read; of several files those that cannot are named, and the rest goes on. Raises SourceError."""
    from vramwise.cli.screens.progress import counted
    from vramwise.utilization.profiler.collect import read_trace
    from vramwise.utilization.profiler.files import MOST_FILES, in_file, trace_paths

    paths = trace_paths(traces)
    if len(paths) > MOST_FILES:
        raise UsageError(f"{len(paths):,} traces: at most {MOST_FILES:,} are read at once, more with -o FOLDER")
    recordings: list[Recording] = []
    failed: list[SourceError] = []
    for path in counted(paths, "reading", "traces"):
        try:
            files = in_file(path)
            alone = len(paths) == len(files) == 1
            recordings += [read_trace(file, partial=partial, alone=alone) for file in files]
        except SourceError as problem:
            failed.append(problem)
    if not recordings:
        raise failed[0]
    if failed:
        print(f"vramwise: {not_read([str(each) for each in failed])}", file=sys.stderr)
    return recordings


def _only(ranks: dict[str, Any], rank: str) -> dict[str, Any]:
    if rank not in ranks:
        known = ", ".join(list(ranks)[:20])
        raise UsageError(f'--rank: no rank "{clipped(rank)}" in these traces, expected one of {known}')
    return {rank: ranks[rank]}


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
