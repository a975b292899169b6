"""A Hugging Face Hub and a ModelScope on loopback: repositories in memory, a log of what was asked, faults to order.

`with FakeHub() as hub: hub.add("org/name", {...})`; `hub.endpoint` is what HF_ENDPOINT and MODELSCOPE_ENDPOINT name.
Large files are `Sparse`: a start, and zeros behind that are made while they are sent.
"""

from __future__ import annotations

import json
import re
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

_CHUNK = bytes(65536)


class Sparse(NamedTuple):
    """A file of `size` bytes that begins with `start`."""

    start: bytes
    size: int

    def part(self, first: int, last: int) -> Iterator[bytes]:
        """The bytes from `first` to before `last`."""
        if first < len(self.start):
            yield self.start[first : min(last, len(self.start))]
            first = min(last, len(self.start))
        while first < last:
            yield _CHUNK[: min(len(_CHUNK), last - first)]
            first += min(len(_CHUNK), last - first)


class Asked(NamedTuple):
    """A request as it came in: its path with the query, its Range header, whether a token came along, its host."""

    path: str
    range: str | None
    token: str | None
    port: int


class Repo:
    """A repository: files, gate, and the revisions by which its one commit is known."""

    def __init__(self, name: str, files: Mapping[str, bytes | Sparse | str | dict[str, Any]], **faults: Any) -> None:
        self.name = name
        self.files = {path: _sparse(content) for path, content in files.items()}
        self.commit = sha1(name.encode() + repr(sorted(self.files)).encode()).hexdigest()
        self.revisions = {"main", "master", *faults.pop("revisions", ())}
        self.gated: bool = faults.pop("gated", False)
        self.private: bool = faults.pop("private", False)
        self.tokens: set[str] = set(faults.pop("tokens", ()))
        assert not faults, faults


