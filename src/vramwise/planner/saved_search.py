"""A search for layouts that goes on where it was stopped: what fits, by cards and layout, in a file of a person's.

    {"vramwise": version, "question": digest, "layouts": {KEY: [{"values", "needed_bytes", "word", …}]}}

A file answers the question that it was written for, by the version that wrote it. Options are estimated by themselves
again whatever it says, so that it saves time and decides nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from vramwise import __version__
from vramwise.errors import UsageError
from vramwise.files import read_at_most, shown_path, written
from vramwise.records import record
from vramwise.result import VERDICT_WORDS, VerdictWord
from vramwise.scenario import Scenario
from vramwise.units import MIB

_MOST_BYTES = 256 * MIB
_BETWEEN_WRITES_S = 5.0


@record
class Candidate:
    """Values of keys with which a training fits, what a card needs then, and tokens a second of all cards."""

    values: Mapping[str, object]
    needed_bytes: int
    word: VerdictWord
    tokens_per_second: float


class SavedSearch:
    """What was searched so far; without a path nothing is read or written."""

    def __init__(self, path: str | None = None, question: str = "") -> None:
        self._path, self._question = path, question
        self._layouts: dict[str, list[Candidate]] = {}
        self._written = time.monotonic()
        if path is not None and Path(path).exists():
            self._layouts = _read(path, question)
        else:
            self.write()  # who cannot write there knows before the search

    def has(self, key: str) -> bool:
        """Whether a layout was searched before."""
        return key in self._layouts

    def of(self, key: str, search: Callable[[], Iterable[Candidate]]) -> list[Candidate]:
        """What fits of a layout: as it was found before, else searched for now."""
        if key not in self._layouts:
            self._layouts[key] = list(search())
            if time.monotonic() - self._written >= _BETWEEN_WRITES_S:
                self.write()
        return self._layouts[key]

    def write(self) -> None:
        """Write the file. Raises OSError."""
        self._written = time.monotonic()
        if self._path is None:
            return
        layouts = {
            key: [
                {
                    "values": dict(one.values), "needed_bytes": one.needed_bytes, "word": one.word,
                    "tokens_per_second": one.tokens_per_second,
                }
                for one in found
            ]
            for key, found in self._layouts.items()
        }  # fmt: skip
        with written(self._path) as out:
            json.dump({"vramwise": __version__, "question": self._question, "layouts": layouts}, out)
            out.write("\n")


def question_of(scenario: Scenario, others: Sequence[object]) -> str:
    """What tells one question from another: the scenario, the wishes, the cards that there are."""
    return sha256(repr((scenario.to_dict(), sorted(scenario.explicit), *map(repr, others))).encode()).hexdigest()[:32]


def key_of(scenario: Scenario, layout: Mapping[str, object]) -> str:
    """A layout over the scenario's cards."""
    return json.dumps([scenario.gpu, scenario.num_gpus, dict(sorted(layout.items()))])


def _read(path: str, question: str) -> dict[str, list[Candidate]]:
    """Raises UsageError for a file of something else, SourceError for one that cannot be read."""
    where = shown_path(path)
    content = read_at_most(path, _MOST_BYTES + 1)
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("too large")
        table = json.loads(content)
        version, asked = table["vramwise"], table["question"]
        layouts = {str(key): [_candidate(one) for one in found] for key, found in table["layouts"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UsageError(f"--save: {where} is no saved search: name another file") from None
    if version != __version__:
        raise UsageError(f"--save: {where} was written by another version of vramwise: name another file")
    if asked != question:
        raise UsageError(f"--save: {where} holds the search for another question: name another file")
    return layouts


def _candidate(table: Mapping[str, Any]) -> Candidate:
    values = {str(key): tuple(one) if isinstance(one, list) else one for key, one in table["values"].items()}
    if table["word"] not in VERDICT_WORDS:
        raise ValueError("no word of a verdict")
    return Candidate(values, int(table["needed_bytes"]), table["word"], float(table["tokens_per_second"]))
