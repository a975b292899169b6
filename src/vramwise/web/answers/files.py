"""What lies in a file: a log, a message, a snapshot, a trace, a tool's configuration, a model's header.

A body holds a file as `text`, as `base64`, or as `path` where the process may look there; `name` is what it is called.
Of a GGUF file its beginning is enough, with the `size` of the whole.
"""

from __future__ import annotations

import base64
import os
import sys
from array import array
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from vramwise.errors import SourceError, UsageError, VramwiseError, printable
from vramwise.files import read_at_most, shown_path
from vramwise.units import MIB
from vramwise.web.answers.given import given_file, named
from vramwise.web.bodies import Body, only, scenario_in, switch_in, table_in, whole_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramwise.interop.launch import Launch
    from vramwise.measure import Diagnosis, Snapshot
    from vramwise.scenario import Scenario
    from vramwise.utilization.profiler.recording import Recording

FILE = ("name", "text", "base64", "path")
LARGEST_BYTES = 256 << 20
MOST_TOP = 1000
_PROBE = 4096
_GGUF, _GZIP, _ZIP, _SQLITE = b"GGUF", b"\x1f\x8b", b"PK\x03\x04", b"SQLite format 3\0"
_OTHER_TRACES = (".xplane.pb", ".et")
"""Traces of JAX and of Chakra, which begin with nothing of their own."""
_SCENARIO_FILES = (".toml", ".yaml", ".yml", ".json")


def read(body: Body) -> dict[str, Any]:
    """`{"name", "text" | "base64" | "path", "scenario"}`: `{"kind", "report"}`, what the command for it prints.

    Kinds: `oom`, `snapshot`, `log`, `trace`, `config`, `command`, `scenario`, `model`, `result`.
    """
    only(body, *FILE, "size", "scenario", "gpu")
    with given_file(body) as path:
        return named(_read(path, body), path, body)


def oom(body: Body) -> dict[str, Any]:
    """A log, traceback, message or snapshot, `scenario` of what ran, `top`: what `vramwise oom --json` prints."""
    only(body, *FILE, "scenario", "top")
    with given_file(body) as path:
        found = _diagnosed(path)[0]
    return _failures(found, body, whole_in(body, "top", 10, most=MOST_TOP))


def compare(body: Body) -> dict[str, Any]:
    """An engine's start-up log, `scenario` keys over what it says: what `vramwise compare LOG --json` prints."""
    from vramwise.interop.logs import compare_log

    only(body, *FILE, "scenario")
    over = table_in(body, "scenario") if body.get("scenario") is not None else {}
    with given_file(body) as path:
        return named(compare_log(path, over).to_dict(), path, body)


def profile(body: Body) -> dict[str, Any]:
    """A profiler trace, `top`, `partial`: what `vramwise profile --json` prints."""
    from vramwise.utilization.profiler.collect import read_trace
    from vramwise.utilization.profiler.files import trace_files

    only(body, *FILE, "top", "partial")
    top, partial = whole_in(body, "top", 10, most=MOST_TOP), switch_in(body, "partial", False)
    _without_threads()
    with given_file(body) as path:
        recordings = [read_trace(one, partial=partial) for one in trace_files([path])]
        return named(_profiled(recordings, top), path, body)


# -- which kind it is -----------------------------------------------------------------------------------------


def _read(path: str, body: Body) -> dict[str, Any]:
    from vramwise.measure.plain_pickle import looks_like_pickle

    start = read_at_most(path, _PROBE)
    suffix = PurePath(path).suffix.lower()
    if start.startswith(_GGUF) and body.get("size") is not None:
        return _model_by_its_head(path, whole_in(body, "size", 0))
    if start.startswith(_GGUF) or suffix in (".gguf", ".safetensors"):
        return _model(path)
    if looks_like_pickle(start) and not start.startswith((_GZIP, _ZIP)):
        found, snapshot = _diagnosed(path)
        return {"kind": "snapshot", "report": _failures(found, body, 10), "timelines": list(_lives(snapshot))}
    packed = start.startswith((_GZIP, _ZIP, _SQLITE)) or path.endswith(_OTHER_TRACES)
    if packed or b'"traceEvents"' in start or _is_trace(path, suffix):
        return _trace(path)
    table = _table(path) if suffix in _SCENARIO_FILES else None
    if table is not None and (said := _of_table(table)) is not None:
        return said
    from vramwise.interop.files.kinds import tools_kind

    if table is not None and tools_kind(path) is None and (said := _of_model(table)) is not None:
        return said
    return _of_text(path, body)


