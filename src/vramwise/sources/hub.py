"""The Hugging Face Hub, through huggingface_hub: its session (proxies, certificates), token and endpoint.

Addresses and headers are those of huggingface_hub 2.4.0 (hf_api.py model_info, file_download.py, utils/_http.py): a
list of files at /api/models/NAME/revision/REVISION, files at /NAME/resolve/REVISION/PATH, errors told by X-Error-Code;
names that hold a word at /api/models (list_models).
Mirrors that have no list of files are asked for the usual names. Bodies are read by our own reader: the client's reads
a whole file into memory where a server ignores Range.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from vramwise.errors import SourceError, clipped
from vramwise.records import record
from vramwise.sources.browser_http import IN_BROWSER, browser_get, given_token
from vramwise.sources.kept_parts import KeptParts
from vramwise.sources.remote import RemoteRepository, is_plain_path
from vramwise.sources.web_reader import Refused, Unreachable, WebReader, pause_s
from vramwise.units import MIB

HUB = "Hugging Face Hub"
ENDPOINT = "https://huggingface.co"
MAIN = "main"
BROWSER_WAITS_S = 30.0
LARGEST_LIST = 32 * MIB
NO_CLIENT = "reading the Hugging Face Hub needs huggingface_hub: pip install 'vramwise[hub]'"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
OFFLINE = "offline, as HF_HUB_OFFLINE says"
_NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_ACCESS = "give a token that may read it (hf auth login, or HF_TOKEN)"
_USUAL = (
    "config.json", "model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json",
    "pytorch_model.bin", "adapter_config.json", "adapter_model.safetensors", "model_index.json",
)  # fmt: skip


class NoSuchRepository(SourceError):
    """A hub that has no repository of this name, or shows none to us."""


class NoClient(SourceError):
    """The client library is not installed."""


def is_offline() -> bool:
    """Whether the environment forbids the network, in the words of huggingface_hub and transformers."""
    return any(os.environ.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def why_not_reached() -> str | None:
    """Why the Hub cannot be asked now, after one attempt of seconds; None where it answers."""
    if is_offline():
        return OFFLINE
    try:
        client = _client()
        client.web.reach(client.endpoint)
    except SourceError as problem:
        return str(problem)
    return None


@record
class _Client:
    """What huggingface_hub knows of its user."""

    endpoint: str
    token: str | None
    web: WebReader

    @property
    def host(self) -> str:
        return self.web.host


def open_hub(name: str, revision: str | None) -> RemoteRepository:
    """A repository at a revision (a branch, a tag, a commit; `main` where none is said).

    Raises NoClient, NoSuchRepository, Unreachable, or SourceError for what else is in the way.
    """
    client = _client()
    wanted = revision or MAIN
    address = f"{client.endpoint}/api/models/{_quoted(name)}/revision/{quote(wanted, safe='')}?blobs=true"
    client.web.reach(client.endpoint)
    try:
        page = client.web.whole(address, name, LARGEST_LIST)
    except Refused as refused:
        if refused.status == 404 and not _said(refused, "x-error-code"):
            return _without_list(client, name, wanted)
        raise _refusal(client, name, wanted)(refused, "") from None
    commit, sizes = _listed(page.content, f"{client.host}: the list of files of {name}")
    kept = KeptParts(client.host, name)
    kept.keep_commit(wanted, commit)
    kept.keep_files(commit, sizes)
    return _repository(client, name, commit, sizes)


def names_on_hub(query: str, most: int) -> list[str]:
    """Models whose names hold a query, the most downloaded first. Raises SourceError."""
    if is_offline():
        raise SourceError(OFFLINE)
    client = _client()
    address = f"{client.endpoint}/api/models?{urlencode({'search': query, 'sort': 'downloads', 'limit': most})}"
    what = f'{client.host}: models by the name "{clipped(query, 60)}"'
    client.web.reach(client.endpoint)
    try:
        found = json.loads(client.web.whole(address, what, LARGEST_LIST).content)
        names = [one["id"] for one in found]
    except Refused as refused:
        raise status_problem(client.host, what, refused) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SourceError(f"{what} are not as the Hub writes them") from None
    return [one for one in names if isinstance(one, str) and _NAME.fullmatch(one)][:most]


def kept_hub(name: str, revision: str | None) -> RemoteRepository | None:
    """The repository as far as it was read before, without the network."""
    endpoint = (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    kept = KeptParts(_host(endpoint), name)
    commit = kept.commit_of(revision or MAIN)
    sizes = kept.files(commit) if commit is not None else None
    if commit is None or sizes is None:
        return None
    return RemoteRepository(
        name, HUB, commit, sizes, web=None, address_of=str, refusal=lambda _, path: SourceError(path), kept=kept
    )


def _client() -> _Client:
    if IN_BROWSER:
        own = given_token()
        shown = {"Authorization": f"Bearer {own}"} if own else {}
        return _Client(ENDPOINT, own, WebReader(browser_get, _host(ENDPOINT), shown, BROWSER_WAITS_S))
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when it is imported
    try:
        client, constants = import_module("huggingface_hub"), import_module("huggingface_hub.constants")
        session = client.get_session()
    except ImportError:
        raise NoClient(NO_CLIENT) from None
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else client.get_token()
    headers = {"User-Agent": "vramwise"} | ({"Authorization": f"Bearer {token}"} if token else {})
    web = WebReader(_send(session), _host(endpoint), headers, constants.HF_HUB_DOWNLOAD_TIMEOUT)
    return _Client(endpoint, token, web)


def _send(session: Any) -> Callable[[str, Mapping[str, str], float], _SessionAnswer]:
    def send(url: str, headers: Mapping[str, str], timeout_s: float) -> _SessionAnswer:
        if hasattr(session, "build_request"):  # httpx, of huggingface_hub 1 and newer
            request = session.build_request("GET", url, headers=headers, timeout=timeout_s)
            return _SessionAnswer(session.send(request, stream=True, follow_redirects=False))
        return _SessionAnswer(session.get(url, headers=headers, timeout=timeout_s, stream=True, allow_redirects=False))

    return send


class _SessionAnswer:
    """An answer of httpx or of requests."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.status: int = answer.status_code
        self.headers = {str(name).lower(): str(value) for name, value in answer.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        if hasattr(self._answer, "iter_raw"):
            yield from self._answer.iter_raw()
        else:
            yield from self._answer.raw.stream(MIB // 16, decode_content=False)

    def close(self) -> None:
        self._answer.close()


def _repository(client: _Client, name: str, commit: str, sizes: Mapping[str, int | None]) -> RemoteRepository:
    def address_of(path: str) -> str:
        return f"{client.endpoint}/{_quoted(name)}/resolve/{quote(commit, safe='')}/{quote(path)}"

    return RemoteRepository(
        name, HUB if client.host == "huggingface.co" else f"{HUB} ({client.host})", commit, sizes, web=client.web,
        address_of=address_of, refusal=_refusal(client, name, commit), kept=KeptParts(client.host, name),
    )  # fmt: skip


def _listed(content: bytes, what: str) -> tuple[str, dict[str, int | None]]:
    """The commit and the sizes of its files."""
    try:
        table = json.loads(content)
        commit, files = table["sha"], table["siblings"]
        sizes = {file["rfilename"]: _size(file) for file in files if is_plain_path(file["rfilename"])}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SourceError(f"{what} is not as the Hub writes it") from None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise SourceError(f"{what} names no commit")
    return commit, sizes


def _size(file: Mapping[str, object]) -> int | None:
    size = file.get("size")
    return size if type(size) is int and size >= 0 else None


def _without_list(client: _Client, name: str, revision: str) -> RemoteRepository:
    """A mirror's repository: which of the usual files are there is seen by asking for each one's first byte."""
    refusal = _refusal(client, name, revision)
    sizes: dict[str, int | None] = {}
    commit = ""
    for path in _USUAL:
        address = f"{client.endpoint}/{_quoted(name)}/resolve/{quote(revision, safe='')}/{path}"
        try:
            page = client.web.part(address, f"{name}/{path}", 0, 1)
        except Refused as refused:
            if refused.status == 404 and _said(refused, "x-error-code") != "RepoNotFound":
                continue
            raise refusal(refused, path) from None
        commit = commit or page.headers.get("x-repo-commit", "")
        sizes[path] = page.whole_bytes
    if not sizes:
        raise NoSuchRepository(f"{client.host} has no {name}")
    if "model.safetensors.index.json" in sizes or "pytorch_model.bin.index.json" in sizes:
        sizes.update(_named_by_index(client, name, revision, sizes))
    return _repository(client, name, commit if _COMMIT.fullmatch(commit) else revision, sizes)


def _named_by_index(
    client: _Client, name: str, revision: str, sizes: Mapping[str, int | None]
) -> dict[str, int | None]:  # fmt: skip
    index = next(path for path in sizes if path.endswith(".index.json"))
    try:
        where = json.loads(_repository(client, name, revision, sizes).read(index, LARGEST_LIST))["weight_map"]
        return {file: None for file in where.values() if is_plain_path(file)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _refusal(client: _Client, name: str, revision: str) -> Callable[[Refused, str], SourceError]:
    page = f"https://huggingface.co/{name}"

    def refusal(refused: Refused, path: str) -> SourceError:
        code, said = _said(refused, "x-error-code"), _said(refused, "x-error-message")
        what = f"{name}/{path}" if path else name
        if code == "GatedRepo":
            how = (
                "ask for access on" if client.token is None else "this token's account has no access yet: ask for it on"
            )
            return SourceError(f"{what} is gated: {how} {page}, then {_ACCESS}")
        if said.startswith("Invalid credentials") or (refused.status == 401 and client.token is not None and not code):
            return SourceError(f"{client.host} refuses the token for {what}: {_ACCESS}")
        if code == "RevisionNotFound":
            return SourceError(f"{name} has no revision {clipped(revision)}: {page}/tree/main lists what it has")
        if code == "EntryNotFound":
            return SourceError(f"{what}: there is no such file")
        if code == "RepoNotFound" or refused.status in (401, 404):
            return NoSuchRepository(f"{client.host} has no {name}, or it is private: {_ACCESS}")
        if "disabled" in said:
            return SourceError(f"{client.host}: access to {name} is disabled")
        return status_problem(client.host, what, refused)

    return refusal


def status_problem(host: str, what: str, refused: Refused) -> SourceError:
    """What any hub means with a status."""
    if refused.status == 429:
        wait = pause_s(refused.headers)
        when = f"in {wait:,} seconds" if wait is not None else "later"
        return SourceError(f"{host} takes no more requests for now: try again {when}; a token allows more of them")
    if refused.status == 403:
        said = _said(refused, "x-error-message")
        return SourceError(f"{host} forbids {what}{f' ({said})' if said else ''}: {_ACCESS}")
    if refused.status == 404:
        return SourceError(f"{what}: there is no such file")
    if refused.status >= 500:
        return Unreachable(f"{what}: {host} is out of order (status {refused.status})")
    return SourceError(f"{what}: {host} answers with status {refused.status}")


def _said(refused: Refused, header: str) -> str:
    return clipped(refused.headers.get(header, ""), 100)


def _quoted(name: str) -> str:
    return quote(name, safe="/")


def _host(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SourceError("HF_ENDPOINT is no address, expected one such as https://huggingface.co") from None
    if parts.scheme not in ("http", "https") or not host:
        raise SourceError("HF_ENDPOINT is no address, expected one such as https://huggingface.co")
    return f"{host}:{port}" if port is not None else host
