"""The file of a site: TOML that people can read, written whole, by one process at a time.

It holds no host name, no user and no path; numbers are those of counters. A file that is too large, broken or somebody
else's is refused in one line that says how to go on without it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.files import read_at_most, shown_path, write_file
from vramwise.records import replace
from vramwise.site.run import TERMS, Run, Site, Term
from vramwise.units import MIB, format_bytes

SCHEMA: Final = 1
MOST_BYTES: Final = 4 * MIB
MOST_RUNS: Final = 2_000
MOST_RANKS: Final = 1_000_000
LOCKED_FOR_S: Final = 10.0
"""A lock that is older was left behind: writing takes milliseconds."""
_HEAD = """\
# What runs on these machines showed, for vramwise's estimates: `vramwise calibrate` shows, prunes and exports it.
# Each run has the terms that its counters determined, in bytes or as a ratio, with half a unit of their last digit.
schema = 1
"""
_PLAIN = re.compile(r"[\w.+ :/-]{0,120}")
_read: dict[str, tuple[tuple[int, int, int], Site]] = {}


def read_site(path: str, seen: os.stat_result | None = None) -> Site:
    """The site of a file; one that did not change since it was last read is not read again.

    Raises SourceError where it cannot be read, UsageError where it is no site file of this version.
    """
    key = None if seen is None else (seen.st_ino, seen.st_mtime_ns, seen.st_size)
    known = _read.get(path)
    if known is not None and known[0] == key:
        return known[1]
    site = _site_of(path, read_at_most(path, MOST_BYTES + 1))
    if key is not None:
        _read[path] = key, site
    return site


def site_to_write(path: str) -> Site:
    """The site of a file that is about to be written, empty where there is none yet. Raises as `read_site`."""
    return read_site(path) if os.path.lexists(path) else Site(_shown(path))


def add_runs(path: str, runs: Sequence[Run]) -> Site:
    """Add runs to a file, which is made where it is not there; a run that it has already stands there once.

    Raises as `read_site`, and SourceError where it cannot be written.
    """

    today = time.strftime("%Y-%m-%d", time.gmtime())
    dated = [replace(run, date=run.date or today) for run in runs]

    def added(site: Site) -> tuple[Run, ...]:
        new = {run.id for run in runs}
        return (*(run for run in site.runs if run.id not in new), *dated)

    return change(path, added)


def change(path: str, how: Callable[[Site], tuple[Run, ...]]) -> Site:
    """Write the runs that `how` makes of those of the file, alone with it. Raises as `add_runs`.

    Raises SourceError and UsageError.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as problem:
        raise SourceError(f"{shown_path(path)}: cannot be written ({problem.strerror or problem})") from None
    with _locked(target):
        site = site_to_write(target)
        runs = how(site)
        if len(runs) > MOST_RUNS:
            raise UsageError(
                f"{shown_path(path)}: {len(runs):,} runs are more than {MOST_RUNS:,}: vramwise calibrate prune"
            )
        write_file(target, text_of(runs))
        _read.pop(path, None)
        return Site(_shown(path), runs)


def text_of(runs: Sequence[Run]) -> str:
    """The whole file."""
    return _HEAD + "".join(_run_text(run) for run in runs)


def _run_text(run: Run) -> str:
    lines = ["", "[[run]]", f"id = {_quoted(run.id)}", f"from = {_quoted(run.command)}"]
    lines += [f"{name} = {_quoted(text)}" for name, text in (
        ("date", run.date), ("gpu", run.gpu), ("driver", run.driver), ("cuda", run.cuda)) if text]  # fmt: skip
    lines += ["terms = [", *(f"  {_term_text(term)}," for term in run.terms), "]"]
    for name, table in (("scenario", run.scenario), ("measured", run.measured), ("precision", run.precision)):
        if table:
            lines.append(f"{name} = {_quoted(json.dumps(table, separators=(',', ':')))}")
    return "\n".join(lines) + "\n"


