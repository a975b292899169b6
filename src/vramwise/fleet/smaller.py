"""Jobs far below their card's memory: which smaller card they would fit, by their own command where it is known.

A measured peak alone says it only for programs that take what they need; one that fills a share of any card (an
engine's pool of cache) shows a high peak everywhere, and its command tells.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from vramwise.errors import SourceError, UsageError, VramwiseError
from vramwise.files import shown_path
from vramwise.fleet.jobs import FAR_BELOW, Job
from vramwise.records import record, replace

ROOM_LEFT: Final = 0.9
"""Of a smaller card's memory, the most that a measured peak may take of it (assumed): peaks between two samples are
not seen."""
USUAL_CARDS: Final = ("l4", "a10g-24gb", "l40s", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "mi210", "mi300x")
MOST_ESTIMATES: Final = 200
MOST_SPECS: Final = 10_000
_SPEC: Final = (".yaml", ".yml", ".json", ".sh", ".sbatch", ".slurm")


@record
class Card:
    """A card to move to."""

    id: str
    vendor: str
    usable_bytes: int


@record
class Spec:
    """A file that starts a job, by the name of the job that it starts."""

    name: str
    path: str


def with_smaller(
    jobs: Sequence[Job], specs: Sequence[Spec] = (), progress: Callable[[Sequence[Job]], Iterable[Job]] = iter
) -> tuple[list[Job], list[str]]:
    """The jobs with the smallest card that each would fit, and what could not be told.

    Those with the most hours are looked at first; at most MOST_ESTIMATES commands are estimated.
    """
    cards = _cards({name for job in jobs for name in job.gpu.split(", ")})
    by_name = {spec.name: spec for spec in specs}
    found: dict[str, Job] = {}
    by_command: dict[tuple[object, ...], Card | VramwiseError | None] = {}
    unread = 0
    for job in progress(sorted(jobs, key=lambda job: -job.gpu_hours)):
        smaller = _smaller_than(job, cards)
        what = _what(job, by_name) if smaller else None
        asked = (str(what), *(card.id for card in smaller))
        if what is not None and asked not in by_command and len(by_command) < MOST_ESTIMATES:
            by_command[asked] = _by_estimate(what, smaller)
        card, how = by_command.get(asked), "estimate"
        if what is None or asked not in by_command or isinstance(card, VramwiseError):
            unread += isinstance(card, VramwiseError)
            card, how = _by_peak(job, smaller), "peak"
        if card is not None:
            reason = "memory" if job.reason == "none" else job.reason
            found[job.id] = replace(job, smaller_gpu=card.id, smaller_by=how, reason=reason)
    notes = [f"commands that are not understood: {unread:,}; the peaks of their jobs are looked at"] if unread else []
    return [found.get(job.id, job) for job in jobs], notes


def _smaller_than(job: Job, cards: Sequence[Card]) -> list[Card]:
    """Cards with less than half of the memory, the smallest first; those of the job's own vendor."""
    own = next((card for card in cards if card.id == job.gpu), None)
    total = job.card_bytes or (own.usable_bytes if own is not None else 0)
    return [
        card for card in cards if (own is None or card.vendor == own.vendor) and card.usable_bytes < FAR_BELOW * total
    ]


def _by_peak(job: Job, smaller: Sequence[Card]) -> Card | None:
    peak = job.peak_bytes
    return None if not peak else next((card for card in smaller if peak <= ROOM_LEFT * card.usable_bytes), None)


def _by_estimate(what: Sequence[str] | str, smaller: Sequence[Card]) -> Card | VramwiseError | None:
    """The smallest card on which the job fits; the error for what is not understood."""
    from vramwise.checking.job import fits

    try:
        return next((card for card in smaller if fits(what, gpu=card.id)), None)
    except VramwiseError as problem:
        return problem


def _what(job: Job, specs: Mapping[str, Spec]) -> Sequence[str] | str | None:
    """The command of a job, or the file that started it."""
    if job.command:
        try:
            words = shlex.split(job.command)
        except ValueError:
            return None
        return None if any("://" in word for word in words) else words or None  # whoever wrote it names no addresses
    last = job.id.rpartition("/")[2]
    for name in (job.id, last, re.sub(r"-[a-z0-9]{5,10}(-[a-z0-9]{5})?$", "", last)):
        if name in specs:
            return specs[name].path
    return None


def _cards(names: Iterable[str]) -> list[Card]:
    """The cards that this cluster has and the usual ones, the smallest first."""
    from vramwise.hardware.lookup import find_gpu

    found = {}
    for name in (*names, *USUAL_CARDS):
        try:
            gpu = find_gpu(name).gpu
        except VramwiseError:
            continue
        if gpu.usable_bytes is not None:
            found[gpu.id] = Card(gpu.id, gpu.vendor, gpu.usable_bytes)
    return sorted(found.values(), key=lambda card: (card.usable_bytes, card.id))


def specs_in(paths: Sequence[str]) -> list[Spec]:
    """The files that start jobs, under the names of the jobs: a manifest's `metadata.name`, `slurm-ID.sh`, the file's
    own name. Raises SourceError for a place that is not there, UsageError for too many files."""
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            files += sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(_SPEC))
        elif os.path.exists(path):
            files.append(path)
        else:
            raise SourceError(f"{shown_path(path)}: No such file or directory")
        if len(files) > MOST_SPECS:
            raise UsageError(f"--specs: more than {MOST_SPECS:,} files")
    return [Spec(name, path) for path in files for name in _names(path)]


def _names(path: str) -> list[str]:
    stem = os.path.basename(path).partition(".")[0]
    names = [stem, stem.removeprefix("slurm-")]
    if path.endswith((".yaml", ".yml", ".json")):
        names += _manifest_names(path)
    return list(dict.fromkeys(names))


def _manifest_names(path: str) -> list[str]:
    from vramwise.interop.files.given import read_given

    given = read_given(path)
    found = []
    for table in () if given is None else given.documents:
        metadata = table.get("metadata") if isinstance(table, dict) else None
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
            space = metadata.get("namespace")
            found += [metadata["name"], *([f"{space}/{metadata['name']}"] if isinstance(space, str) else [])]
    return found
