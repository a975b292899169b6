"""Opening files that a person names, and writing what they get: no endless wait, nothing half-written.

A named pipe that nobody writes to, a terminal or an endless device is refused instead of waited for; a file is written
beside its place and renamed, so that a full disk or a signal leaves what was there before.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from itertools import islice
from typing import IO, Any, BinaryIO

from vramwise.errors import SourceError, clipped

_PIECE_BYTES = 65_536
_GIVEN_BY_THE_SHELL = ("/dev/fd/", "/proc/self/fd/")
"""Where a shell's `<(command)` stands; such a pipe has a writer already."""
_KINDS = (
    (stat.S_ISDIR, "Is a directory"),
    (stat.S_ISFIFO, "is a named pipe, expected a file"),
    (stat.S_ISSOCK, "is a socket, expected a file"),
    (stat.S_ISCHR, "is a device, expected a file"),
    (stat.S_ISBLK, "is a device, expected a file"),
)


_within: tuple[str, ...] | None = None


def stay_within(folders: Sequence[str]) -> None:
    """From now on nobody looks, for a path that a question names, outside of these folders: what a server does."""
    global _within
    _within = tuple(os.path.realpath(folder) for folder in folders)


def may_look_at(path: str) -> bool:
    """Whether a path that a question names may be looked at; every one where nobody said `stay_within`."""
    if _within is None:
        return True
    try:
        real = os.path.realpath(os.path.expanduser(path))
    except ValueError:  # a NUL character in the name
        return False
    return any(real == folder or real.startswith(folder + os.sep) for folder in _within)


def may_look_anywhere() -> bool:
    """Whether nobody said `stay_within`: what this machine holds is the asker's own."""
    return _within is None


def is_there(path: str) -> bool:
    """Whether there is such a file or folder, as far as it may be looked at."""
    return may_look_at(path) and os.path.exists(path)


def open_to_read(path: str | os.PathLike[str]) -> BinaryIO:
    """The file at `path`, open for reading. Raises SourceError in one line that names it."""
    name = os.fspath(path)
    try:
        # O_NONBLOCK: the pipe is looked at once it is open, so that nothing can take the file's place in between
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | _NO_WAIT)
    except (OSError, ValueError, UnicodeError) as problem:
        raise SourceError(f"{shown_path(name)}: {_why(problem)}") from None
    refused = _refused(name, os.fstat(descriptor).st_mode)
    if refused is not None:
        os.close(descriptor)
        raise SourceError(f"{shown_path(name)}: {refused}")
    os.set_blocking(descriptor, True)
    return open(descriptor, "rb")


def read_at_most(path: str | os.PathLike[str], most: int) -> bytes:
    """The first `most` bytes of a file. Raises SourceError in one line that names it."""
    with open_to_read(path) as file:
        try:
            return _read(file, most)
        except OSError as problem:
            raise SourceError(f"{shown_path(os.fspath(path))}: {_why(problem)}") from None


def _read(file: BinaryIO, most: int) -> bytes:
    """Python makes room for all that a read asks for, and a browser has no room for gigabytes: a piece at a time."""
    pieces: list[bytes] = []
    asked = max(_PIECE_BYTES, os.fstat(file.fileno()).st_size + 1)
    while most > 0:
        pieces.append(file.read(min(asked, most)))
        most -= len(pieces[-1])
        if len(pieces[-1]) < asked:
            break
    return b"".join(pieces)


@contextmanager
def written(path: str | os.PathLike[str], mode: str = "w", **how: object) -> Iterator[IO[Any]]:
    """A file that becomes `path` once everything is written, with the mode of the file that was there.

    Where the body or the disk fails, or a signal ends it, nothing is left and the file that was there is kept. What is
    no regular file (a pipe, /dev/full) is written to directly. Raises OSError.
    """
    name = os.fspath(path)
    try:
        target = os.path.realpath(name)
        if not _is_file_or_nothing(target):
            temporary = None
            out = open(target, mode, **_encoded(mode, how))  # noqa: SIM115 - closed below, with the renaming
        else:
            temporary = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}.tmp")
            out = open(temporary, mode.replace("w", "x"), **_encoded(mode, how))  # noqa: SIM115
    except (OSError, ValueError) as problem:
        why = "there is no such folder" if isinstance(problem, FileNotFoundError) else _why(problem)
        raise OSError(getattr(problem, "errno", None) or errno.EINVAL, why, name) from None
    try:
        with out:
            if temporary is not None:
                _take_mode(target, temporary)
            yield out
        if temporary is not None:
            os.replace(temporary, target)
    except BaseException:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a whole file, or leave the one that was there. Raises SourceError in one line that names it."""
    try:
        with written(path, "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
    except OSError as problem:
        raise SourceError(f"{shown_path(os.fspath(path))}: cannot be written ({_why(problem)})") from None


def append_text(path: str | os.PathLike[str], text: str) -> None:
    """Add whole lines to a file in one go; where the disk is full the file stays as it was. Raises OSError."""
    content = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | _NO_WAIT, 0o666)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))
        if os.write(descriptor, content) < len(content):
            os.ftruncate(descriptor, before.st_size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
    finally:
        os.close(descriptor)


def short_text(text: str, most_lines: int, longest_line: int) -> str:
    """The first lines of a text, each cut: what is looked at with expressions costs bounded work."""
    lines = islice(StringIO(text, newline=None), most_lines)
    return "".join(line if len(line) <= longest_line else f"{line[:longest_line]}\n" for line in lines)


def shown_path(name: str) -> str:
    """A file's name for a message: on one line, cut where it is long."""
    return clipped(name, 200) or "''"


_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


def _refused(name: str, mode: int) -> str | None:
    if name.startswith(_GIVEN_BY_THE_SHELL) or name in ("/dev/stdin", os.devnull):
        return "Is a directory" if stat.S_ISDIR(mode) else None
    return next((what for is_kind, what in _KINDS if is_kind(mode)), None)


def _why(problem: Exception) -> str:
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    return "is no file name"


def _encoded(mode: str, how: dict[str, Any]) -> dict[str, Any]:
    return how if "b" in mode else {"encoding": "utf-8", **how}


def _is_file_or_nothing(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return True


def _take_mode(target: str, temporary: str) -> None:
    """The new file may be read by whom the old one let read it."""
    with suppress(FileNotFoundError):
        os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
