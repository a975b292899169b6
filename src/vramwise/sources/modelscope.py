"""ModelScope: its cache on disk, and its repositories by plain HTTP.

Addresses are those of modelscope 1.40.2 (hub/api.py): a list of files at /api/v1/models/NAME/repo/files, a file at
/api/v1/models/NAME/repo?FilePath=…; places of downloads are those of its snapshot_download, old and new.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from vramwise.errors import SourceError, clipped
from vramwise.sources.browser_http import IN_BROWSER, browser_get
from vramwise.sources.hub import LARGEST_LIST, NoSuchRepository, status_problem
from vramwise.sources.kept_parts import KeptParts
from vramwise.sources.remote import RemoteRepository, is_plain_path
from vramwise.sources.web_reader import Refused, WebReader

MODELSCOPE = "ModelScope"
MASTER = "master"
DEFAULT_ENDPOINT = "https://www.modelscope.cn"
TIMEOUT_S = 10
_DOT = "___"  # what a downloaded folder has for a point in its name


def open_modelscope(name: str, revision: str | None) -> RemoteRepository:
    """A repository at a revision, `master` where none is said.

    Raises NoSuchRepository, Unreachable, or SourceError for what else is in the way.
    """
    from vramwise.sources.plain_http import plain_get

    wanted = revision or MASTER
    endpoint, host = _endpoint()
    base = f"{endpoint}/api/v1/models/{quote(name, safe='/')}/repo"
    web = WebReader(browser_get if IN_BROWSER else plain_get, host, {"User-Agent": "vramwise"}, TIMEOUT_S)

    def refusal(refused: Refused, path: str) -> SourceError:
        if refused.status in (401, 404) and not path:
            return NoSuchRepository(f"{host} has no {name}{f' at {clipped(wanted)}' if revision else ''}")
        return status_problem(host, f"{name}/{path}" if path else name, refused)

    def address_of(path: str) -> str:
        return f"{base}?{urlencode({'Revision': wanted, 'FilePath': path})}"

    web.reach(endpoint)
    try:
        page = web.whole(f"{base}/files?{urlencode({'Revision': wanted, 'Recursive': 'True'})}", name, LARGEST_LIST)
    except Refused as refused:
        raise refusal(refused, "") from None
    commit, sizes = _listed(page.content, f"{host}: the list of files of {name}")
    kept = KeptParts(host, name)
    kept.keep_commit(wanted, commit)
    kept.keep_files(commit, sizes)
    return RemoteRepository(
        name, MODELSCOPE, commit, sizes, web=web, address_of=address_of, refusal=refusal, kept=kept
    )  # fmt: skip


def kept_modelscope(name: str, revision: str | None) -> RemoteRepository | None:
    """The repository as far as it was read before, without the network."""
    kept = KeptParts(_endpoint()[1], name)
    commit = kept.commit_of(revision or MASTER)
    sizes = kept.files(commit) if commit is not None else None
    if commit is None or sizes is None:
        return None
    return RemoteRepository(
        name, MODELSCOPE, commit, sizes, web=None, address_of=str, refusal=lambda _, path: SourceError(path), kept=kept
    )


def downloaded(name: str, revision: str | None) -> Path | None:
    """The folder into which ModelScope's client downloaded a repository."""
    org, _, short = name.partition("/")
    if not short or {".", ".."} & {org, short} or "/" in short:
        return None
    given = os.environ.get("MODELSCOPE_CACHE")
    home = Path(given) if given else Path(os.path.expanduser("~")) / ".cache" / "modelscope"
    snapshots = home / "models" / f"{org}--{short}" / "snapshots"
    folders = [snapshots / (revision or MASTER)]
    if revision is None:
        plain = f"{org}/{short}", f"{org}/{short.replace('.', _DOT)}"
        folders += [
            base / one for base in (home / "hub" / "models", home / "models", home / "hub", home) for one in plain
        ]
    return next((one for one in folders if (one / "config.json").is_file()), None)


def _listed(content: bytes, what: str) -> tuple[str, dict[str, int | None]]:
    """The files' sizes, and a name for this state of them: a branch is no commit."""
    try:
        files = [one for one in json.loads(content)["Data"]["Files"] if one.get("Type") != "tree"]
        sizes = {one["Path"]: _size(one) for one in files if is_plain_path(one["Path"])}
        states = sorted(f"{one['Path']} {one.get('Sha256') or one.get('Revision')} {_size(one)}" for one in files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SourceError(f"{what} is not as ModelScope writes it") from None
    return sha256("\n".join(states).encode()).hexdigest()[:40], sizes


def _size(file: Mapping[str, object]) -> int | None:
    size = file.get("Size")
    return size if type(size) is int and size >= 0 else None


def _endpoint() -> tuple[str, str]:
    """The address and its host."""
    given = os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN") or DEFAULT_ENDPOINT
    address = (given if "://" in given else f"https://{given}").rstrip("/")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or urlsplit(address).scheme not in ("http", "https"):
        raise SourceError(f"MODELSCOPE_ENDPOINT is no address, expected one such as {DEFAULT_ENDPOINT}")
    return address, f"{host}:{port}" if port is not None else host
