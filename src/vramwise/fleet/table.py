"""The table of jobs as Parquet, and the questions that DuckDB answers over it.

One row a job; the columns are those of `Job`, of which `days` is a list (one entry a window). The version of the schema
stands in the file's metadata under SCHEMA_KEY.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import BytesIO, StringIO
from typing import Any, Final

from vramwise.errors import SourceError, UsageError, VramwiseError
from vramwise.files import read_at_most, shown_path, write_file
from vramwise.fleet.collect import MOST_JOBS
from vramwise.fleet.jobs import Job
from vramwise.records import record
from vramwise.units import MIB

SCHEMA: Final = 1
SCHEMA_KEY: Final = b"vramwise.fleet.schema"
ABOUT_KEY: Final = b"vramwise.fleet.about"
LARGEST_TABLE: Final = 512 * MIB
DUCKDB_MEMORY: Final = "1GB"

TEXT, WHOLE, NUMBER = "string", "int64", "float64"
COLUMNS: Final = {
    "id": TEXT, "kind": TEXT, "namespace": TEXT, "user": TEXT, "gpu": TEXT, "gpus": WHOLE, "first_s": NUMBER,
    "last_s": NUMBER, "seen": NUMBER, "gpu_hours": NUMBER, "idle_gpu_hours": NUMBER, "launch_bound_gpu_hours": NUMBER,
    "communication_gpu_hours": NUMBER, "wasted_gpu_hours": NUMBER, "reason": TEXT, "engine_active": NUMBER,
    "sm_active": NUMBER, "tensor_active": NUMBER, "dram_active": NUMBER, "link_bytes_per_s": NUMBER,
    "peak_bytes": WHOLE, "card_bytes": WHOLE, "energy_j": NUMBER, "tokens": NUMBER, "steps": NUMBER,
    "joules_per_token": NUMBER, "joules_per_step": NUMBER, "smaller_gpu": TEXT, "smaller_by": TEXT, "command": TEXT,
}  # fmt: skip
DAY_COLUMNS: Final = (
    "start_s", "gpu_hours", "idle_gpu_hours", "launch_bound_gpu_hours", "communication_gpu_hours",
)  # fmt: skip

TOTALS: Final = """
SELECT count(*) AS jobs, coalesce(sum(gpu_hours), 0) AS gpu_hours,
       coalesce(sum(wasted_gpu_hours), 0) AS wasted_gpu_hours, coalesce(sum(idle_gpu_hours), 0) AS idle_gpu_hours,
       coalesce(sum(launch_bound_gpu_hours), 0) AS launch_bound_gpu_hours,
       sum(communication_gpu_hours) AS communication_gpu_hours, sum(energy_j) AS energy_j, sum(tokens) AS tokens,
       sum(energy_j) FILTER (tokens > 0) / nullif(sum(tokens), 0) AS joules_per_token
FROM jobs
"""
BY_REASON: Final = """
SELECT reason, count(*) AS jobs, sum(gpu_hours) AS gpu_hours, sum(wasted_gpu_hours) AS wasted_gpu_hours
FROM jobs GROUP BY reason ORDER BY wasted_gpu_hours DESC, reason
"""
BY_OWNER: Final = """
SELECT coalesce(nullif("user", ''), nullif(namespace, ''), '–') AS owner, count(*) AS jobs,
       sum(gpu_hours) AS gpu_hours, sum(wasted_gpu_hours) AS wasted_gpu_hours
FROM jobs GROUP BY owner ORDER BY wasted_gpu_hours DESC, owner
"""
SMALLER: Final = """
SELECT gpu, smaller_gpu, count(*) AS jobs, sum(gpu_hours) AS gpu_hours
FROM jobs WHERE smaller_gpu IS NOT NULL GROUP BY gpu, smaller_gpu ORDER BY gpu_hours DESC, gpu, smaller_gpu
"""
DAYS: Final = """
SELECT day.start_s AS start_s, sum(day.gpu_hours) AS gpu_hours, sum(day.idle_gpu_hours) AS idle_gpu_hours,
       sum(day.launch_bound_gpu_hours) AS launch_bound_gpu_hours,
       sum(day.communication_gpu_hours) AS communication_gpu_hours
