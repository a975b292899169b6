"""`vramwise profile … -o FOLDER`, `vramwise profile FOLDER`: a whole job's traces, read once and kept as tables."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vramwise.utilization.job.folder import JobFolder
    from vramwise.utilization.job.mapped import Done
    from vramwise.utilization.profiler.recording import Recording

MOST_JOBS = 512
OUT_HELP = "keep each trace's tables (Parquet) in this folder and answer from there; what is there already is not read"
JOBS_HELP = "read N traces at a time, each by a process of its own"
SHARD_HELP = "read only every N-th trace from the I-th, for arrays of jobs that fill one folder; with -o"
DASK_HELP = (
    "read the traces on the workers of a Dask cluster that see them: tcp://HOST:PORT, tls://HOST:PORT, or a FILE.toml "
    "that starts one ([slurm], [pbs], [lsf], [kubernetes], …)"
)
SQL_HELP = "ask the tables of a job: a SELECT, or the name of a question; without, list names and columns"


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for the folder of a job."""
    parser.add_argument("-o", "--out", metavar="FOLDER", help=OUT_HELP)
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help=JOBS_HELP)
    parser.add_argument("--shard", metavar="I/N", help=SHARD_HELP)
    parser.add_argument("--dask", metavar="WHERE", help=DASK_HELP)
    parser.add_argument("--rank", metavar="R", help="print the figures of this rank alone")
    parser.add_argument("--sql", nargs="?", const="", metavar="QUERY", help=SQL_HELP)
    parser.set_defaults(for_once=False)


def job_folder(args: argparse.Namespace) -> JobFolder | None:
    """The folder that is asked, or filled; None where traces are read as they are.

    Raises UsageError where a job's folder stands beside traces, or an option needs one.
    """
    from vramwise.utilization.job.schema import is_job

    asked = [path for path in args.traces if is_job(path)]
    if asked and len(args.traces) > 1:
        raise UsageError(f'"{clipped(asked[0], 200)}" is the folder of a job: expected it alone')
    if asked:
        for flag, value in (("-o", args.out), ("--jobs", args.jobs), ("--dask", args.dask), ("--shard", args.shard)):
            if value is not None:
                raise UsageError(f"{flag}: expected traces to read, got the folder of a job, which holds their tables")
    if not asked and args.out is None:
        for flag, value in (("--shard", args.shard), ("--sql", args.sql)):
            if value is not None:
                raise UsageError(f"{flag} goes with -o FOLDER" + (", or with that folder" if flag == "--sql" else ""))
        return None
    from vramwise.utilization.job.folder import JobFolder

    return JobFolder(asked[0] if asked else args.out)


def is_for_once(args: argparse.Namespace, few: int) -> bool:
    """Whether tables are to be made that nobody wants to keep: for processes or workers that read, and for more than a
    `few` traces of which the job's screen or one rank is asked, so that no more than one of them is in memory.
    """
    if args.shard is not None or args.sql is not None:
        return False
    if args.jobs is not None or args.dask is not None:
        return True
    from importlib.util import find_spec

    from vramwise.utilization.profiler.files import trace_paths

    of_traces = args.json or (args.rank is None and any(getattr(args, flag) for flag in (*NOT_IN_TABLES, "steps")))
    return not of_traces and find_spec("duckdb") is not None and len(trace_paths(args.traces)) > few


def run_job(folder: JobFolder, args: argparse.Namespace) -> int:
    """Answer from the folder of a job."""
    refuse_what_needs_traces(args)
    if args.sql is not None:
        return _asked(folder, args)
    from vramwise.utilization.job.answer import answer_of

    found = {"job": answer_of(folder), **_of_tables(folder, args)}
    if args.json:
        return _print_json(found)
    from vramwise.cli.profile_ways import way_lines
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.profile_job import job_lines
    from vramwise.cli.screens.profile_path import path_lines

    show([*job_lines(found["job"]), *path_lines(found.get("critical_path")), *way_lines(found.get("ways"))])
    return 0


NOT_IN_TABLES = ("compat", "plot", "definitions", "memory")


def refuse_what_needs_traces(args: argparse.Namespace) -> None:
    """Raises UsageError for what tables do not hold, where they are to answer."""
    if args.rank is None:
        for flag in (*NOT_IN_TABLES, "steps"):
            if getattr(args, flag):
                raise UsageError(
                    f"--{flag}: a job is answered from its tables, add --rank R (or name that rank's trace)"
                )


def _of_tables(folder: JobFolder, args: argparse.Namespace) -> dict[str, Any]:
    """The critical path and the ways of stating utilization, where they are asked for."""
    from vramwise.utilization.job.answer import times_of
    from vramwise.utilization.job.path import job_path
    from vramwise.utilization.job.tables import tables_of

    found: dict[str, object] = {}
    if args.critical_path is None and args.run is None:
        return found
    with tables_of(folder) as tables:
        if args.critical_path is not None:
            found["critical_path"] = job_path(tables, args.critical_path, args.rank)
        if args.run is not None:
            from vramwise.cli.profile_ways import ways_of

            found["ways"] = ways_of(times_of(tables, args.rank), args.run)
    return found


def _print_json(found: dict[str, Any]) -> int:
    from vramwise.utilization.job.schema import SCHEMA

    print(json.dumps({"schema": SCHEMA, **found}, indent=1, allow_nan=False, ensure_ascii=False))
    return 0


def not_read(failed: Sequence[str]) -> str:
    """What to say of traces that could not be read, on one line."""
    more = f" and {len(failed) - 1:,} more" if len(failed) > 1 else ""
    return f"not read: {failed[0]}{more}"


