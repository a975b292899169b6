"""What a person wrote as the model, taken apart: which repository, at which revision, and what of it.

What of a repository is meant: a GGUF file by its quantization, one of its folders, or a file by its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from vramwise.errors import SourceError, clipped
from vramwise.formats.ranged import RangedFiles
from vramwise.records import record
from vramwise.scenario.names import MODEL_SOURCES
from vramwise.sources.repository import Repository

AUTO, HUB, MODELSCOPE, CACHE, CATALOG = MODEL_SOURCES
_URL = re.compile(r"^[a-z]+://", re.IGNORECASE)
_HUBS = frozenset({"huggingface.co", "www.huggingface.co", "hf.co", "hf-mirror.com"})
_MODELSCOPES = frozenset({"modelscope.cn", "www.modelscope.cn", "modelscope.ai", "www.modelscope.ai"})
_BARE_HOST = re.compile(r"(?:hf\.co|huggingface\.co|modelscope\.cn)/", re.IGNORECASE)
_OTHER_PAGES = frozenset({"datasets", "spaces", "docs", "papers", "models", "collections", "kernels"})
_VIEWS = frozenset({"tree", "blob", "resolve", "raw", "commit"})
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_OLD_NAME = re.compile(rf"(?:{_NAME.pattern}|[A-Za-z0-9][\w.-]*)")
_DESCRIPTIONS = ("config.json", "README.md", "adapter_config.json", "model_index.json")


@record
class Reference:
    """`name` of a repository or of the catalog; `revision` and `pick` where they were said; `source`: where alone to
    look. `pick` is a file, a folder, or the quantization of a GGUF file."""

    name: str
    revision: str | None = None
    pick: str | None = None
    source: str = AUTO

    @property
    def is_repository(self) -> bool:
        """Whether it is ORG/NAME, as repositories of hubs are called, or the old NAME alone where the Hub is asked."""
        pattern = _OLD_NAME if self.source == HUB else _NAME
        return pattern.fullmatch(self.name) is not None and ".." not in self.name


STORE = re.compile(r"(?i)(?:s3|gs|gcs|az|azure|abfss?|wasbs?|oss|obs|cos|pvc|oci|file|tos)://")
"""Addresses of stores that engines and clusters load weights from."""


def reference(text: str) -> Reference:
    """A name as it was written: ORG/NAME, ORG/NAME@REVISION, ORG/NAME:PICK, both, or an address of a hub's page.

    Raises SourceError for an address that is no model's.
    """
    if STORE.match(text):
        raise SourceError(
            f"{clipped(text, 200)}: weights in a store are not looked at: give the model's name or its config.json"
        )
    if _URL.match(text):
        return _of_url(text)
    if _BARE_HOST.match(text):
        name, _, pick = text.partition(":")
        found = _of_url(f"https://{name}")
        return Reference(found.name, found.revision, pick or found.pick, found.source)
    if "/" not in text.partition("@")[0]:  # llama3.1:8b is a name
        name, _, revision = text.partition("@")
        return Reference(name, revision or None)
    rest, _, pick = text.partition(":")
    name, _, revision = rest.partition("@")
    return Reference(name, revision or None, pick or None)


def placed(name: str, source: str, revision: str | None) -> str:
    """A name with its place and revision in it, as `resolve` reads it: `hub://ORG/NAME@REVISION`."""
    at = f"@{revision}" if revision is not None else ""
    if "://" in name or source == AUTO:
        return f"{name}{at}"
    rest, colon, pick = name.partition(":")
    return f"{source}://{rest}{at}{colon}{pick}"


def _of_url(url: str) -> Reference:
    try:
        parts = urlsplit(url)
        host = (parts.netloc.rpartition("@")[2]).lower()
    except ValueError:
        raise _no_page(url) from None
    path = parts.path.strip("/")
    if parts.scheme.lower() == "hf":
        name, at, revision = path.partition("@")
        pieces = [host, *name.split("/")]
        if at:
            revision, _, file = revision.partition("/")
            return Reference("/".join(pieces[:2]), unquote(revision), file or None, HUB)
        return Reference("/".join(pieces[:2]), None, "/".join(pieces[2:]) or None, HUB)
    if host in _HUBS or host == _own_host("HF_ENDPOINT"):
        return _of_hub(url, path)
    if host in _MODELSCOPES or host == _own_host("MODELSCOPE_ENDPOINT"):
        return _of_modelscope(url, path)
    raise _no_page(url)


def _of_hub(url: str, path: str) -> Reference:
    pieces = path.split("/")
    if not path:
        raise _no_page(url)
    if pieces[0] in _OTHER_PAGES:
        raise SourceError(f"{clipped(url, 200)}: is no model, expected https://huggingface.co/ORG/NAME")
    if pieces[0] == "api" and len(pieces) > 2:
        pieces = pieces[2:]
    legacy = len(pieces) == 1 or pieces[1] in _VIEWS  # gpt2, from before names had an organisation
    name, rest = (pieces[0], pieces[1:]) if legacy else ("/".join(pieces[:2]), pieces[2:])
    name, _, pick = name.partition(":")
    revision = unquote(rest[1]) if len(rest) > 1 and rest[0] in _VIEWS else None
    file = "/".join(map(unquote, rest[2:]))
    return Reference(name, _unless_default(revision, "main"), pick or _picked(file), HUB)


def _of_modelscope(url: str, path: str) -> Reference:
    pieces = path.split("/")
    if pieces[0] != "models" or len(pieces) < 3:
        raise _no_page(url)
    name, rest = "/".join(pieces[1:3]), pieces[3:]
    at = {"resolve": 1, "tree": 1, "file": 2}.get(rest[0], len(rest)) if rest else 0
    revision = unquote(rest[at]) if len(rest) > at else None
    file = "/".join(map(unquote, rest[at + 1 :]))
    return Reference(name, _unless_default(revision, "master"), _picked(file), MODELSCOPE)


def _unless_default(revision: str | None, default: str) -> str | None:
    """A page's address names the default branch without anybody asking for it."""
    return None if revision == default else revision


def _picked(file: str) -> str | None:
    """A file in an address, where it is more than the description of the whole repository."""
    return file if file and file not in _DESCRIPTIONS else None


def _own_host(variable: str) -> str | None:
    given = os.environ.get(variable)
    try:
        return urlsplit(given).netloc.rpartition("@")[2].lower() if given else None
    except ValueError:
        return None


def _no_page(url: str) -> SourceError:
    return SourceError(f"{clipped(url, 200)}: expected the page of a model, such as https://huggingface.co/ORG/NAME")


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
