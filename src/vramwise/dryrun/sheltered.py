"""What a stranger's script may do while it runs for a look: read files, but not the network, and write aside.

What it wrote aside is there for it afterwards: opened, listed, asked about, renamed and removed under the names that it
knows. What was there before stays as it is.
"""

from __future__ import annotations

import builtins
import io
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vramwise.dryrun.fake_cuda import replaced

_WRITING = frozenset("wax+")
_NO_FILE = ("no such file", "not found", "does not exist", "cannot open", "failed to open")
_OPENED_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@contextmanager
def sheltered(folder: str, *, writes: bool) -> Iterator[None]:
    """No network; files that Python's own calls write lie in `folder` unless `writes`, and are read from there."""

    def closed(*_: object, **__: object) -> Any:
        raise OSError("the network is closed in a dry run")

    pairs: list[tuple[object, str, object]] = [
        (socket.socket, "connect", closed),
        (socket.socket, "connect_ex", closed),
        (socket, "create_connection", closed),
        (socket, "getaddrinfo", closed),
    ]
    if not writes:
        pairs += _aside(Path(folder))
        os.makedirs(folder, exist_ok=True)
        pairs.append((tempfile, "tempdir", folder))
    with replaced(pairs):
        yield


def of_what_was_written(said: str, folder: str) -> str:
    """What to do where code that is not Python's looks for a file that the script wrote aside, else nothing.

    Some (tokenizers' "No such file or directory (os error 2)") do not say which file that is.
    """
    if not any(words in said.lower() for words in _NO_FILE):
        return ""
    written = [path.name for path in Path(folder).rglob("*") if path.is_file()]
    named = re.findall(r"[\w-]+\.\w+", said)
    if not written or (named and not any(name in said for name in written)):
        return ""
    return (
        "; files that the script writes lie in a temporary folder, where code that is not Python's does not find them: "
        "--allow-writes lets it write where it wants"
    )


def _aside(folder: Path) -> list[tuple[object, str, object]]:
    real_open, os_open, mkdir, remove, rename = builtins.open, os.open, os.mkdir, os.remove, os.replace

    def place(path: Any) -> Any:
        """Where a file of that name would be written."""
        if isinstance(path, int) or os.fspath(path) == os.devnull:
            return path
        whole = Path(os.path.abspath(os.fsdecode(path)))
        return whole if folder in whole.parents else folder / whole.relative_to(whole.anchor)

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int):
            return real_open(file, mode, *args, **kwargs)
        aside = place(file)
        if set(mode) & _WRITING and os.fspath(file) != os.devnull:
            os.makedirs(aside.parent, exist_ok=True)
            return real_open(aside, mode, *args, **kwargs)
        return real_open(aside if isinstance(aside, Path) and aside.exists() else file, mode, *args, **kwargs)

    def opened_low(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        """What locks of files (filelock) and `Path.touch` call."""
        if kwargs.get("dir_fd") is not None or os.fsdecode(path).startswith("/dev/"):
            return os_open(path, flags, *args, **kwargs)
        aside = place(path)
        if flags & _OPENED_TO_WRITE:
            os.makedirs(aside.parent, exist_ok=True)
            return os_open(aside, flags, *args, **kwargs)
        return os_open(aside if aside.exists() else path, flags, *args, **kwargs)

    def made(path: Any, *args: Any, **kwargs: Any) -> None:
        aside = place(path)
        if _is_there(path) and folder not in Path(os.path.abspath(os.fsdecode(path))).parents:
            raise FileExistsError(17, "File exists", os.fsdecode(path))
        if aside.is_dir():  # made already; what asks whether it is there looks elsewhere
            return
        if not aside.parent.exists():
            os.makedirs(aside.parent, exist_ok=True)
        mkdir(aside, *args, **kwargs)

    def removed(path: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(path, int) and place(path).exists():  # what the script did not write stays
            remove(place(path), *args, **kwargs)

    def moved(source: Any, target: Any, **kwargs: Any) -> None:
        rename(place(source), place(target), **kwargs)

    def looked(look: Any) -> Any:
        """`os.stat` and its like, of what was written aside first."""

        def found(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int) or kwargs.get("dir_fd") is not None:
                return look(path, *args, **kwargs)
            aside = place(path)
            return look(aside if isinstance(aside, Path) and _is_there(aside) else path, *args, **kwargs)

        return found

    stat, listdir, scandir, rmdir, rmtree = os.stat, os.listdir, os.scandir, os.rmdir, shutil.rmtree

    def _is_there(aside: Path) -> bool:
        try:
            stat(aside)
        except OSError:
            return False
        return True

    def listed(path: Any = ".") -> list[Any]:
        if isinstance(path, int) or not _is_there(place(path)):
            return listdir(path)
        own = listdir(place(path))
        return own + [name for name in (listdir(path) if _is_there(path) else []) if name not in own]

    def scanned(path: Any = ".") -> object:
        aside = isinstance(path, int) or place(path)
        return scandir(aside if isinstance(aside, Path) and _is_there(aside) and not _is_there(path) else path)

    def emptied(path: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("dir_fd") is not None:
            return
        if place(path).exists():
            rmdir(place(path), *args, **kwargs)

    def cleared(path: object, *_: object, **__: object) -> None:
        with replaced([(os, "stat", stat), (os, "scandir", scandir), (os, "listdir", listdir), (os, "rmdir", rmdir),
                       (os, "unlink", remove), (os, "remove", remove)]):  # fmt: skip
            rmtree(place(path), ignore_errors=True)

    return [
        (builtins, "open", opened), (io, "open", opened), (os, "open", opened_low), (os, "mkdir", made),
        (os, "remove", removed), (os, "unlink", removed), (os, "replace", moved), (os, "rename", moved),
        (os, "stat", looked(stat)), (os, "lstat", looked(os.lstat)), (os, "statvfs", looked(os.statvfs)),
        (os, "listdir", listed), (os, "scandir", scanned), (os, "rmdir", emptied), (shutil, "rmtree", cleared),
    ]  # fmt: skip
