"""Files that a configuration names, looked for beside it too where they are not where the command would be run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from vramwise.errors import SourceError, clipped

_ABOVE = 5
_places: ContextVar[tuple[Path, ...]] = ContextVar("_places", default=())


@contextmanager
def looking_beside(files: Sequence[str]) -> Iterator[None]:
    """Within it, `found_beside` looks into the folders of `files` and into those above them."""
    before = _places.set(tuple(dict.fromkeys(Path(file).absolute().parent for file in files)))
    try:
        yield
    finally:
        _places.reset(before)


def found_beside(path: str) -> str:
    """The path as it is where a file lies there; else the same path from a folder above, or its name beside; else
    unchanged, for whoever reads it to say that nothing is there."""
    if not _places.get() or Path(path).exists():
        return path
    for folder in _places.get():
        above = (folder, *list(folder.parents)[:_ABOVE])
        wanted = [] if Path(path).is_absolute() else [place / path for place in above]
        for one in (*wanted, folder / Path(path).name):
            if one.is_file():
                return str(one)
    return path


def file_table(path: str) -> dict[str, object]:
    """A configuration file's table; a file without an ending is JSON or YAML. Raises SourceError."""
    from vramwise.scenario import read_table_file

    if path.startswith(("http://", "https://")):
        raise SourceError(f"{clipped(path)}: give a file of this machine instead of an address")
    return read_table_file(found_beside(path), any_name=True)