def _of_table(table: Mapping[str, object]) -> dict[str, object] | None:
    """A scenario or a result of ours; None for another's table."""
    if table.get("schema") == 1 and "quantities" in table:
        return {"kind": "result", "report": dict(table)}
    if "model" in table and "task" in table:
        from vramwise.web.answers.estimates import estimate
        from vramwise.web.answers.sharing import stated
        from vramwise.web.bodies import scenario_in as scenario_of

        scenario = scenario_of({"scenario": table})
        return {"kind": "scenario", "scenario": stated(scenario), "report": estimate(stated(scenario))}
    return None


def _of_model(table: Mapping[str, object]) -> dict[str, object] | None:
    """A config.json, where no tool's file says which class of model it trains."""
    if "model_type" in table or "architectures" in table:
        return {"kind": "model", "model": dict(table), "report": _loaded(dict(table))}
    return None


def _of_text(path: str, body: Body) -> dict[str, object]:
    """A tool's file, an engine's log, a message; raises UsageError for none of them."""
    from vramwise.interop.files.kinds import COMMAND, tools_kind

    kind_of_tool = tools_kind(path)
    if kind_of_tool is not None and kind_of_tool is not COMMAND:
        return _config(path, body)
    why: list[str] = []
    for kind, look in (("oom", _message), ("log", _log)):
        try:
            told = look(path, body)
        except SourceError:
            raise
        except VramwiseError as problem:
            why.append(f"{kind}: {problem}")
        else:
            if told is not None:
                return {"kind": kind, "report": told}
    if kind_of_tool is COMMAND:
        return _command(path, body)
    if (killed := _message(path, body, kills=True)) is not None:
        return {"kind": "oom", "report": killed}
    expected = (
        "an engine's log, an out-of-memory message, a memory snapshot, a profiler trace, a command line, a tool's "
        "configuration, a scenario, a config.json or a GGUF file"
    )
    raise UsageError(
        f"{shown_path(PurePath(path).name)}: nothing known here: expected {expected} ({'; '.join(why) or 'none'})"
    )


def _message(path: str, body: Body, *, kills: bool = False) -> dict[str, object] | None:
    """What ran out of memory; with `kills` also what tells of an end alone, as no engine's log may."""
    from vramwise.measure.messages import failures_in, messages_in

    text = read_at_most(path, LARGEST_BYTES).decode("utf-8", "replace")
    if not (failures_in if kills else messages_in)(text):
        return None
    return _failures(_diagnosed(path)[0], body, 10)


def _log(path: str, body: Body) -> dict[str, object]:
    from vramwise.interop.logs import compare_log

    found = compare_log(path, {})
    if found.result.capacity is None and isinstance(body.get("gpu"), str):  # the log does not say on which card
        found = compare_log(path, {"gpu": body["gpu"]})
    return found.to_dict()


def _config(path: str, body: Body) -> dict[str, Any]:
    """The programs that a tool's file describes, each with its scenario, its notes and its answer."""
    return {"kind": "config", "programs": _programs(path, body, _FILE_ELSEWHERE)}


def _command(path: str, body: Body) -> dict[str, object]:
    """What the programs would be that a pasted command line starts."""
    return {"kind": "command", "programs": _programs(path, body, _COMMAND_ELSEWHERE)}


_COMMAND_ELSEWHERE = (
    "the command names a file that is not here: give the file itself, or ask vramwise estimate -- COMMAND where it lies"
)
_FILE_ELSEWHERE = "it names a file that is not here: ask vramwise estimate FILE where both lie"
_NOT_HERE = ("No such file or directory", "Permission denied")


def _programs(path: str, body: Body, elsewhere: str) -> list[dict[str, object]]:
    """Raises SourceError where a further file is asked for, which lies where the person is."""
    from vramwise.interop.files.launches import read_files

    try:
        return [_program(one.name, one.launch, body) for one in read_files([path])]
    except SourceError as problem:
        if not any(said in str(problem) for said in _NOT_HERE):
            raise
        raise SourceError(f"{elsewhere} ({problem})") from None


def _program(name: str, launch: Launch, body: Body) -> dict[str, object]:
    from vramwise.estimation import estimate
    from vramwise.scenario import Scenario
    from vramwise.web.answers.sharing import stated

    card = {"gpu": body["gpu"]} if isinstance(body.get("gpu"), str) else {}
    scenario = Scenario.from_dict({**card, **launch.scenario})
    result = estimate(scenario.replace(notes=(*scenario.notes, *launch.notes)))
    return {
        "name": name, "scenario": stated(scenario), "notes": [printable(note) for note in launch.notes],
        "report": result.to_dict(suggestions=result.verdict is not None),
    }  # fmt: skip


