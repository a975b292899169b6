"""The tables of a job in DuckDB: views over its Parquet parts, and collectives matched over the ranks that ran them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.utilization.job.folder import JobFolder, arrow_table, imported
from vramwise.utilization.job.part import Rows
from vramwise.utilization.job.schema import TABLES

MEMORY: Final = "1GB"

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

LIKES: Final = """
CREATE TABLE likes AS
SELECT row_number() OVER (ORDER BY "group", members, kind) AS like_id, * FROM (
    SELECT "group", members, kind, max(group_size) AS group_size, count(*) AS holders,
           count(DISTINCT ran) = 1 AS even, bool_and(sequenced) AS sequenced
    FROM (SELECT "group", members, kind, trace, count(*) AS ran, max(group_size) AS group_size,
                 bool_and(sequenced) AS sequenced
          FROM collectives GROUP BY ALL)
    GROUP BY "group", members, kind)
"""
"""Collectives of one group and kind. `even`: each of its ranks ran them equally often, so that their order counts."""

CALLS: Final = """
CREATE VIEW calls AS
SELECT ranks.place, likes.like_id, collectives.step, collectives.duration_ns, collectives.exposed_ns, collectives.bytes,
       CASE WHEN (SELECT bool_and(sequenced) FROM likes) THEN number
            ELSE row_number() OVER (PARTITION BY ranks.place, likes.like_id ORDER BY start_ns) - 1 END AS number
FROM collectives JOIN ranks USING (trace) JOIN likes USING ("group", members, kind)
WHERE (SELECT bool_and(sequenced) FROM likes) OR likes.even
"""
SEQUENCED_CALLS: Final = """
CREATE VIEW calls AS
SELECT ranks.place, likes.like_id, step, duration_ns, exposed_ns, bytes, number
FROM collectives JOIN ranks USING (trace) JOIN likes USING ("group", members, kind)
"""

MATCHED: Final = """
CREATE TABLE matched AS
SELECT like_id, number, min(duration_ns) AS shortest_ns, max(duration_ns) AS longest_ns, count(*) AS holders,
       max(bytes) AS bytes
FROM calls JOIN likes USING (like_id) GROUP BY like_id, number, likes."group", likes.group_size
HAVING count(*) BETWEEN 2 AND coalesce(likes.group_size, (SELECT count(*) FROM ranks))
   AND (likes."group" <> '' OR count(*) = (SELECT count(*) FROM ranks))
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


class Tables:
    """A connection in which the tables of TABLES are there, and `ranks`, `likes`, `calls`, `matched`, `waits`."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def match(self) -> None:
        """Make what follows from the parts."""
        for query in (RANKS, LIKES):
            self.connection.execute(query)
        sequenced = self.rows("SELECT coalesce(bool_and(sequenced), true) AS all_of_them FROM likes")[0]["all_of_them"]
        for query in (SEQUENCED_CALLS if sequenced else CALLS, MATCHED, WAITS):
            self.connection.execute(query)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a query by the names of its columns."""
        done = self.connection.execute(query, list(values))
        names = [column[0] for column in done.description]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def asked(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns and rows of a person's query, which may only read. Raises UsageError."""
        duckdb = imported("duckdb")
        try:
            statements = self.connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError("--sql: expected one SELECT")
            done = self.connection.execute(statements[0])
            return [column[0] for column in done.description], done.fetchall()
        except duckdb.Error as problem:
            raise UsageError(f"--sql: {clipped(str(problem).splitlines()[0], 300)}") from None


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
            for table, columns in TABLES.items():
                names = ", ".join(f'"{name}"' for name in columns)
                path = str(Path(where, "*", f"{table}.parquet")).replace("'", "''")
                connection.execute(f"CREATE VIEW {table} AS SELECT {names} FROM read_parquet('{path}')")
            tables = Tables(connection)
            tables.match()
            yield tables
        except duckdb.Error as problem:
            why = clipped(str(problem).splitlines()[0], 200)
            raise SourceError(f"{clipped(str(folder.path), 200)}: damaged tables ({why})") from None


@contextmanager
def tables_in_memory(parts: Mapping[str, Rows]) -> Iterator[Tables]:
    """The same of rows that were just read."""
    with _connected(allowed=None) as connection:
        for table in TABLES:
            connection.register(table, arrow_table(table, parts[table]))
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
            connection.execute("SET lock_configuration = true")
            yield connection
