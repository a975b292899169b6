"""What of a repository is meant: a GGUF file by its quantization, one of its folders, or a file by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vramwise.errors import SourceError, clipped
from vramwise.formats.ranged import RangedFiles
from vramwise.sources.repository import Repository

GGUF = ".gguf"
USUAL_QUANTIZATION = "Q4_K_M"
"""What llama.cpp's -hf and Ollama take where nothing is said (llama.cpp common/arg.cpp, --hf-repo)."""
_LISTED = 12
_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_BESIDE = re.compile(r"(^|/)(mmproj|imatrix)|[-.](mmproj|imatrix)", re.IGNORECASE)
_LABEL = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q\d(?:_\w+?)?|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32))(?=[-.]|$)",
    re.IGNORECASE,
)


class SubFolder:
    """A folder of a repository as a repository of its own."""

    def __init__(self, within: Repository, folder: str) -> None:
        self._within, self._folder = within, folder
        self.at_once, self.revision = within.at_once, within.revision
        self.name, self.origin = f"{within.name}/{folder}", f"{within.origin}, folder {folder}"

    def files(self) -> Mapping[str, int | None]:
        start = f"{self._folder}/"
        return {path.removeprefix(start): size for path, size in self._within.files().items() if path.startswith(start)}

    def size(self, path: str) -> int | None:
        return self._within.size(f"{self._folder}/{path}")

    def read(self, path: str, most_bytes: int) -> bytes:
        return self._within.read(f"{self._folder}/{path}", most_bytes)

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        return self._within.read_range(f"{self._folder}/{path}", start, stop)


def models_in_gguf(files: RangedFiles) -> list[str]:
    """The GGUF files that hold a model, the first part of split ones; neither projectors nor importance matrices."""
    found = []
    for path in files.files():
        part = _PART.search(path)
        if path.lower().endswith(GGUF) and not _BESIDE.search(path) and (part is None or int(part[1]) == 1):
            found.append(path)
    return found


def picked_gguf(files: RangedFiles, pick: str) -> str | None:
    """The file that `pick` names or whose quantization it is; the shorter name where several have it."""
    paths = models_in_gguf(files)
    if pick in paths:
        return pick
    first = _PART.sub(lambda part: f"-00001-of-{part[2]}", pick)
    if first in paths:
        return first
    quantized = re.compile(rf"(?<![A-Za-z0-9]){re.escape(pick)}(?![A-Za-z0-9_])", re.IGNORECASE)
    fitting = [path for path in paths if quantized.search(path)]
    return min(fitting, key=lambda path: (len(path), path)) if fitting else None


def usual_gguf(files: RangedFiles) -> tuple[str, str | None] | None:
    """The file that a repository of GGUF files stands for where nothing was picked, and a note where others are there.

    None where it has no such file.
    """
    paths = models_in_gguf(files)
    if not paths:
        return None
    if len(paths) == 1:
        return paths[0], None
    path = picked_gguf(files, USUAL_QUANTIZATION) or paths[0]
    return path, f"{path} of {len(paths)} GGUF files: {files.name}:QUANT takes another ({_labels(paths)})"


def has_folder(files: RangedFiles, folder: str) -> bool:
    start = folder.rstrip("/") + "/"
    return any(path.startswith(start) for path in files.files())


def nothing_fits(files: RangedFiles, pick: str) -> SourceError:
    """What is there instead."""
    paths = list(files.files())
    folders = sorted({path.partition("/")[0] for path in paths if "/" in path})
    there = []
    if ggufs := models_in_gguf(files):
        there.append(f"the GGUF files {_labels(ggufs)}")
    if folders:
        there.append(f"the folders {_some(folders)}")
    rest = " and ".join(there) or "no GGUF file and no folder"
    return SourceError(f'{files.name} has no "{clipped(pick)}": it has {rest}')


def _labels(paths: list[str]) -> str:
    return _some([labels[-1] if (labels := _LABEL.findall(_PART.sub("", path))) else path for path in paths])


def _some(words: list[str]) -> str:
    words = [clipped(word, 80) for word in dict.fromkeys(words)]
    return ", ".join(words[:_LISTED]) + (f" and {len(words) - _LISTED} more" if len(words) > _LISTED else "")