FROM (SELECT unnest(days) AS day FROM jobs) GROUP BY day.start_s ORDER BY day.start_s
"""
WORST: Final = "SELECT id FROM jobs ORDER BY wasted_gpu_hours DESC, gpu_hours DESC, id"


@record
class Answers:
    """What DuckDB says of the jobs: each a list of rows by name; `ids` are all jobs, those that waste most first."""

    totals: Mapping[str, Any]
    by_reason: Sequence[Mapping[str, object]]
    by_owner: Sequence[Mapping[str, object]]
    smaller: Sequence[Mapping[str, Any]]
    days: Sequence[Mapping[str, object]]
    ids: Sequence[str]


def answers(jobs: Sequence[Job]) -> Answers:
    """Totals, reasons, owners, smaller cards, trend and order of the jobs. Raises VramwiseError without DuckDB."""
    duckdb = _imported("duckdb")
    settings = {"enable_external_access": "false", "memory_limit": DUCKDB_MEMORY, "threads": "2"}
    with duckdb.connect(":memory:", config=settings) as connection:
        in_one_order = sorted(jobs, key=lambda job: job.id)  # sums of fractions hang on it
        connection.register("jobs", _arrow_table(in_one_order, {}))

        def rows(query: str) -> list[dict[str, Any]]:
            done = connection.execute(query)
            names = [column[0] for column in done.description]
            return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

        ids = [row["id"] for row in rows(WORST)]
        return Answers(rows(TOTALS)[0], rows(BY_REASON), rows(BY_OWNER), rows(SMALLER), rows(DAYS), ids)


def write_parquet(path: str, jobs: Sequence[Job], about: Mapping[str, object]) -> None:
    """The table as a file, whole or not at all. Raises SourceError."""
    out = BytesIO()
    _imported("pyarrow.parquet").write_table(_arrow_table(jobs, about), out)
    write_file(path, out.getvalue())


def read_parquet(path: str) -> tuple[list[Job], dict[str, object]]:
    """The jobs of a kept table and what it is about. Raises SourceError for what is none, or of another version."""
    arrow, parquet = _imported("pyarrow"), _imported("pyarrow.parquet")
    content = read_at_most(path, LARGEST_TABLE + 1)
    where = shown_path(path)
    if len(content) > LARGEST_TABLE:
        raise SourceError(f"{where}: larger than {LARGEST_TABLE // MIB} MiB, which is no table of jobs")
    try:
        file = parquet.ParquetFile(arrow.BufferReader(content))
        groups = (file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if sum(groups) > LARGEST_TABLE or file.metadata.num_rows > MOST_JOBS:
            raise ValueError("too large")
        table = file.read()
        metadata = table.schema.metadata or {}
        rows = table.to_pylist() if SCHEMA_KEY in metadata else []
        about = json.loads(metadata.get(ABOUT_KEY, b"{}"))
    except (arrow.ArrowException, OSError, ValueError, RecursionError):
        raise SourceError(f"{where}: is no table that vramwise fleet -o wrote") from None
    version = metadata.get(SCHEMA_KEY)
    if version != str(SCHEMA).encode():
        was = "no version" if version is None else f"version {version[:20].decode('utf-8', 'replace')}"
        raise SourceError(f"{where}: its table of jobs has {was}, expected version {SCHEMA}")
    try:
        return [_job(row) for row in rows], dict(about)
    except (KeyError, TypeError, ValueError):
        raise SourceError(f"{where}: a row is damaged") from None


def as_csv(jobs: Sequence[Job]) -> str:
    """The table without its days; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for job in jobs:
        writer.writerow([_cell(getattr(job, name)) for name in COLUMNS])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        line = " ".join(value.split())
        return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line
    return "" if value is None else value


def _job(row: Mapping[str, Any]) -> Job:
    kinds: dict[str, type | tuple[type, ...]] = {TEXT: str, WHOLE: int, NUMBER: (int, float)}
    values: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        value = row[name]
        if value is not None and not isinstance(value, kinds[kind]):
            raise TypeError(name)
        values[name] = value
    days = tuple({name: float(day[name]) for name in DAY_COLUMNS} for day in row["days"])
    return Job(**values, days=days)


def _arrow_table(jobs: Sequence[Job], about: Mapping[str, object]) -> object:
    arrow = _imported("pyarrow")
    kinds = {TEXT: arrow.string(), WHOLE: arrow.int64(), NUMBER: arrow.float64()}
    day = arrow.list_(arrow.struct([(name, arrow.float64()) for name in DAY_COLUMNS]))
    metadata = {SCHEMA_KEY: str(SCHEMA).encode(), ABOUT_KEY: json.dumps(about, ensure_ascii=True).encode()}
    schema = arrow.schema([*((name, kinds[kind]) for name, kind in COLUMNS.items()), ("days", day)], metadata=metadata)
    return arrow.Table.from_pylist([job.to_dict() for job in jobs], schema=schema)


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise VramwiseError("fleets need DuckDB and pyarrow: pip install 'vramwise[scale]'") from None


def check_output(flag: str, path: str | None, ending: str) -> None:
    """Raises UsageError for a file whose name does not say what will be in it."""
    if path is not None and not path.endswith(ending):
        raise UsageError(f'{flag}: expected a name that ends with {ending}, got "{shown_path(path)}"')