def _model(path: str) -> dict[str, Any]:
    """What a file's header says of its model: a table that a scenario takes, and what its weights take."""
    from vramwise.sources import resolve

    found = resolve(path)
    return {"kind": "model", "model": dict(found.config) or found.id, "report": _loaded(path)}


def _model_by_its_head(path: str, size: int) -> dict[str, object]:
    from vramwise.sources.described import gguf_model
    from vramwise.sources.repository import Beginning

    folder, name = os.path.split(path)
    table = dict(gguf_model(Beginning(folder, size), name).config)
    return {"kind": "model", "model": table, "report": _loaded(table)}


def _loaded(model: str | dict[str, object]) -> dict[str, object]:
    from vramwise.estimation import estimate

    return estimate({"model": model, "task": "load"}).to_dict()


def _trace(path: str) -> dict[str, object]:
    """A trace's figures, its strips as a picture, and its memory events."""
    from vramwise.utilization.profiler.files import trace_files
    from vramwise.utilization.profiler.memory_points import read_with_memory
    from vramwise.utilization.profiler.picture import picture

    _without_threads()
    read = [read_with_memory(one) for one in trace_files([path])]
    recordings = [recording for recording, _ in read]
    report = _profiled(recordings, 10)
    timelines = [
        {"device": one.device, "cut": one.cut, "events": len(one.time_ns), "time_ns": _packed(one.time_ns),
         "allocated": _packed(one.allocated), "reserved": _packed(one.reserved)}
        for _, points in read for one in points
    ]  # fmt: skip
    return {"kind": "trace", "report": report, "picture": picture(recordings, report), "timelines": timelines}


# -- reports --------------------------------------------------------------------------------------------------


def _profiled(recordings: Sequence[Recording], top: int) -> dict[str, object]:
    from vramwise.cli.profile_job import job_of
    from vramwise.utilization.profiler.analysis import analyse

    return {**analyse(recordings, top=top), "job": job_of(recordings) if len(recordings) > 1 else None}


def _without_threads() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts threads for linear algebra; none is done here


def _diagnosed(path: str) -> tuple[list[Diagnosis], Snapshot | None]:
    from vramwise.measure import diagnose_snapshot, diagnose_text, snapshot_from_pickle
    from vramwise.measure.messages import LONGEST_TEXT
    from vramwise.measure.plain_pickle import LARGEST_FILE_BYTES, looks_like_pickle

    start = read_at_most(path, LONGEST_TEXT + 1)
    if not looks_like_pickle(start):
        return diagnose_text(start.decode("utf-8", "replace")), None
    snapshot = snapshot_from_pickle(read_at_most(path, LARGEST_FILE_BYTES + 1))
    return diagnose_snapshot(snapshot), snapshot


def _failures(found: Sequence[Diagnosis], body: Body, top: int) -> dict[str, object]:
    from vramwise.cli.oom import changes_of, failure_table

    report: dict[str, object] = {"failures": [failure_table(one, top) for one in found]}
    if body.get("scenario") is not None:
        scenario: Scenario = scenario_in(body)
        report["estimated"] = [one.to_dict() for one in changes_of(scenario, found)]
    return report


def _lives(snapshot: Snapshot | None) -> Iterator[dict[str, object]]:
    """Allocated and reserved bytes after each event of a snapshot's history, by device."""
    from vramwise.measure import timeline_of

    for device in snapshot.devices if snapshot is not None else ():
        window = timeline_of(snapshot, device) if snapshot is not None else None
        if window is not None and window.events:
            yield {
                "device": f"GPU {device}", "cut": False, "events": window.events,
                "allocated": _packed(array("q", window.live)), "reserved": _packed(array("q", window.reserved)),
            }  # fmt: skip


def _packed(column: array[int]) -> str:
    """A column as base64 of little-endian float64, which a page reads as a Float64Array."""
    numbers = array("d", column)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def _table(path: str) -> Mapping[str, Any] | None:
    from vramwise.scenario import read_table_file

    try:
        return read_table_file(path)
    except VramwiseError:
        return None


def _is_trace(path: str, suffix: str) -> bool:
    """Whether JSON holds a profiler's events further on than its start."""
    if suffix != ".json":
        return False
    with open(path, "rb") as file:
        before = b""
        while chunk := file.read(MIB):
            if b'"traceEvents"' in before + chunk:
                return True
            before = chunk[-16:]
    return False
