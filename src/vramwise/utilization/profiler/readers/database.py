"""A profiler's SQLite file, opened so that its schema can do nothing but be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vramwise.errors import SourceError, clipped
from vramwise.units import MIB

SQLITE_MAGIC = b"SQLite format 3\0"
MOST_TEXT_BYTES = 64 * MIB
"""Names of all kernels together."""
LONGEST_VALUE_BYTES = MIB
STEPS_A_BYTE, FREE_STEPS = 100, 20_000_000
"""Instructions of SQLite's machine that a file may cost: an honest row has tens of bytes and takes some 30 of them."""
HEADER_BYTES, LARGEST_PAGE = 100, 65536
STEPS_A_CHECK = 100_000
_PLAIN_NAME = re.compile(r"\w{1,200}")
_PLAIN_TABLE = re.compile(r"\s*create\s+table\b", re.IGNORECASE)


class Condition(NamedTuple):
    """`column >> shift = value`."""

    column: str
    value: int
    shift: int = 0


class Database:
    """Tables by name with their columns; views, virtual tables and triggers count as absent.

    Read only and without its journal; functions, generated columns that call them, and every statement but SELECT are
    refused by an authorizer; the work is bounded by the size of the file.
    """

    def __init__(self, path: Path) -> None:
        self.name = clipped(str(path), 200)
        try:
            import sqlite3
        except ImportError:  # as in a browser
            raise SourceError(f"{self.name}: read with SQLite, which is not here: vramwise profile reads it") from None
        self._steps = STEPS_A_BYTE * path.stat().st_size + FREE_STEPS
        self._damaged = sqlite3.Error
        self._refuse_truncated(path)
        try:
            address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(address, uri=True, check_same_thread=False)
            self._secure()
            self.tables = self._schema()
        except sqlite3.Error as error:
            raise self._refusal(error) from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def rows(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> Iterator[tuple[Any, ...]]:
        """These columns of a table, None for a column that it lacks; nothing where there is no such table.

        Conditions on columns that are not there count as met.
        """
        known = self.tables.get(table)
        if known is None:
            return
        chosen = ", ".join(f'"{column}"' if column in known else "NULL" for column in columns)
        conditions = [one for one in where if one.column in known]
        kept = " AND ".join(f'"{one.column}" >> {one.shift} = ?' for one in conditions) or "1"
        yield from self._select(f'SELECT {chosen} FROM "{table}" WHERE {kept}', [one.value for one in conditions])

    def distinct(self, table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
        """The different values of these columns; none where the table or one of them is not there."""
        if not set(columns) <= set(self.tables.get(table, ())):
            return []
        chosen = ", ".join(f'"{column}"' for column in columns)
        return list(self._select(f'SELECT DISTINCT {chosen} FROM "{table}" LIMIT 4097', ()))

    def texts(self, table: str, column: str) -> dict[int, str]:
        """The texts of a table by their `id`, all of them, bounded. Raises SourceError."""
        found: dict[int, str] = {}
        size = 0
        for number, text in self.rows(table, ("id", column)):
            if isinstance(number, int) and isinstance(text, str):
                size += len(text) + 64
                if size > MOST_TEXT_BYTES:
                    raise SourceError(f"{self.name}: more than {MOST_TEXT_BYTES // MIB} MiB of names in {table}")
                found[number] = text
        return found

    def _select(self, text: str, values: Sequence[int]) -> Iterator[tuple[object, ...]]:
        try:
            yield from self._connection.execute(text, values)
        except self._damaged as error:
            raise self._refusal(error) from None

    def _secure(self) -> None:
        import sqlite3

        connection = self._connection
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE_BYTES),
            (sqlite3.SQLITE_LIMIT_COLUMN, 400),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 40),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        ):
            connection.setlimit(limit, value)
        for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {setting}")
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.set_progress_handler(self._count, STEPS_A_CHECK)

    def _refuse_truncated(self, path: Path) -> None:
        """SQLite reads a file that lacks its last pages until it needs one of them (fileformat2.html, 1.3)."""
        with open(path, "rb") as file:
            header = file.read(HEADER_BYTES)
        page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
        page = LARGEST_PAGE if page == 1 else page
        if len(header) < HEADER_BYTES or (header[24:28] == header[92:96] and pages * page > path.stat().st_size):
            raise SourceError(f"{self.name}: this SQLite file is cut off: export it anew")

    def _schema(self) -> dict[str, tuple[str, ...]]:
        import sqlite3

        tables = {}
        listed = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT 2000")
        for name, text in listed.fetchall():
            if isinstance(text, str) and _PLAIN_TABLE.match(text) and _PLAIN_NAME.fullmatch(name):
                described = self._connection.execute(f'PRAGMA table_info("{name}")').fetchall()
                tables[name] = tuple(row[1] for row in described if _PLAIN_NAME.fullmatch(row[1]))
        allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        self._connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY
        )
        return tables

    def _count(self) -> int:
        self._steps -= STEPS_A_CHECK
        return int(self._steps < 0)

    def _refusal(self, error: Exception) -> SourceError:
        return SourceError(f"{self.name}: this SQLite file cannot be read: {clipped(str(error), 120)}")
