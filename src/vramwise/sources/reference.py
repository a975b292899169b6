"""What a person wrote as the model, taken apart: which repository, at which revision, and what of it."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from vramwise.errors import SourceError, clipped
from vramwise.records import record
from vramwise.scenario.names import MODEL_SOURCES

AUTO, HUB, MODELSCOPE, CACHE, CATALOG = MODEL_SOURCES
_HUB_FOLDER = re.compile(r"models--([^/\\]+?)--([^/\\]+)")
_SEPARATORS = re.compile(r"[/\\]+")
_DOT = "___"  # ModelScope's downloads write it for a point: Qwen2___5-3B
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


def name_in_path(path: str) -> str | None:
    """The name of a model that the last part of a path may be; None for what is no path."""
    cached = _HUB_FOLDER.search(path)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}"
    pieces = [piece for piece in _SEPARATORS.split(path) if piece]
    if not pieces or not is_path(path):
        return None
    organisation, joined, name = pieces[-1].partition("--")  # meta-llama--Llama-3.1-8B
    return f"{organisation}/{name}" if joined else pieces[-1].replace(_DOT, ".")


def is_path(path: str) -> bool:
    """`$HOME/models/…` of a script is one too."""
    several = len([piece for piece in _SEPARATORS.split(path) if piece]) > 2
    return several or path.startswith(("/", ".", "~", "$")) or "\\" in path or STORE.match(path) is not None
