"""Files that a container finds in the ConfigMaps of its own manifest (Volume.configMap, VolumeMount of the API)."""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from vramwise.errors import SourceError, UsageError, VramwiseError
from vramwise.interop.files.tables import tables_in

_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")  # ConfigMap.data
_MOST_FILES = 64
Maps = Mapping[str, Mapping[str, str]]
T = TypeVar("T")


def config_maps(documents: Sequence[object]) -> Maps:
    """The texts of every ConfigMap, by its name and their keys."""
    found: dict[str, Mapping[str, str]] = {}
    for document in documents:
        if isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
            metadata, data = document.get("metadata"), document.get("data")
            if isinstance(metadata, Mapping) and isinstance(data, Mapping):
                texts = {str(key): text for key, text in data.items() if isinstance(text, str)}
                found[str(metadata.get("name"))] = {key: text for key, text in texts.items() if _is_name(key)}
    return found


def mounted_files(container: Mapping[str, object], pod: Mapping[str, object], maps: Maps) -> dict[str, str]:
    """The text of each file that the container's mounts give it, by its path there."""
    volumes = {str(one.get("name")): _texts(one, maps) for one in tables_in(pod.get("volumes"))}
    found: dict[str, str] = {}
    for mount in tables_in(container.get("volumeMounts")):
        place, only = mount.get("mountPath"), mount.get("subPath")
        if not isinstance(place, str) or not place.startswith("/") or "\0" in place:
            continue
        for name, text in volumes.get(str(mount.get("name")), {}).items():
            if only is None or only == name:
                found[posixpath.normpath(place if only else posixpath.join(place, name))] = text
            if len(found) >= _MOST_FILES:
                return found
    return found


def _texts(volume: Mapping[str, object], maps: Maps) -> dict[str, str]:
    """What lies in a volume; `items` choose among its keys and name their files."""
    source = volume.get("configMap")
    if not isinstance(source, Mapping):
        return {}
    texts = maps.get(str(source.get("name")), {})
    chosen = {str(one.get("key")): str(one.get("path")) for one in tables_in(source.get("items"))}
    named = {chosen.get(key, key): text for key, text in texts.items() if not chosen or key in chosen}
    return {name: text for name, text in named.items() if _is_name(name)}


def _is_name(name: str) -> bool:
    return bool(_KEY.fullmatch(name)) and name not in (".", "..")


def with_files(files: Mapping[str, str], words: Sequence[str], read: Callable[[Sequence[str]], T]) -> tuple[T, str]:
    """What `read` makes of a command line whose files stand in a folder meanwhile, and that folder's path.

    Raises what it raises, about the paths that the command line has.
    """
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        for path, text in files.items():
            file = Path(folder + path)
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            except (OSError, ValueError):  # one path is another's folder, a name too long, half a character
                continue
        try:
            return read([_placed(word, files, folder) for word in words]), folder
        except VramwiseError as problem:
            kind = SourceError if isinstance(problem, SourceError) else UsageError
            raise kind(str(problem).replace(folder, "")) from None


def _placed(word: str, files: Mapping[str, str], folder: str) -> str:
    name, sign, value = word.partition("=")
    if sign and value in files:
        return f"{name}={folder}{value}"
    return f"{folder}{word}" if word in files else word