def job_of(recordings: Sequence[Recording]) -> dict[str, Any] | None:
    """The whole job of traces that were just read; None without the extra `scale`."""
    from importlib.util import find_spec

    from vramwise.utilization.job.answer import job_answer
    from vramwise.utilization.job.parquet import ParquetFile
    from vramwise.utilization.job.part import part_of
    from vramwise.utilization.job.schema import TABLES
    from vramwise.utilization.job.tables import tables_at_once

    if find_spec("duckdb") is None:
        return None
    parts = {table: ParquetFile(kinds) for table, kinds in TABLES.items()}
    for recording in recordings:
        for table, found in part_of(recording):
            parts[table].add(found)
    with tables_at_once(parts) as tables:
        return job_answer(tables)


def trace_of(folder: JobFolder, rank: str) -> str:
    """The file of a rank. Raises UsageError for a rank that is not there."""
    from vramwise.utilization.job.tables import tables_of

    with tables_of(folder) as tables:
        traces: dict[str, str] = {row["rank"]: row["trace"] for row in tables.rows("SELECT rank, trace FROM ranks")}
    if rank not in traces:
        raise UsageError(f'--rank: no rank "{clipped(rank)}" among the {len(traces):,} of this job')
    return traces[rank]


def run_rank(folder: JobFolder, args: argparse.Namespace) -> int:
    """One rank by its tables alone: its trace is no longer there. Raises UsageError for options that need the trace."""
    from vramwise.utilization.job.one_rank import rank_answer
    from vramwise.utilization.job.tables import tables_of

    for flag in NOT_IN_TABLES:
        if getattr(args, flag):
            raise UsageError(
                f"--{flag} needs the trace of rank {clipped(args.rank)}, and there is no such file any more"
            )
    with tables_of(folder) as tables:
        answer = rank_answer(tables, args.rank, args.top)
    also = _of_tables(folder, args)
    if args.json:
        return _print_json({"tables": {args.rank: answer}, **also})
    from vramwise.cli.profile_ways import way_lines
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.profile_job import rank_lines
    from vramwise.cli.screens.profile_path import path_lines

    show([*rank_lines(args.rank, answer), *path_lines(also.get("critical_path")), *way_lines(also.get("ways"))])
    return 0


def fill(folder: JobFolder, args: argparse.Namespace) -> None:
    """Read into the folder what is not there yet. Raises SourceError where no trace could be read.

    Raises UsageError for a number of processes that is none, or beside `--dask`.
    """
    from vramwise.cli.screens.progress import Progress
    from vramwise.utilization.job.folder import imported, whole_path
    from vramwise.utilization.job.mapped import shard_of
    from vramwise.utilization.profiler.files import trace_paths

    once = list(dict.fromkeys(map(whole_path, trace_paths(args.traces))))
    traces = shard_of(once, args.shard)
    if args.jobs is not None and not 1 <= args.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs: expected a whole number from 1 to {MOST_JOBS}, got {args.jobs}")
    if args.jobs is not None and args.dask is not None:
        raise UsageError("--jobs and --dask: expected one of them, processes here or workers there")
    if args.shard is None:  # a share is read and not answered from
        imported("duckdb")
    folder.begin()
    left = [trace for trace in traces if not folder.has(trace)]
    progress = Progress("reading", len(left), "traces")
    failed: list[str] = []
    try:
        for number, done in enumerate(_ends(left, folder, args), 1):
            progress.at(number)
            if done.why is not None:
                folder.fail(done.trace, done.why)
                failed.append(done.why)
    finally:
        progress.end()
        folder.end()
    kept = len(traces) - len(left)
    lost = f", {not_read(failed)}" if failed else ""
    if not args.for_once:
        read = counted(len(left) - len(failed), "trace")
        print(f"{folder.path}: {read} read, {kept:,} were there{lost}", file=sys.stderr)
    elif failed:
        print(f"vramwise: {not_read(failed)}", file=sys.stderr)
    if traces and not kept and len(failed) == len(left):
        raise SourceError(failed[0] if args.for_once else "no trace could be read")


def _ends(traces: list[str], folder: JobFolder, args: argparse.Namespace) -> Iterator[Done]:
    """What became of each trace, by processes of this machine or by a cluster."""
    from vramwise.utilization.job.mapped import map_trace, mapped, mapped_on, read_part

    if args.dask is None or not traces:
        yield from mapped(traces, partial(map_trace, out=str(folder.path), partial=args.partial), args.jobs or 1)
        return
    from vramwise.clusters import connected

    with connected(args.dask) as cluster:
        yield from mapped_on(cluster, traces, partial(read_part, partial=args.partial), folder)


def _asked(folder: JobFolder, args: argparse.Namespace) -> int:
    from vramwise.cli.screens.paint import columns, show
    from vramwise.utilization.job.queries import QUERIES
    from vramwise.utilization.job.schema import TABLES
    from vramwise.utilization.job.tables import tables_of

    if not args.sql:
        lines = ["tables (ranks, holdings, likes, calls, matched, waits are made of them):"]
        lines += [
            f"  {line}" for line in columns([(name, ", ".join(each)) for name, each in TABLES.items()], numbers_from=2)
        ]
        lines += ["questions by name:"]
        lines += [
            f"  {line}" for line in columns([(name, query.answers) for name, query in QUERIES.items()], numbers_from=2)
        ]
        show(lines)
        return 0
    with tables_of(folder) as tables:
        names, rows = tables.asked(QUERIES[args.sql].text if args.sql in QUERIES else args.sql)
    if args.json:
        named = [dict(zip(names, row, strict=True)) for row in rows]
        print(json.dumps(named, indent=1, default=str, ensure_ascii=False))
        return 0
    show(columns([tuple(names), *(tuple(_cell(value) for value in row) for row in rows)]))
    return 0


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else clipped(str(value), 80)
