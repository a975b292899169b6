"""What every request passes before anybody reads it, and the headers of every answer.

A page of another site must not be able to ask this server (DNS rebinding, cross-site requests), and one connection must
not be able to hold it up (bodies without an end, too many at once).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
API = ("/api/", "/mcp")
_WRITING = frozenset({"POST", "PUT", "PATCH"})


class Refusal(Exception):
    """A request that goes no further: its status, and a line that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guards:
    """An ASGI application around another one.

    `hosts`: names by which this server may be asked, `by_address`: also by any address, which no foreign name can stand
    for; `most_bytes`: of a body; `body_s`: in which it must have come.
    """

    def __init__(
        self, app: App, hosts: Collection[str], most_bytes: int, body_s: float, *, by_address: bool = False
    ) -> None:
        self._app, self._hosts, self._most_bytes, self._body_s = app, frozenset(hosts), most_bytes, body_s
        self._by_address = by_address

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket: nothing here is one
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = {name.lower(): value for name, value in message.get("headers", ())}
                more = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items() if k.lower().encode() not in own]
                if scope["path"].startswith(API) and b"cache-control" not in own:
                    more.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope["method"], scope["path"], headers)
            await self._app(scope, self._bounded(receive, headers), with_headers)
        except Refusal as refusal:
            if started:
                raise
            await _refuse(with_headers, refusal)

    def _check(self, method: str, path: str, headers: dict[bytes, str]) -> None:
        """Raises Refusal."""
        host = headers.get(b"host", "")
        name = _name_of(host)
        if name not in self._hosts and not (self._by_address and _is_address(name)):
            raise Refusal(421, "this server answers under its own name alone")
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            raise Refusal(403, "pages of other origins may not ask this server")
        site = headers.get(b"sec-fetch-site", "same-origin")
        if path.startswith(API) and site not in ("same-origin", "none"):
            raise Refusal(403, "pages of other sites may not ask this server")
        if method in _WRITING:
            kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
            if kind not in ("application/json", "application/octet-stream"):
                raise Refusal(415, "expected Content-Type: application/json")
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self._most_bytes:
            raise Refusal(413, f"the body: at most {self._most_bytes:,} bytes")

    def _bounded(self, receive: Receive, headers: dict[bytes, str]) -> Receive:
        """The body, as far as it is within the limits of size and time."""
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            return receive
        seen, ends = 0, asyncio.get_running_loop().time() + self._body_s
        whole = False

        async def bounded() -> Message:
            nonlocal seen, whole
            if whole:
                return await receive()  # waits for the end of the connection, however long that takes
            try:
                async with asyncio.timeout_at(ends):
                    message = await receive()
            except TimeoutError:
                raise Refusal(408, f"the body did not come within {self._body_s:g} seconds") from None
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > self._most_bytes:
                raise Refusal(413, f"the body: at most {self._most_bytes:,} bytes")
            return message

        return bounded


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def said(refusal: Refusal) -> bytes:
    """The body of a refusal, in the form of every error."""
    return (json.dumps({"error": {"kind": "Refused", "message": str(refusal), "exit_code": 2}}) + "\n").encode()


async def _refuse(send: Send, refusal: Refusal) -> None:
    content = said(refusal)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if refusal.status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
