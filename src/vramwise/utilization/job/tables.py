"""The tables of a job in DuckDB: views over its Parquet parts, and collectives matched over the ranks that ran them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.utilization.job.folder import JobFolder, imported
from vramwise.utilization.job.parquet import ParquetFile
from vramwise.utilization.job.schema import TABLES, TEXT, WHOLE, YES_NO

SQL_TYPES: Final = {TEXT: "TEXT", WHOLE: "BIGINT", YES_NO: "BOOLEAN"}
MEMORY: Final = "1GB"
MOST_ROWS: Final = 100_000

RANKS: Final = """
CREATE TABLE ranks AS
WITH placed AS (
    SELECT *, coalesce(rank, (row_number() OVER (ORDER BY trace) - 1)::TEXT) AS stated FROM traces
), counted AS (SELECT *, row_number() OVER (PARTITION BY stated ORDER BY trace) AS turn FROM placed)
SELECT * EXCLUDE (rank, stated, turn),
       row_number() OVER (ORDER BY try_cast(stated AS BIGINT), stated, turn) - 1 AS place,
       CASE WHEN turn = 1 THEN stated ELSE stated || ' (' || trace || ')' END AS rank, turn > 1 AS again
FROM counted WHERE gpu_events > 0
"""
"""Traces with GPU events and the names of their ranks: the stated one, else the place; an equal one keeps its file."""

HOLDINGS: Final = """
CREATE TABLE holdings AS
SELECT ranks.place, dense_rank() OVER (ORDER BY "group", members, kind) AS like_id, held.*
FROM (SELECT trace, "group", members, kind, count(*) AS ran, max(group_size) AS group_size,
             bool_and(sequenced) AS sequenced, sum(duration_ns)::BIGINT AS total_ns,
             sum(exposed_ns)::BIGINT AS exposed_ns
      FROM collectives GROUP BY trace, "group", members, kind) AS held
     JOIN (FROM ranks WHERE NOT again) AS ranks USING (trace)
"""
"""What each rank ran of the collectives of one group and kind; a second trace of a rank would be one too many."""

LIKES: Final = """
CREATE TABLE likes AS
SELECT like_id, "group", members, kind, max(group_size) AS group_size, count(*) AS holders,
       count(DISTINCT ran) = 1 AS even, bool_and(sequenced) AS sequenced
FROM holdings GROUP BY like_id, "group", members, kind
"""
"""Collectives of one group and kind. `even`: each of its ranks ran them equally often, so that their order counts."""

CALLS: Final = """
CREATE VIEW calls AS
SELECT place, like_id, step, collectives.duration_ns, collectives.exposed_ns, bytes,
       row_number() OVER (PARTITION BY place, like_id ORDER BY start_ns) - 1 AS number
FROM collectives JOIN (FROM holdings SEMI JOIN (FROM likes WHERE even) USING (like_id)) AS holdings
     USING (trace, "group", members, kind)
"""
SEQUENCED_CALLS: Final = """
CREATE VIEW calls AS
SELECT place, like_id, step, collectives.duration_ns, collectives.exposed_ns, bytes, number
FROM collectives JOIN holdings USING (trace, "group", members, kind)
"""

MATCHED: Final = """
CREATE TABLE matched AS
SELECT found.* FROM (
    SELECT like_id, number, min(duration_ns) AS shortest_ns, max(duration_ns) AS longest_ns, count(*) AS holders,
           max(bytes) AS bytes
    FROM calls GROUP BY like_id, number) AS found JOIN likes USING (like_id)
WHERE found.holders BETWEEN 2 AND coalesce(likes.group_size, (SELECT count(*) FROM ranks WHERE NOT again))
  AND (likes."group" <> '' OR found.holders = (SELECT count(*) FROM ranks WHERE NOT again))
"""
"""Each collective that at least two ranks ran. The shortest duration is the transfer: who came last is in it shortest.
More ranks than its group has: two groups of one name. One of no named group counts where every rank ran it."""

WAITS: Final = """
CREATE TABLE waits AS
SELECT place, like_id, count(*) AS calls, sum(duration_ns)::BIGINT AS total_ns,
       sum(duration_ns - shortest_ns)::BIGINT AS waiting_ns,
       sum(least(exposed_ns, duration_ns - shortest_ns))::BIGINT AS exposed_waiting_ns,
       sum(exposed_ns - least(exposed_ns, duration_ns - shortest_ns))::BIGINT AS exposed_transfer_ns
