"""The folder of a job: one part a trace, each there whole or not at all, and what could not be read beside them.

    job.json                      which schema, and which release wrote it
    parts/KEY/part.json           the trace: its path, size and time
    parts/KEY/TABLE.parquet       the tables of `schema.TABLES`
    failed/KEY.json               a trace that could not be read, and why

A part is written beside its place and renamed, so a process that dies or a full disk leaves nothing that is read later.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from vramwise import __version__
from vramwise.errors import SourceError, UsageError, VramwiseError, clipped
from vramwise.files import read_at_most, shown_path, write_file
from vramwise.units import MIB
from vramwise.utilization.job.schema import ABOUT, SCHEMA, is_job
from vramwise.utilization.profiler.remote import remote_stamp

LARGEST_ABOUT: Final = MIB
UNWRITTEN: Final = ".unwritten."
Stamp = dict[str, str | int]


def imported(name: str) -> Any:
    """A module of the extra `scale`. Raises VramwiseError in one sentence without it."""
    try:
        return import_module(name)
    except ImportError:
        raise VramwiseError("the tables of a job need DuckDB: pip install 'vramwise[scale]'") from None


class JobFolder:
    """A folder of parts. Raises UsageError for one that holds something else, SourceError for another schema's."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.parts, self.failed = self.path / "parts", self.path / "failed"

    def begin(self) -> None:
        """Make it where it is not there yet."""
        try:
            if self.path.exists() and not is_job(self.path) and not self._is_begun():
                raise UsageError(f"-o {shown_path(str(self.path))}: expected a new folder, an empty one or a job's")
            if is_job(self.path):
                self.check()
            self.parts.mkdir(parents=True, exist_ok=True)
            if not is_job(self.path):
                new = self.path / f".{ABOUT}.{platform.node()}.{os.getpid()}"  # another machine's may be at it too
                new.write_text(json.dumps({"schema": SCHEMA, "vramwise": __version__}) + "\n", "utf-8")
                new.replace(self.path / ABOUT)
        except OSError as problem:
            raise _unwritable(self.path, problem) from None

    def _is_begun(self) -> bool:
        """Whether it is empty, or another share of the work is making it at this moment."""
        return self.path.is_dir() and all(
            each.name == "parts" or each.name.startswith((f".{ABOUT}.", UNWRITTEN)) for each in self.path.iterdir()
        )

    def check(self) -> None:
        """Raises SourceError for a folder of another schema, or for none."""
        about = _document(self.path / ABOUT)
        if about.get("schema") != SCHEMA:
            was = clipped(str(about.get("schema")), 20)
            raise SourceError(
                f"{shown_path(str(self.path))}: its tables have schema {was}, expected {SCHEMA}: read the traces again"
            )

    def has(self, trace: str) -> bool:
        """Whether the part of this trace is there, of the file as it is now."""
        with suppress(SourceError, OSError):
            return _document(self.parts / key_of(trace) / "part.json") == stamp_of(trace)
        return False

    def write(self, stamp: Stamp, tables: Mapping[str, bytes]) -> None:
        """The part of one trace. Raises SourceError, with nothing half-written."""
        key = key_of(str(stamp["trace"]))
        unwritten = self.path / f"{UNWRITTEN}{key}.{platform.node()}.{os.getpid()}"
        try:
            unwritten.mkdir(exist_ok=True)
            for table, content in tables.items():
                (unwritten / f"{table}.parquet").write_bytes(content)
            (unwritten / "part.json").write_text(json.dumps(stamp), "utf-8")
            shutil.rmtree(self.parts / key, ignore_errors=True)
            unwritten.rename(self.parts / key)
            (self.failed / f"{key}.json").unlink(missing_ok=True)
        except OSError as problem:
            raise _unwritable(self.path, problem) from None
        finally:
            shutil.rmtree(unwritten, ignore_errors=True)

    def fail(self, trace: str, why: str) -> None:
        """Keep that a trace could not be read; a part of the file as it was is gone then."""
        try:
            self.failed.mkdir(exist_ok=True)
            write_file(self.failed / f"{key_of(trace)}.json", json.dumps({"trace": trace, "why": why}) + "\n")
        except OSError as problem:
            raise _unwritable(self.path, problem) from None
        shutil.rmtree(self.parts / key_of(trace), ignore_errors=True)

    def end(self) -> None:
        """Remove what processes of this machine left behind that are no more."""
        with suppress(OSError):
            for each in self.path.glob(f"{UNWRITTEN}*"):
                *_, process = each.name.rpartition(f".{platform.node()}.")
                if process.isdecimal() and each.name != process and not _is_alive(int(process)):
                    shutil.rmtree(each, ignore_errors=True)

    def failures(self) -> dict[str, str]:
        """The traces that could not be read, and why."""
        return {str(each.get("trace")): clipped(str(each.get("why")), 300) for each in self._failures()}

    def _failures(self) -> Iterator[dict[str, object]]:
        if self.failed.is_dir():
            for file in sorted(self.failed.glob("*.json")):
                yield _document(file)


def whole_path(trace: str) -> str:
    """The path of a trace from anywhere."""
    return trace if "://" in trace else os.path.abspath(trace)


def key_of(trace: str) -> str:
    """A name for a trace's part: its own, safe in any file system, and a hash of where it is."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", os.path.basename(trace))[:60].lstrip(".")
    return f"{name}-{hashlib.sha256(whole_path(trace).encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def stamp_of(trace: str) -> Stamp:
    """What tells whether a trace is still the file that was read. Raises OSError, SourceError."""
    if "://" in trace:
        size, changed = remote_stamp(trace)
        return {"schema": SCHEMA, "trace": trace, "bytes": size, "changed": changed}
    found = os.stat(trace)
    return {"schema": SCHEMA, "trace": whole_path(trace), "bytes": found.st_size, "changed_ns": found.st_mtime_ns}


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as problem:
        return not isinstance(problem, ProcessLookupError)
    return True


def _document(path: Path) -> dict[str, object]:
    try:
        value = json.loads(read_at_most(path, LARGEST_ABOUT))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise SourceError(f"{shown_path(str(path))}: is no JSON object")
    return value


def _unwritable(path: Path, problem: OSError) -> SourceError:
    return SourceError(f"{shown_path(str(path))}: cannot be written ({problem.strerror or problem})")
