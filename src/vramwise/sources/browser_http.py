"""GET in the browser, where the program runs under Pyodide in a worker: the browser's own request, waited for.

There are no sockets and no threads. The browser follows redirects and decompresses by itself, sends what it allows
(Fetch standard, forbidden header names), and shows the headers that the host exposes (CORS).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module

IN_BROWSER = sys.platform == "emscripten"
_FORBIDDEN = frozenset({"accept-encoding", "user-agent"})
_token = ""


def set_token(token: str) -> None:
    """The token that the hub is shown from now on; it is kept in this program alone."""
    global _token
    _token = token.strip()


def given_token() -> str | None:
    """The token that the page was given."""
    return _token or None


class BrowserAnswer:
    """A whole answer, which the browser has received."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.status, self.headers, self._content = status, headers, content

    def chunks(self) -> Iterator[bytes]:
        yield self._content

    def close(self) -> None:
        self._content = b""


def browser_get(url: str, headers: Mapping[str, str], timeout_s: float) -> BrowserAnswer:
    """The answer to a GET, redirects followed. Raises OSError where the browser reaches nobody or may not ask."""
    request = import_module("js").XMLHttpRequest.new()
    request.open("GET", url, False)
    request.responseType = "arraybuffer"
    request.timeout = int(timeout_s * 1000)
    for name, value in headers.items():
        if name.lower() not in _FORBIDDEN:
            request.setRequestHeader(name, value)
    try:
        request.send()
    except Exception as problem:  # JsException: no route, refused by CORS or the page's policy, too slow
        raise OSError("the browser could not reach it") from problem
    content: bytes = request.response.to_bytes() if request.response is not None else b""
    return BrowserAnswer(request.status, _shown(str(request.getAllResponseHeaders()), headers, len(content)), content)


def _shown(text: str, asked: Mapping[str, str], received: int) -> dict[str, str]:
    """The headers by lower-case name, as of an answer without redirects and compression.

    A host may hide Content-Range: then the part is the one that was asked for.
    """
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    shown = {name.strip().lower(): value.strip() for name, _, value in lines}
    shown.pop("content-encoding", None)
    shown["content-length"] = str(received)
    wanted = asked.get("Range", "").removeprefix("bytes=").partition("-")[0]
    if wanted.isdecimal() and received:
        shown.setdefault("content-range", f"bytes {wanted}-{int(wanted) + received - 1}/*")
    return shown
