"""The Hugging Face cache on disk, read by its documented layout and without the client library.

<cache>/models--ORG--NAME/refs/REVISION                 the commit that a branch or tag meant at download
<cache>/models--ORG--NAME/snapshots/COMMIT/config.json
<cache>/models--ORG--NAME/.no_exist/COMMIT/config.json  the commit has no such file (huggingface_hub file_download.py)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from vramwise.sources.repository import Folder

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_REVISION = re.compile(r"[\w.-]+(/[\w.-]+)*")
_SNAPSHOT = re.compile(r"(?!\.+$)[\w.-]{1,200}")
_LONGEST_REF = 200
_LEAST_OF_A_COMMIT = 7
MAIN = "main"
DESCRIBING = ("config.json", "adapter_config.json", "model_index.json")
"""What says of a folder which model it is; files of weights alone do as well."""


def cache_folder() -> Path:
    """HF_HUB_CACHE, else HF_HOME/hub, else the user's cache folder, as huggingface_hub decides."""
    if folder := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder)
    if home := os.environ.get("HF_HOME"):
        return Path(home) / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "huggingface" / "hub"


def cached_repository(repo_id: str, revision: str | None = None) -> Folder | None:
    """What was downloaded of a repository at a revision: a branch, a tag, a pull request's ref, a commit or its start.

    Without one it is `main`, or the newest snapshot of a cache that was filled by commits alone and has no `main`.
    """
    if not _REPO.fullmatch(repo_id):
        return None
    folder = cache_folder() / f"models--{repo_id.replace('/', '--')}"
    for commit in _commits(folder, revision):
        place = folder / "snapshots" / commit
        if _describes(place):
            return Folder(os.fspath(place), origin=f"Hugging Face cache: {place}", revision=commit)
    return None


def known_missing(repo_id: str, revision: str | None, path: str) -> bool:
    """Whether the Hub has said before that the revision has no such file."""
    if not _REPO.fullmatch(repo_id):
        return False
    folder = cache_folder() / f"models--{repo_id.replace('/', '--')}"
    return any((folder / ".no_exist" / commit / path).is_file() for commit in _commits(folder, revision or MAIN))


def _commits(folder: Path, revision: str | None) -> Iterator[str]:
    commit = _ref(folder, revision or MAIN)
    if commit is not None:
        yield commit
    try:
        snapshots = [one for one in os.scandir(folder / "snapshots") if one.is_dir() and _SNAPSHOT.fullmatch(one.name)]
        newest_first = sorted(snapshots, key=lambda one: -one.stat().st_mtime_ns)
    except OSError:
        return
    if revision is None:
        if not os.path.lexists(folder / "refs" / MAIN):
            yield from (one.name for one in newest_first)
    elif commit is None:
        yield from (
            one.name for one in newest_first if len(revision) >= _LEAST_OF_A_COMMIT and one.name.startswith(revision)
        )


def _ref(folder: Path, revision: str) -> str | None:
    if not _REVISION.fullmatch(revision) or {".", ".."} & set(revision.split("/")):
        return None
    try:
        with open(folder / "refs" / revision, encoding="ascii") as file:
            commit = file.read(_LONGEST_REF).strip()
    except (OSError, ValueError):
        return None
    return commit if _SNAPSHOT.fullmatch(commit) else None


def _describes(place: Path) -> bool:
    try:
        names = os.listdir(place)
    except (OSError, ValueError):
        return False
    weights = any(name.endswith((".safetensors", ".gguf")) for name in names)
    return weights or any((place / name).is_file() for name in DESCRIBING)
