"""`vramwise oom FILE|-`: a log, a traceback or a memory snapshot to the cause and the two smallest changes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.files import open_to_read, shown_path, write_file

if TYPE_CHECKING:
    from vramwise.measure import Diagnosis, Snapshot
    from vramwise.planner import Suggestion
    from vramwise.scenario import Scenario

_LONGEST_NAME = 4096
HELP = "why a run went out of memory, from its log, traceback or memory snapshot"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="log, traceback, snapshot pickle or the message itself; - is stdin"
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="a snapshot's timeline as a picture")
    parser.add_argument("--device", metavar="N", help="the device of --plot (default: the first in the snapshot)")
    parser.add_argument("--scenario", metavar="FILE", help="the scenario that ran: changes are then full estimates")
    parser.add_argument("--top", metavar="N", default="10", help="lines of the table of the largest blocks")
    parser.add_argument("--json", action="store_true", help="print the diagnoses as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print what happened; 0 also where nothing failed in a snapshot.

    Raises UsageError where a text has no events to draw.
    """
    from vramwise.measure import diagnose_snapshot, diagnose_text, snapshot_from_pickle
    from vramwise.measure.plain_pickle import looks_like_pickle

    top = _count(args.top, "--top")
    data = _read(args.file)
    snapshot = snapshot_from_pickle(data) if looks_like_pickle(data) else None
    if snapshot is None and args.plot:
        raise UsageError("--plot needs a memory snapshot (torch.cuda.memory._dump_snapshot), got a text")
    found = diagnose_snapshot(snapshot) if snapshot else diagnose_text(data.decode("utf-8", "replace"))
    estimated = _estimated(args.scenario, found)
    if args.plot and snapshot:
        _plot(snapshot, args.plot, args.device)
    if args.json:
        changed = {} if estimated is None else {"estimated": [one.to_dict() for one in estimated]}
        json.dump({"failures": [failure_table(item, top) for item in found], **changed}, sys.stdout)
        print()
    else:
        from vramwise.cli.screens.oom import oom_screen
        from vramwise.cli.screens.paint import show

        show(oom_screen(found, estimated, top))
    return 0


def _read(name: str) -> bytes:
    """A file's content, or a message that was given itself. Only a snapshot may be longer than any log."""
    if name == "-":
        return _content(sys.stdin.buffer)
    if _is_message(name):
        return name.encode("utf-8", "replace")
    with open_to_read(name) as stream:
        try:
            return _content(stream)
        except OSError as error:
            raise SourceError(f"{shown_path(name)}: {error.strerror or error}") from None


def _is_message(given: str) -> bool:
    """Whether the argument is no name of a file but the message itself, which has blanks and words that no name has."""
    from vramwise.measure.messages import failures_in

    return " " in given and not os.path.lexists(given[:_LONGEST_NAME]) and bool(failures_in(given))


def _content(stream: BinaryIO) -> bytes:
    from vramwise.measure.messages import LONGEST_TEXT
    from vramwise.measure.plain_pickle import LARGEST_FILE_BYTES, looks_like_pickle

    start = stream.read(LONGEST_TEXT + 1)
    return start + stream.read(LARGEST_FILE_BYTES + 1 - len(start)) if looks_like_pickle(start) else start


def _count(text: str, flag: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise UsageError(f'{flag}: expected a whole number, got "{clipped(text, 20)}"')
    return int(text)


def _plot(snapshot: Snapshot, path: str, device: str | None) -> None:
    from vramwise.measure import timeline_of
    from vramwise.measure.plot import timeline_svg

    number = _count(device, "--device") if device is not None else snapshot.devices[0]
    if number not in snapshot.devices:
        raise UsageError(f"--device: the snapshot tells of {', '.join(map(str, snapshot.devices))}, not of {number}")
    picture = timeline_svg(timeline_of(snapshot, number), f"GPU {number}: memory by line of code")
    write_file(path, picture)


def _estimated(path: str | None, found: Sequence[Diagnosis]) -> list[Suggestion] | None:
    if path is None:
        return None
    from vramwise.scenario import read_scenario_file

    return changes_of(read_scenario_file(path), found)


def changes_of(scenario: Scenario, found: Sequence[Diagnosis]) -> list[Suggestion]:
    """Full estimates of the scenario that ran, changed: what makes it fit, else what saves most.

    The card of the message counts where the scenario names none.
    """
    from vramwise.estimation import estimate
    from vramwise.planner import suggestions

    room = max((item.total or 0 for item in found), default=0)
    if room and scenario.gpu is None and scenario.gpu_total_bytes is None:
        scenario = scenario.replace(gpu_total_bytes=room)
    return suggestions(scenario, estimate(scenario), estimate)


def failure_table(item: Diagnosis, top: int) -> dict[str, object]:
    """What JSON says of one failure, or of one device of a snapshot."""
    return {
        "program": item.program,
        "device": item.device,
        "memory": item.memory,
        "failed": item.is_failure,
        "probable": item.is_probable,
        "asked_bytes": item.asked,
        "free_bytes": item.free,
        "total_bytes": item.total,
        "allocated_bytes": item.allocated,
        "reserved_bytes": item.reserved,
        "fragmentation_bytes": item.fragmentation,
        "largest_free_block_bytes": item.largest_free_block,
        "process_bytes": item.process,
        "outside_torch_bytes": item.outside_torch,
        "elsewhere_bytes": item.elsewhere,
        "limit_bytes": item.limit,
        "other_processes": [{"process": name, "bytes": size} for name, size in item.others],
        "kind": item.kind,
        "cause": item.cause,
        "where": [str(frame) for frame in item.stack],
        "changes": [{"change": c.what, "frees_bytes": c.frees, "cost": c.cost} for c in item.changes],
        "held": dict(item.holdings),
        "largest": [
            {"bytes": group.size, "blocks": group.count, "stack": [str(frame) for frame in group.stack]}
            for group in item.largest[:top]
        ],
    }