FROM calls JOIN matched USING (like_id, number) GROUP BY place, like_id
"""
"""What each rank spent in matched collectives, waiting for who came later, and how much ran under no compute."""


AS_WRITTEN: Final = "SET disabled_optimizers = 'join_order,build_side_probe_side'"
"""The right side of a join is looked up, the left one read through. DuckDB guesses the rows of a job's Parquet files,
now and then so that it puts the millions of calls into a hash table, which took six times as long (DuckDB 2.0)."""


class Tables:
    """A connection with the tables of TABLES, and `ranks`, `holdings`, `likes`, `calls`, `matched`, `waits`."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def match(self) -> None:
        """Make what follows from the parts, and let nothing be set any more."""
        for query in (AS_WRITTEN, RANKS, HOLDINGS, LIKES):
            self.connection.execute(query)
        sequenced = self.rows("SELECT coalesce(bool_and(sequenced), true) AS all_of_them FROM likes")[0]["all_of_them"]
        for query in (SEQUENCED_CALLS if sequenced else CALLS, MATCHED, WAITS):
            self.connection.execute(query)
        for setting in ("SET disabled_optimizers = ''", "SET lock_configuration = true"):
            self.connection.execute(setting)

    def lacking(self) -> str:
        """A column of times that lacks one, which no part that was written whole does; else nothing."""
        for table in ("traces", "steps"):
            names = [name for name in TABLES[table] if name.endswith("_ns") or name == "step"]
            counts = ", ".join(f"count(*) - count({name}) AS {name}" for name in names)
            (found,) = self.rows(f"SELECT {counts} FROM {table}")
            for name in names:
                if found[name]:
                    return f"{table}.{name}"
        return ""

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a query by the names of its columns."""
        done = self.connection.execute(query, list(values))
        names = [column[0] for column in done.description]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def asked(self, query: str) -> tuple[list[str], list[tuple[object, ...]]]:
        """The columns and rows of a person's query, which may only read.

        Raises UsageError for a query that is no single SELECT, that fails, or that answers with too many
        rows.
        """
        duckdb = imported("duckdb")
        try:
            statements = self.connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError("--sql: expected one SELECT")
            done = self.connection.execute(statements[0])
            found = done.fetchmany(MOST_ROWS + 1)
        except duckdb.Error as problem:
            raise UsageError(f"--sql: {clipped(str(problem).splitlines()[0], 300)}") from None
        if len(found) > MOST_ROWS:
            raise UsageError(f"--sql: more than {MOST_ROWS:,} rows: aggregate them, or add a LIMIT")
        return [column[0] for column in done.description], found


@contextmanager
def tables_of(folder: JobFolder) -> Iterator[Tables]:
    """The tables of a job's folder, of which nothing else on this machine can be reached. Raises SourceError."""
    folder.check()
    duckdb = imported("duckdb")
    where = os.path.abspath(folder.parts)
    if not any(folder.parts.iterdir()):
        raise SourceError(f"{clipped(str(folder.path), 200)}: no trace was read into this folder yet")
    with _connected(allowed=where) as connection:
        try:
            for table in TABLES:
                path = str(Path(where, "*", f"{table}.parquet")).replace("'", "''")
                connection.execute(f"CREATE VIEW {table} AS SELECT {_typed(table)} FROM read_parquet('{path}')")
            tables = Tables(connection)
            tables.match()
            if lacking := tables.lacking():
                raise SourceError(f"{clipped(str(folder.path), 200)}: damaged tables ({lacking} without a value)")
            yield tables
        except duckdb.Error as problem:
            why = clipped(str(problem).splitlines()[0], 200)
            raise SourceError(f"{clipped(str(folder.path), 200)}: damaged tables ({why})") from None


def _typed(table: str) -> str:
    """The columns of a table with their types, whatever types they are given in."""
    return ", ".join(f'"{name}"::{SQL_TYPES[kind]} AS "{name}"' for name, kind in TABLES[table].items())


@contextmanager
def tables_at_once(parts: Mapping[str, ParquetFile]) -> Iterator[Tables]:
    """The same of tables that were just made; what is not given is empty."""
    with TemporaryDirectory(prefix="vramwise-job-") as folder, _connected(allowed=folder) as connection:
        for table, kinds in TABLES.items():
            path = Path(folder, f"{table}.parquet")
            path.write_bytes((parts.get(table) or ParquetFile(kinds)).content())
            written = str(path).replace("'", "''")
            connection.execute(f"CREATE VIEW {table} AS SELECT {_typed(table)} FROM read_parquet('{written}')")
        tables = Tables(connection)
        tables.match()
        yield tables


@contextmanager
def _connected(allowed: str | None) -> Iterator[Any]:
    duckdb = imported("duckdb")
    with TemporaryDirectory(prefix="vramwise-job-") as spill:
        settings = {"memory_limit": MEMORY, "threads": str(min(4, os.cpu_count() or 1)), "temp_directory": spill}
        with duckdb.connect(":memory:", config=settings) as connection:
            if allowed is not None:
                connection.execute("SET allowed_directories = [?]", [allowed])
            connection.execute("SET enable_external_access = false")
            connection.execute(
                "SET enable_progress_bar = false"
            )  # of a long query; it would stand in what --json prints
            yield connection