def _term_text(term: Term) -> str:
    pairs = [("name", _quoted(term.name)), ("program", _quoted(term.program)), ("version", _quoted(term.version))]
    pairs += [("of", _quoted(term.of))] if term.of else []
    pairs += [("ranks", str(term.ranks))] if term.ranks != 1 else []
    pairs += [("value", _number(term.value)), ("precision", _number(term.precision))]
    return "{ " + ", ".join(f"{name} = {value}" for name, value in pairs) + " }"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(round(float(value), 6))


def _quoted(text: str) -> str:
    """A TOML string: as it is between single quotes where it can be, else with JSON's escapes, which TOML shares."""
    if "'" not in text and text.isprintable():
        return f"'{text}'" if '"' in text or "\\" in text else f'"{text}"'
    return json.dumps(text).replace("\x7f", "\\u007f")


def _site_of(path: str, data: bytes) -> Site:
    import tomllib

    if len(data) > MOST_BYTES:
        raise _foreign(path, f"it is larger than {format_bytes(MOST_BYTES, 'MiB', 0)}")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise _foreign(path, f"no TOML: {clipped(str(problem), 120)}") from None
    schema = table.get("schema")
    if type(schema) is not int or not isinstance(table.get("run", []), list):
        raise _foreign(path, "it has no runs of vramwise")
    if schema > SCHEMA:
        raise _foreign(path, f"it was written by a newer vramwise (schema {schema}, this one reads {SCHEMA})")
    try:
        runs = tuple(_run_of(row) for row in table.get("run", []))
    except (KeyError, TypeError, ValueError, RecursionError) as problem:
        raise _foreign(path, f"a run is not whole ({type(problem).__name__}: {clipped(str(problem), 80)})") from None
    return Site(_shown(path), runs)


def _run_of(row: Mapping[str, Any]) -> Run:
    return Run(
        _plain(row["id"]), _plain(row["from"]), _plain(row["gpu"]), tuple(_term_of(term) for term in row["terms"]),
        _plain(row.get("date", "")), _plain(row.get("driver", "")), _plain(row.get("cuda", "")),
        *(_table(row, name) for name in ("scenario", "measured", "precision")),
    )  # fmt: skip


def _term_of(row: Mapping[str, Any]) -> Term:
    name = row["name"]
    if name not in TERMS:
        raise ValueError(f"unknown term {name}")
    value, precision, ranks = row["value"], row["precision"], row.get("ranks", 1)
    if any(type(one) not in (int, float) or not 0 <= one < 2**60 for one in (value, precision)):
        raise ValueError(f"the value of {name} is no size")
    if type(ranks) is not int or not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"the ranks of {name} are no number")
    return Term(
        name, _plain(row["program"]), _plain(row["version"]), value, precision, _plain(row.get("of", "")), ranks
    )  # fmt: skip


def _table(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = json.loads(row.get(name, "{}"))
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no table")
    return found


def _plain(text: object) -> str:
    if not isinstance(text, str) or not _PLAIN.fullmatch(text):
        raise ValueError(f"{clipped(str(text), 40)} is no name")
    return text


def _foreign(path: str, why: str) -> UsageError:
    return UsageError(f"{shown_path(path)} is no site file of vramwise: {why}; --no-site estimates without it")


def _shown(path: str) -> str:
    """The file's name without the user's."""
    home = os.path.expanduser("~")
    return shown_path(f"~{path[len(home) :]}" if path.startswith(home + os.sep) else path)


@contextmanager
def _locked(target: str) -> Iterator[None]:
    """The only writer of a file: whoever makes the lock file. One that was left behind is taken over."""
    lock = f"{target}.lock"
    begun = time.monotonic()
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            break
        except FileExistsError:
            _drop_old_lock(lock)
            if time.monotonic() - begun > 2 * LOCKED_FOR_S:
                raise SourceError(f"{shown_path(target)}: another process is writing it ({shown_path(lock)})") from None
            time.sleep(0.01)
        except OSError as problem:
            why = problem.strerror or problem
            raise SourceError(f"{shown_path(target)}: cannot be written ({why})") from None
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(lock)


def _drop_old_lock(lock: str) -> None:
    with suppress(OSError):
        if time.time() - os.stat(lock).st_mtime > LOCKED_FOR_S:
            os.unlink(lock)
