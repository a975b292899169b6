"""`vramwise batch -o OUT --resume`: answers that outlive whatever ends the command, and go on where they ended.

Until all are there they stand in OUT.unfinished; OUT.of says which question they and then OUT answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

from vramwise.errors import SourceError, UsageError
from vramwise.files import read_at_most, shown_path, write_file
from vramwise.units import MIB

UNFINISHED, OF = ".unfinished", ".of"


@contextmanager
def resumed(path: str, asked: Mapping[str, object]) -> Iterator[tuple[IO[str], int]]:
    """A file that becomes `path` once everything is written, and how many answers it has from before.

    Raises UsageError where unfinished answers are of something else than `asked`; a whole `path` of that is replaced.
    """
    unfinished, of = path + UNFINISHED, path + OF
    if os.path.lexists(unfinished):
        _check(unfinished, of, asked)
    elif os.path.isfile(path) and _known(of) == asked:
        os.replace(path, unfinished)  # whole already: there is nothing left to answer
    else:
        write_file(of, json.dumps(asked))
    with open(unfinished, "a+b") as file:
        done = _whole_lines(file)
    with open(unfinished, "a", encoding="utf-8") as out:
        yield out, done
    os.replace(unfinished, path)


def _check(unfinished: str, of: str, asked: Mapping[str, object]) -> None:
    before = _known(of)
    if before == asked:
        return
    differs = ", ".join(name for name in asked if before.get(name) != asked[name])
    where = shown_path(unfinished)
    raise UsageError(f"--resume: {where} answers another question ({differs} differ): remove it to begin anew")


def _known(of: str) -> dict[str, object]:
    with suppress(SourceError, ValueError, RecursionError):
        before = json.loads(read_at_most(of, MIB))
        if isinstance(before, dict):
            return before
    return {}


def _whole_lines(file: IO[bytes]) -> int:
    """How many lines there are; what was written of another one is cut off."""
    file.seek(0)
    count = end = 0
    for line in file:
        if line.endswith(b"\n"):
            count, end = count + 1, end + len(line)
    file.truncate(end)
    return count