class FakeHub:
    """The server. Faults hold for every request: `ignores_range`, `has_no_list`, `delay_s` before each answer,
    `drips_s` between the bytes of each body, `status` (with `headers`) instead of an answer, `cuts` this many bodies in
    half, `elsewhere` (the address of another FakeHub) to which files are redirected."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.asked: list[Asked] = []
        self.sent_bytes = 0
        self.ignores_range = self.has_no_list = False
        self.delay_s = self.drips_s = 0.0
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.cuts = 0
        self.elsewhere: str | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> FakeHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, name: str, files: Mapping[str, bytes | Sparse | str | dict[str, Any]], **faults: Any) -> Repo:
        self.repos[name] = Repo(name, files, **faults)
        return self.repos[name]

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]


def safetensors(
    tensors: Mapping[str, tuple[str, list[int]]], *, padded: int = 0, metadata: Mapping[str, str] | None = None
) -> Sparse:  # fmt: skip
    """A safetensors file of these dtypes and shapes; its header is filled up to `padded` bytes."""
    bits = {"F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "U8": 8, "I8": 8, "I32": 32, "I64": 64}
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, (dtype, shape) in tensors.items():
        size = bits[dtype] // 8
        for axis in shape:
            size *= axis
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (padded - len(text))
    return Sparse(struct.pack("<Q", len(text)) + text, 8 + len(text) + position)


def sharded(
    shards: list[Mapping[str, tuple[str, list[int]]]], *, stem: str = "model"
) -> dict[str, bytes | Sparse | str | dict[str, Any]]:  # fmt: skip
    """Files `model-00001-of-0000N.safetensors` and their index."""
    names = [f"{stem}-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    where = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    files: dict[str, bytes | Sparse | str | dict[str, Any]] = {
        name: safetensors(shard) for name, shard in zip(names, shards, strict=True)
    }
    return {**files, f"{stem}.safetensors.index.json": {"metadata": {}, "weight_map": where}}


def _sparse(content: bytes | Sparse | str | dict[str, Any]) -> Sparse:
    if isinstance(content, Sparse):
        return content
    data = json.dumps(content).encode() if isinstance(content, dict) else content
    data = data.encode() if isinstance(data, str) else data
    return Sparse(data, len(data))


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.asked.append(
                Asked(self.path, self.headers.get("Range"), self.headers.get("Authorization"), hub.port)
            )  # fmt: skip
            time.sleep(hub.delay_s)
            try:
                self.answer()
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_HEAD = do_GET

        def answer(self) -> None:
            if hub.status is not None:
                return self.refuse(hub.status, hub.headers)
            parts = urlsplit(self.path)
            path, query = unquote(parts.path).strip("/"), parse_qs(parts.query)
            if path == "api/models":
                return self.found(query["search"][0], int(query["limit"][0]))
            if match := re.fullmatch(r"api/models/([^/]+/[^/]+|[^/]+?)(?:/revision/(.+))?", path):
                return self.listed(match[1], match[2] or "main")
            if match := re.fullmatch(r"(?:cdn/)?([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", path):
                return self.file(match[1], match[2], match[3])
            if match := re.fullmatch(r"api/v1/models/([^/]+/[^/]+)/repo/files", path):
                return self.listed_by_modelscope(match[1], query["Revision"][0])
            if match := re.fullmatch(r"api/v1/models/([^/]+/[^/]+)/repo", path):
                return self.file(match[1], query["Revision"][0], query["FilePath"][0])
            return self.refuse(404)

        def refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_json(self, value: object) -> None:
            content = _sparse(json.dumps(value))
            self.send_whole(content, {"Content-Type": "application/json"})

        def token(self) -> str | None:
            given = self.headers.get("Authorization")
            return given.removeprefix("Bearer ") if given else None

        def allowed(self, name: str, revision: str, *, file: bool) -> Repo | None:
            repo, token = hub.repos.get(name), self.token()
            if token == "wrong":
                self.refuse(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
            elif repo is None or (repo.private and token not in repo.tokens):
                self.refuse(404 if token else 401, {"X-Error-Code": "RepoNotFound"})
            elif revision not in repo.revisions | {repo.commit}:
                self.refuse(404, {"X-Error-Code": "RevisionNotFound"})
            elif file and repo.gated and token not in repo.tokens:
                self.refuse(403 if token else 401, {"X-Error-Code": "GatedRepo"})
            else:
                return repo
            return None

        def listed(self, name: str, revision: str) -> None:
            if hub.has_no_list:
                return self.refuse(404)
            repo = self.allowed(name, revision, file=False)
            if repo is not None:
                files = [{"rfilename": path, "size": content.size} for path, content in repo.files.items()]
                self.send_json({"id": name, "modelId": name, "sha": repo.commit, "siblings": files})

        def found(self, text: str, most: int) -> None:
            names = [name for name in hub.repos if text.lower() in name.lower()]
            self.send_json([{"id": name, "modelId": name, "downloads": 1} for name in names[:most]])

        def listed_by_modelscope(self, name: str, revision: str) -> None:
            repo = hub.repos.get(name)
            if repo is None or revision not in repo.revisions:
                return self.refuse(404)
            files = [
                {"Path": path, "Name": path, "Size": content.size, "Type": "blob", "Revision": repo.commit}
                for path, content in repo.files.items()
            ]
            self.send_json({"Code": 200, "Success": True, "Data": {"Files": files}})

        def file(self, name: str, revision: str, path: str) -> None:
            repo = hub.repos.get(name) if self.path.startswith("/cdn/") else self.allowed(name, revision, file=True)
            if repo is None:
                return
            if path not in repo.files:
                return self.refuse(404, {"X-Error-Code": "EntryNotFound"})
            if hub.elsewhere is not None:
                return self.refuse(
                    302, {"Location": f"{hub.elsewhere}/cdn{self.path}", "X-Repo-Commit": repo.commit}
                )  # fmt: skip
            self.send_part(repo.files[path], {"X-Repo-Commit": repo.commit, "ETag": f'"{repo.commit}"'})

        def send_part(self, content: Sparse, headers: dict[str, str]) -> None:
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted is None or hub.ignores_range:
                return self.send_whole(content, headers)
            first = int(wanted[1])
            last = min(int(wanted[2]) + 1 if wanted[2] else content.size, content.size)
            if first >= content.size:
                return self.refuse(416, {"Content-Range": f"bytes */{content.size}"})
            headers = {**headers, "Content-Range": f"bytes {first}-{last - 1}/{content.size}"}
            self.send_bytes(206, content, first, last, headers)

        def send_whole(self, content: Sparse, headers: dict[str, str]) -> None:
            self.send_bytes(200, content, 0, content.size, headers)

        def send_bytes(self, status: int, content: Sparse, first: int, last: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(last - first))
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.cuts:
                hub.cuts -= 1
                last, self.close_connection = first + (last - first) // 2, True
            for piece in content.part(first, last):
                if hub.drips_s:
                    for byte in piece:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(hub.drips_s)
                    continue
                self.wfile.write(piece)
                hub.sent_bytes += len(piece)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
